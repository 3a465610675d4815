"""One table object for every report, rendered as Markdown or for a terminal.

A page renders it as HTML: ``table.html.j2``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table as TerminalTable

Mark = Literal["better", "near", "worse", "differs", "missing", "plain"]

SIGNS: dict[Mark, str] = {
    "better": "▲", "near": "●", "worse": "▼", "differs": "◆", "missing": "○", "plain": "",
}  # fmt: skip
"""A mark is a sign and a word as well as a colour."""

_NUMBER = r"[+\-−]?[\d,]*\.?\d+(?:[eE][+\-−]?\d+)?"
_NUMERIC = re.compile(
    rf"{_NUMBER}(?:\s*±\s*{_NUMBER})?\s*(?:%|s|ms|min|h|MB|GB|×)?(?:\s*✓)?|[-–—]?|nan"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A value, and where there is one the value that it is compared with."""

    text: str = ""
    reference: str = ""
    """what it is compared with, for instance the paper's value"""
    gap: str = ""
    """value minus reference"""
    mark: Mark = "plain"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; columns that hold only numbers are aligned right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    note: str = ""
    """what a reader must know, one line"""
    labels: int = 1
    """leading columns that name the row"""
    is_open: bool = True
    """on a page: shown at once, or only the title until somebody asks"""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {number} of {self.title}: {len(row)} values, but "
                    f"{len(self.columns)} columns"
                )

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds only numbers (with ±, %, a unit) and is not empty."""
        columns = [[str(row[i]).strip() for row in self.rows] for i in range(len(self.columns))]
        return [any(c) and all(map(_NUMERIC.fullmatch, c)) for c in columns]

    @property
    def marks(self) -> Counter[Mark]:
        return Counter(c.mark for row in self.rows for c in row if isinstance(c, Cell))


def to_markdown(table: Table, level: int = 0, gaps: bool = True) -> str:
    r"""Heading (``level`` 0: none), note and table. References in italics below the value.

    Examples:
        >>> cell = Cell(".86 ✓", ".85", "+1.0 σ", "near")
        >>> print(to_markdown(Table("T", ["", "a"], [["x", cell]]), level=2))
        ## T
        <BLANKLINE>
        |  | a |
        | --- | --- |
        | x | .86 (+1.0 σ) ✓<br>*.85* |
    """
    parts = [f"{'#' * level} {table.title}"] if level and table.title else []
    if table.note:
        parts.append(table.note)
    lines = [
        _line(table.columns),
        "| --- " * len(table.columns) + "|",
        *(_line([_markdown_cell(cell, gaps) for cell in row]) for row in table.rows),
    ]
    return "\n\n".join([*parts, "\n".join(lines)])


def _markdown_cell(cell: str | Cell, gaps: bool) -> str:
    if isinstance(cell, str):
        return cell
    text = "missing" if cell.mark == "missing" else cell.text
    if gaps and cell.gap:
        value, tick, _ = text.partition(" ✓")
        text = f"{value} ({cell.gap}){tick}"
    return text + (f"<br>*{cell.reference}*" if cell.reference else "")


def _line(cells: Sequence[str]) -> str:
    """A bar inside a cell would shift its line."""
    clean = [re.sub(r"\s+", " ", cell).replace("|", "/") for cell in cells]
    return "| " + " | ".join(clean) + " |"


def to_terminal(table: Table) -> TerminalTable:
    """For a rich console. Words from the data are text, never markup."""
    from rich.table import Table as TerminalTable
    from rich.text import Text

    shown = TerminalTable(title=Text(table.title, style="bold"), title_justify="left", box=None)
    for i, column in enumerate(table.columns):
        shown.add_column(Text(column), justify="left" if i < table.labels else "right")
    for row in table.rows:
        shown.add_row(*(Text(_terminal_cell(cell)) for cell in row))
    return shown


def _terminal_cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return cell
    text = "missing" if cell.mark == "missing" else cell.text
    return f"{text} [{cell.reference}]" if cell.reference else text
