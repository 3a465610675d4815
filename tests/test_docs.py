"""Claims about the documents.

1. The paper map names only things that exist; links lead somewhere; tests that are named exist.
2. The Python blocks of README.md, of the start pages and of each guide run from top to bottom.
3. Every page is in the table of contents, every job has a guide, and every public name is in the
   API pages. What checks the built site finds dead links and what comes from other hosts.
4. Changelog and citation name this version; README has at most 160 lines and no path of a machine.
5. Commands that are shown can be typed: their names, arguments and options exist.
"""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import varjepa
from tests.browser import find_chromium
from varjepa.version import __version__

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("guide/*.md")]
LINKED = [*PAGES, *(ROOT / "paper").glob("**/*.md"), *(ROOT / "benchmarks").glob("*.md")]
RUN = [
    *(ROOT / page for page in ("README.md", "docs/index.md", "docs/start.md")),
    *sorted(
        page
        for page in (ROOT / "docs" / "guide").glob("*.md")
        if "```python" in page.read_text("utf-8")
    ),
]
SYMBOL = re.compile(r"`((?:varjepa|paper|benchmarks)(?:\.\w+)*):([\w.]+)`")


def mapped_symbols() -> list[tuple[str, str]]:
    return SYMBOL.findall((ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8"))


def python_blocks(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_map_is_not_empty() -> None:
    assert len(mapped_symbols()) >= 20


@pytest.mark.parametrize(("module", "name"), mapped_symbols())
def test_every_symbol_of_the_paper_map_exists(module: str, name: str) -> None:
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert found is not None


def test_links_in_the_documentation_lead_somewhere() -> None:
    for page in LINKED:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            goal = (page.parent / target).resolve()
            if goal.parent == ROOT / "docs" / "gallery":  # made from the examples
                goal = ROOT / "examples" / goal.with_suffix(".py").name.replace("index.py", "")
            assert goal.exists(), f"{page.name} → {target}"


def test_every_test_that_the_documentation_names_exists() -> None:
    tests = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("*.py"))
    files = {p.name for p in (ROOT / "tests").rglob("*.py")}
    named = set()
    for page in PAGES:
        named |= set(re.findall(r"`[^`\n]*?\b(test_\w+(?:\.py)?)[^`\n]*`", page.read_text("utf-8")))
    assert len(named) > 20
    for name in named:
        assert name in files if name.endswith(".py") else f"def {name}(" in tests, name


def test_files_that_the_documentation_names_exist() -> None:
    soak = ROOT / "benchmarks" / "results" / "soak"
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`((?:tests|benchmarks|examples)/[\w/.-]+\.\w+)", text):
            assert (ROOT / name).exists(), f"{page.name} → {name}"
        for name in re.findall(r"`(\w+/[\w/]+\.py)`", text):
            assert (ROOT / name).exists() or (ROOT / "src/varjepa" / name).exists(), name
        for name, symbol in re.findall(r"`(\w+/[\w/]+\.py)`:\s+`(?:\w+\.)*(\w+)`", text):
            code = next(p for p in (ROOT / name, ROOT / "src/varjepa" / name) if p.exists())
            defined = rf"(def|class) {symbol}\b|^{symbol}\b"
            assert re.search(defined, code.read_text("utf-8"), re.MULTILINE), f"{name}: {symbol}"
    for name in re.findall(r"`([\w-]+\.json)`", (ROOT / "docs/reliability.md").read_text("utf-8")):
        assert (soak / name).exists() or name.startswith(("manifest", "_varjepa")), name


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings("ignore:the latents have collapsed")  # after two steps they may
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in python_blocks(page):
        exec(compile(block, page.name, "exec"), names)


def test_every_page_with_python_is_run() -> None:
    others = {ROOT / "docs" / "scale.md"}  # needs clusters: tests/scale/test_engines.py
    assert {page for page in PAGES if python_blocks(page)} == {*RUN} | others


# --- commands

PROGRAMS = {
    "varjepa": "varjepa.cli:app",
    "paper": "paper.__main__:app",
    "benchmarks.audit": "benchmarks.audit:app",
    "benchmarks.ground": "benchmarks.ground.__main__:ground",
    "benchmarks.speed": "benchmarks.speed:bench",
}


def find_command(words: list[str]) -> tuple[Any, list[str]] | None:
    """The command that a shell's words would run, and its own words; None: not one of ours."""
    for i, word in enumerate(words):
        name = words[i + 1] if word == "-m" else word if i == 0 else ""
        if name in PROGRAMS:
            module, _, app = PROGRAMS[name].partition(":")
            command: Any = get_command(getattr(importlib.import_module(module), app))
            rest = words[i + 1 + (word == "-m") :]
            while rest and rest[0] in getattr(command, "commands", {}):
                command, rest = command.commands[rest[0]], rest[1:]
            if hasattr(command, "commands") and rest and rest[0].isidentifier():
                raise ValueError(f"No such command: {rest[0]}")
            return command, rest
    return None


def shown_commands(page: Path) -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def check_words(words: list[str]) -> bool:
    """Whether the words run a command of ours; one that would refuse them raises."""
    found = find_command(words)
    if found:
        command, rest = found
        command.make_context(command.name, rest)  # parses, and runs nothing
    return found is not None


def test_commands_of_the_documentation_can_be_typed() -> None:
    count = 0
    for page in LINKED:
        for words in shown_commands(page):
            try:
                count += check_words(words)
            except Exception as error:
                raise AssertionError(f"{page.name}: {shlex.join(words)}: {error}") from error
    assert count > 40


def test_options_that_the_text_names_exist() -> None:
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # names what is gone, too
            continue
        for code in re.findall(r"`((?:varjepa|python -m) [^`]+)`", page.read_text("utf-8")):
            found = find_command(code.split())
            if found:
                command, rest = found
                named = set(re.findall(r"--[\w-]+", " ".join(rest))) - {"--help"}
                known = {option for one in command.params for option in one.opts}
                assert named <= known, f"{page.name}: {code}"


@pytest.mark.parametrize(
    "line",
    [
        "varjepa demo --quickly",
        "varjepa fitt table.csv --out model",
        "varjepa fit --out model",
        "OMP_NUM_THREADS=1 torchrun -m varjepa fit table.csv --outt model",
        "python -m paper all --out runs --fast",
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    with pytest.raises(Exception, match=r"No such|Missing|[Uu]nexpected"):
        check_words(line.split())


# --- the site


def toctree_entries(page: Path) -> set[Path]:
    """What a page's table of contents names, without endings."""
    text = page.read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}(.*?)```|toctree::\n(.*?)\n\n(?=\S)", text, re.DOTALL)
    lines = [line.strip() for tree in trees for line in "".join(tree).splitlines()]
    return {(page.parent / line).resolve() for line in lines if line and line[0] != ":"}


def test_every_page_is_in_the_table_of_contents() -> None:
    docs = ROOT / "docs"
    sources = [*docs.glob("*.md"), *docs.glob("guide/*.md"), *docs.glob("api/*.rst")]
    named = set().union(*(toctree_entries(page) for page in sources))
    assert len(sources) > 25
    for page in sources:
        assert page.stem == "index" or page.with_suffix("") in named, page.name
    for page in ("README", "CHANGELOG", "CONTRIBUTING", "paper/README", "benchmarks/README"):
        assert ROOT / page in named
    generated = docs / "gallery"
    for entry in named - {generated / "index"}:
        assert entry.with_suffix(".md").exists() or entry.with_suffix(".rst").exists(), entry


def test_every_job_has_a_guide() -> None:
    jobs = {"embed", "fill", "audit", "outliers", "abstain", "sample", "stream", "reproduce"}
    assert jobs <= {page.stem for page in (ROOT / "docs" / "guide").glob("*.md")}


def test_every_public_name_is_in_the_api_pages() -> None:
    pages = "\n".join(p.read_text("utf-8") for p in (ROOT / "docs" / "api").glob("*.rst"))
    shown = set(re.findall(r"auto\w+:: (?:\w+\.)*(\w+)$", pages, re.MULTILINE))
    for package in ("", ".audit", ".estimators", ".evaluate", ".explore", ".scale", ".tables"):
        names = importlib.import_module(f"varjepa{package}").__all__
        assert {name for name in names if name != "__version__"} <= shown, package
    assert "``__version__``" in pages
    for package in ("metrics", "variational"):
        for path in (ROOT / "src" / "varjepa" / package).glob("[a-z]*.py"):
            assert f"automodule:: varjepa.{package}.{path.stem}\n" in pages, path


def test_what_the_api_pages_name_exists() -> None:
    for page in (ROOT / "docs" / "api").glob("*.rst"):
        for kind, name in re.findall(r"auto(\w+):: ([\w.]+)$", page.read_text("utf-8"), re.M):
            if kind == "module":
                importlib.import_module(name)
                continue
            module, _, last = name.rpartition(".")
            assert hasattr(importlib.import_module(module), last), f"{kind} {name}"


@pytest.mark.parametrize("name", ["VarTJEPA", "TJEPA", "OutlierDetector"])
def test_the_api_page_says_what_a_constructor_takes(name: str) -> None:
    signature = inspect.signature(getattr(varjepa, name))
    assert "Any" not in str(signature)
    assert "random_state: 'int | np.random.RandomState | None'" in str(signature)


def test_the_site_check_finds_dead_links_and_other_hosts(tmp_path: Path) -> None:
    problems = runpy.run_path(str(ROOT / "docs" / "check_site.py"))["problems"]
    head = '<link rel="stylesheet" href="a.css"><p id="here"></p>'
    (tmp_path / "a.css").write_text("p { color: red }")
    (tmp_path / "good.html").write_text(f'{head}<a href="#here">x</a><a href="https://a.b">y</a>')
    assert problems(tmp_path) == []
    (tmp_path / "a.css").write_text("p { src: url(https://fonts.example/x.woff) }")
    (tmp_path / "bad.html").write_text(
        '<a href="gone.html"></a><a href="good.html#gone"></a><script src="//a.b/c.js"></script>'
    )
    assert len(problems(tmp_path)) == 4


def test_the_site_check_finds_pages_that_stick_out(tmp_path: Path) -> None:
    find_chromium()  # or skip
    wide_pages = runpy.run_path(str(ROOT / "docs" / "check_site.py"))["wide_pages"]
    head = '<!doctype html><meta name="viewport" content="width=device-width"><style>body{margin:0}'
    (tmp_path / "docs").mkdir()
    for name, width in (("narrow", 390), ("wide", 500)):
        text = f"{head}</style><p style='width:{width}px'>text"
        (tmp_path / "docs" / f"{name}.html").write_text(text)
    (sentence,) = wide_pages(tmp_path)
    assert sentence.startswith("docs/wide.html is 50")


def test_the_first_screen_shows_what_it_is_for() -> None:
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    parts = ["](audit.png)", "```sh", "varjepa demo --quick", "| --- |", "```python"]
    assert sorted(parts, key=text.index) == parts


@pytest.mark.parametrize("page", ["index.md", "start.md", "guide/command_line.md"])
def test_comments_fit_a_telephone(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    for block in re.findall(r"^```(?:sh|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            assert "# " not in line or len(line) <= 39, line


# --- versions and the README


def test_changelog_and_citation_name_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+) ", changelog, re.MULTILINE)[1] == __version__  # type: ignore[index]
    assert f"\nversion: {__version__}\n" in citation


def test_the_readme_is_short_and_names_no_machine() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 160
    assert "pip install" in readme
    for page in PAGES:
        assert not re.search(r"/(home|root|work|tmp)/", page.read_text(encoding="utf-8")), page
