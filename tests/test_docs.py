"""Claims about the documents.

1. The paper map names only things that exist; links lead somewhere; tests that are named exist.
2. The Python blocks of README.md and docs/guide.md run from top to bottom.
3. Changelog and citation name this version; README has at most 160 lines and no path of a machine.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from varjepa.estimators.base import TableEstimator
from varjepa.version import __version__

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
SYMBOL = re.compile(r"`((?:varjepa|paper|benchmarks)(?:\.\w+)*):([\w.]+)`")


def mapped_symbols() -> list[tuple[str, str]]:
    return SYMBOL.findall((ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8"))


def test_the_map_is_not_empty() -> None:
    assert len(mapped_symbols()) >= 20


@pytest.mark.parametrize(("module", "name"), mapped_symbols())
def test_every_symbol_of_the_paper_map_exists(module: str, name: str) -> None:
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert found is not None


def test_links_in_the_documentation_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} → {target}"


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


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
@pytest.mark.filterwarnings("ignore:the latents have collapsed")  # after two steps they may
def test_python_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TableEstimator.settings

    def short(self: TableEstimator, name: str) -> Any:
        value = settings(self, name)
        narrow = {"d": 16, "predictor_width": 16} if name == "architecture" else {}
        short = {"epochs": 1, "max_steps": 2} if name == "training" else {}
        return replace(value, **narrow, **short)

    monkeypatch.setattr(TableEstimator, "settings", short)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


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
