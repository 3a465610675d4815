"""Reads the tables of the paper's LaTeX source, where a reader has it beside the checkout."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

Cell = tuple[float, float | None]


def paper_source() -> str:
    """The LaTeX (VARJEPA_PAPER, or the text file in ../shared/paper), else the test is skipped."""
    given = os.environ.get("VARJEPA_PAPER")
    folder = REPOSITORY.parent / "shared" / "paper"
    files = [Path(given)] if given else sorted(folder.glob("*.txt"))
    if not files or not files[0].is_file():
        pytest.skip("the paper's source is not here")
    return files[0].read_text(encoding="utf-8")


def table_lines(source: str, label: str) -> list[list[str]]:
    """The cells of each line between the first rule and the last one of a labelled table."""
    body = source.split(rf"\label{{{label}}}", 1)[1]
    body = body.split(r"\toprule", 1)[1].split(r"\bottomrule", 1)[0]
    body = re.sub(r"\\(midrule|rowcolor\{[^}]*\}|enspace)", " ", body)
    body = re.sub(r"\\multirow\{\d+\}\{\*\}\{\\textbf\{(\w+)\}\}", r"\1", body)
    return [
        [cell.strip() for cell in line.replace("\n", " ").split("&")]
        for line in body.split(r"\\")
        if line.strip()
    ]


def quoted(cell: str) -> Cell:
    r"""``0.849{\scriptsize$\pm$1.4e$^{-3}$}`` → (0.849, 0.0014); without a ±, (0.849, None)."""
    plain = re.sub(r"\\textbf\{([^}]*)\}", r"\1", cell)
    mean, _, rest = plain.partition(r"{\scriptsize$\pm$")
    if not rest:
        return float(mean), None
    found = re.fullmatch(r"([\d.]+)e\$\^\{(-\d+)\}\$\}", rest)
    assert found is not None, cell
    return float(mean), float(f"{found[1]}e{found[2]}")


def number(cell: str) -> float:
    r"""``$5\times 10^{-4}$``, ``$10^{-4}$``, ``$1$`` or a plain number."""
    bare = cell.strip("$").replace(" ", "")
    found = re.fullmatch(r"(?:([\d.]+)\\times)?10\^\{(-?\d+)\}", bare)
    if found is None:
        return float(bare)
    return float(f"{found[1] or 1}e{found[2]}")
