"""A section of a Markdown report as a table of the study page, so that its words are written once.

Only for reports whose cells are our own words: a name that holds a bar would shift its line.
"""

from __future__ import annotations

from collections.abc import Sequence

from varjepa.report.study_cells import CellTable, plain_table


def table_of_markdown(lines: Sequence[str], title: str = "") -> list[CellTable]:
    """The heading, the words below it and the table; nothing where there is no table.

    Examples:
        >>> [found] = table_of_markdown(["## Costs", "In s.", "| a | b |", "|---|", "| x | 1 |"])
        >>> found.title, found.note, found.columns, found.groups[0].lines[0].title
        ('Costs', 'In s.', ['b'], 'x')
    """
    rows = [line[2:-2].split(" | ") for line in lines if line.startswith("|")]
    words = [line for line in lines if line and not line.startswith(("|", "#"))]
    for line in lines:
        if line.startswith("#"):
            title = line.lstrip("# ")
    if len(rows) < 3:
        return []
    return [plain_table(title, rows[0], rows[2:], " ".join(words))]
