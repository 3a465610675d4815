"""Claims about the table object.

1. Rows must be as long as the columns; columns of numbers are known.
2. One table gives Markdown, HTML (in a page) and terminal output with the same values; references,
   gaps and marks are in each where there is a place for them.
3. A bar or a line break in a cell shifts nothing; HTML is escaped.
"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from varjepa.report.page import ReportPage, render_page
from varjepa.report.tables import Cell, Table, to_markdown, to_terminal

TABLE = Table(
    "Accuracy",
    ["model", "a", "b"],
    [
        ["MLP", Cell(".860 ✓", ".853", "+1.0 σ", "better"), Cell("", ".679", "", "missing")],
        ["x | y\n<b>", Cell(".5"), "1 %"],
    ],
    "Ours, the paper's below.",
)


def test_rows_are_as_long_as_the_columns() -> None:
    with pytest.raises(ValueError, match="row 0 of t: 1 values, but 2 columns"):
        Table("t", ["a", "b"], [["1"]])
    assert TABLE.numeric == [False, True, True]
    assert TABLE.marks == {"better": 1, "missing": 1, "plain": 1}


def test_markdown() -> None:
    lines = to_markdown(TABLE, level=3).splitlines()
    assert lines[:4] == ["### Accuracy", "", "Ours, the paper's below.", ""]
    assert lines[4:6] == ["| model | a | b |", "| --- | --- | --- |"]
    assert lines[6] == "| MLP | .860 (+1.0 σ) ✓<br>*.853* | missing<br>*.679* |"
    assert lines[7] == "| x / y <b> | .5 | 1 % |"
    assert "| MLP | .860 ✓<br>*.853* |" in to_markdown(TABLE, gaps=False)


def test_html_is_escaped_and_marks_are_signs_and_words() -> None:
    html = render_page(ReportPage("Page", tables=[TABLE])).partition("<table")[2]
    assert '<td class="better"><span><b aria-hidden="true">▲</b>' in html
    assert '<i class="hidden">better:</i>' in html
    assert '<span class="reference"><bdi>.853</bdi></span>' in html
    assert '<span class="gap"><bdi>+1.0 σ</bdi></span>' in html
    assert "<b>" not in html
    assert "x | y &lt;b&gt;" in html


def test_terminal() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(to_terminal(TABLE))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert ".860 ✓ [.853]" in text
    assert "missing [.679]" in text
