"""Where the rows of a folder come from: commit, versions and machine of each file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from varjepa.report.beside import header, line
from varjepa.report.study_files import FoundFile

ENVIRONMENT = ("commit", "varjepa", "python", "torch", "device", "processor", "cores")
COLUMNS = ("file", "rows", *ENVIRONMENT)


def origins(found: Mapping[str, FoundFile]) -> list[list[str]]:
    """A line per file and environment, the most rows first."""
    lines = []
    for name, file in found.items():
        counted: Counter[tuple[str, ...]] = Counter()
        for row in file.rows:
            environment = row.get("environment", {})
            counted[tuple(word(environment.get(part)) for part in ENVIRONMENT)] += 1
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        lines += [[name, f"{rows:,}", *parts] for parts, rows in ordered]
    return lines


def origin_table(found: Mapping[str, FoundFile]) -> list[str]:
    """The same as Markdown, with what a reader must know before believing the numbers."""
    remarks = [f"- {file.remark}" for file in found.values() if file.remark]
    if remarks:
        remarks = ["", "Not what this version would compute:", "", *remarks]
    return [*remarks, "", *header(COLUMNS), *(line(_plain(cells)) for cells in origins(found))]


def _plain(cells: list[str]) -> list[str]:
    """No bar of a name may shift its line."""
    return [cell.replace("|", "/") for cell in cells]


def word(value: object) -> str:
    """A dash where there is none."""
    return "–" if value is None else str(value)
