"""The audit page: the table as a heat map, in one HTML file; and a small form of it."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

from varjepa.audit.page_data import CellDetail, PageData
from varjepa.report.interactive import figure, pack_texts, render_interactive, visible
from varjepa.report.page import write_report

SHADES = 1000
"""steps of the suspicion that colours a cell"""

_LISTED = 10


def write_page(data: PageData, path: Path) -> None:
    """Write the page in one step: a reader never sees half of it."""
    fallback = f"<p>This page needs JavaScript. Its most suspicious cells:</p>{small_form(data)}"
    page = render_interactive("varjepa.audit", "audit", data.title, _pack(data), fallback)
    write_report(page, path)


def small_form(data: PageData) -> str:
    """A table of the ten most suspicious cells, for a notebook."""
    worst = sorted(data.details.items(), key=lambda item: _worst_first(item[1]))[:_LISTED]
    names = ("row", "column", "value", "repair", "confidence", "p-value")
    lines = ["".join(_small_cell(name, "th", place) for place, name in enumerate(names))]
    for (row, column), detail in worst:
        cells = (
            data.rows[row].label,
            data.columns[column].name,
            detail.value,
            "" if detail.repair is None else detail.repair,
            _percent(detail.confidence),
            _figure_text(detail.p_value, ".2g"),
        )
        lines.append("".join(_small_cell(cell, "td", place) for place, cell in enumerate(cells)))
    facts = " · ".join(f"{_escape(name)} {_escape(value)}" for name, value in data.facts)
    rows = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'<div style="overflow-x:auto"><p style="margin:0 0 .4em"><b>{_escape(data.title)}</b> '
        f'<span style="opacity:.7">{facts}</span></p>'
        f'<table style="border-collapse:collapse;font-variant-numeric:tabular-nums">{rows}</table>'
        "</div>"
    )


def _worst_first(detail: CellDetail) -> tuple[float, float]:
    """Sorts the most suspicious first; what is not a number comes last."""
    p_value = detail.p_value if math.isfinite(detail.p_value) else math.inf
    return p_value, -detail.log_odds if math.isfinite(detail.log_odds) else math.inf


def _small_cell(text: str, tag: str, place: int) -> str:
    align = "right" if place >= 4 else "left"
    style = f"text-align:{align};padding:.2em .7em;border-bottom:1px solid rgba(128,128,128,.35)"
    return f'<{tag} style="{style}"><bdi>{_escape(text)}</bdi></{tag}>'


def _escape(text: str) -> str:
    return html.escape(visible(text if len(text) <= 80 else f"{text[:79]}…"))


def _share(value: float | None) -> float | None:
    """A probability that rounding does not make certain."""
    return figure(value if value is None or value >= 1.0 else min(value, 0.999), 3)


def _percent(share: float | None) -> str:
    """Never 100 % or 0 % of what is less or more."""
    if share is None or not math.isfinite(share):
        return ""
    return "> 99%" if share >= 0.995 else "< 1%" if share < 0.005 else f"{share:.0%}"


def _figure_text(value: float | None, form: str) -> str:
    return "" if value is None or not math.isfinite(value) else format(value, form)


def _pack(data: PageData) -> dict[str, Any]:
    """The data as the script reads it: by column, repeated texts and edges once."""
    columns = [
        {
            "name": visible(column.name),
            "kind": column.kind,
            "predictable": figure(column.predictable, 3),
            "flagged": column.flagged,
            "notAudited": visible(column.not_audited),
            "drift": figure(column.drift, 3),
            "texts": pack_texts([row.values[place] for row in data.rows]),
            "suspicions": [_shade(row.suspicions[place]) for row in data.rows],
        }
        for place, column in enumerate(data.columns)
    ]
    edges: dict[tuple[float, ...], int] = {}
    details = [
        {
            "row": row,
            "column": column,
            "value": visible(detail.value),
            "logOdds": figure(detail.log_odds, 4),
            "p": figure(detail.p_value, 3),
            "flagged": detail.flagged,
            "repair": None if detail.repair is None else visible(detail.repair),
            "confidence": _share(detail.confidence),
            "lower": None if detail.lower is None else visible(detail.lower),
            "upper": None if detail.upper is None else visible(detail.upper),
            "levels": [[visible(level), _share(share)] for level, share in detail.levels],
            "edges": edges.setdefault(detail.edges, len(edges)),
            "masses": [figure(mass, 3) for mass in detail.masses],
            "at": figure(detail.at, 9),
            "repairAt": figure(detail.repair_at, 9),
            "ends": None if detail.ends is None else [figure(end, 9) for end in detail.ends],
        }
        for (row, column), detail in sorted(data.details.items())
    ]
    return {
        "title": visible(data.title),
        "facts": [[visible(name), visible(value)] for name, value in data.facts],
        "columns": columns,
        "labels": [visible(row.label) for row in data.rows],
        "scores": [figure(row.score, 4) for row in data.rows],
        "ps": [figure(row.p_value, 3) for row in data.rows],
        "details": details,
        "edges": [[figure(edge, 9) for edge in some] for some in edges],
        "shades": SHADES,
        "tests": data.tests,
        "fdr": data.fdr,
        "limit": figure(data.limit, 3),
    }


def _shade(suspicion: float | None) -> int:
    """A whole number is shorter than a fraction; -1 where there is none."""
    if suspicion is None or math.isnan(suspicion):
        return -1
    return round(SHADES * min(max(suspicion, 0.0), 1.0))
