"""Claims: every example runs to its end in a short form and prints something; each is a job that
fits on a page (at most 40 lines), uses only tables that come with scikit-learn and is shown in the
guide. Nothing in the library imports an example.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:the latents have collapsed")  # after one epoch they may
def test_an_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path))["main"](epochs=1)
    assert capsys.readouterr().out.strip()


def test_every_example_fits_on_a_page() -> None:
    assert len(EXAMPLES) >= 4
    for path in EXAMPLES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 40, path.name


def test_every_example_is_shown_in_the_guide() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for path in EXAMPLES:
        assert f"../examples/{path.name}" in guide, path.name


def test_the_library_knows_no_example() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(import|from) examples\b", text, re.MULTILINE), path.name
