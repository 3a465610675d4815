"""Claims: every example runs to its end with fits of two steps, prints and draws something.
Each opens with a title and the question that it answers, fits on two screens (at most 75 lines) and
uses only tables that come with scikit-learn or are made here. The gallery and the start page show
all of them. Nothing in the library imports an example.
"""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings("ignore:the latents have collapsed")  # after two steps they may
def test_an_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib.use("agg")
    plt.close("all")
    runpy.run_path(str(path))
    assert capsys.readouterr().out.strip()
    assert plt.get_fignums()
    plt.close("all")


def test_every_example_asks_a_question_and_is_short() -> None:
    assert len(EXAMPLES) >= 10
    for path in EXAMPLES:
        text = path.read_text(encoding="utf-8")
        title, underline, blank, *prose = (ast.get_docstring(ast.parse(text)) or "").splitlines()
        assert title, path.name
        assert underline == "=" * len(title), path.name
        assert not blank, path.name
        assert "?" in " ".join(prose), path.name
        assert len(text.splitlines()) <= 75, path.name


def test_every_example_is_in_the_gallery_and_on_the_start_page() -> None:
    order = re.findall(r'"(\w+\.py)"', (ROOT / "docs" / "conf.py").read_text(encoding="utf-8"))
    assert sorted(order) == [path.name for path in EXAMPLES]
    assert order[0] in (
        "audit.py",
        "fill_missing.py",
    )  # where we are good, not where raw columns are
    start = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for path in EXAMPLES:
        assert f"gallery/{path.stem}.rst" in start, path.name


def test_the_library_knows_no_example() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(import|from) examples\b", text, re.MULTILINE), path.name
