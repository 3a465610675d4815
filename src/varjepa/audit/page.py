"""The audit page: what it shows, as plain data; its HTML file, a heat map; a small form of it."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from varjepa.audit.findings import Findings
from varjepa.audit.repairs import DETAILED
from varjepa.metrics.discoveries import MIN_P
from varjepa.report.interactive import figure, pack_texts, render_interactive, visible
from varjepa.report.page import write_report
from varjepa.tables.values import is_supported, shown_text, value_type

MOST_DETAILS = 20_000
"""Flagged cells that the page marks, with their repairs."""

FULL_COLOUR = 6.0
"""−log10 of the p-value that has the page's strongest colour."""


@dataclass(frozen=True, slots=True)
class PageColumn:
    """A column of the table."""

    name: str
    kind: str
    """number, category, date or "not audited" """
    predictable: float | None
    """how well the other columns predict it, from 0 to 1"""
    flagged: int
    """cells"""
    drift: float | None
    """against the training rows"""
    not_audited: str = ""
    """why, such as "identifier" """


@dataclass(frozen=True, slots=True)
class CellDetail:
    """A suspicious cell and its distribution given the other cells of the row."""

    value: str
    log_odds: float
    """of an error against a value that belongs there"""
    p_value: float
    flagged: bool
    repair: str | None
    confidence: float | None
    """of the repair, from 0 to 1"""
    lower: str | None
    upper: str | None
    levels: tuple[tuple[str, float], ...]
    """categories: the most likely levels with their probabilities"""
    edges: tuple[float, ...]
    """numbers and dates: edges of the histogram, one more than its masses"""
    masses: tuple[float, ...]
    at: float | None
    """place of the value on the histogram's axis"""
    repair_at: float | None
    ends: tuple[float, float] | None = None
    """of the interval"""


@dataclass(frozen=True, slots=True)
class PageRow:
    """A row of the table."""

    label: str
    score: float
    p_value: float
    values: tuple[str | None, ...]
    """one a column, None where missing"""
    suspicions: tuple[float | None, ...]
    """one a column, for colour: −log10 of the p-value, scaled to 0..1"""


@dataclass(frozen=True, slots=True)
class PageData:
    """The whole page."""

    title: str
    facts: tuple[tuple[str, str], ...]
    """name and value, such as rows, cells, level, flagged cells"""
    columns: tuple[PageColumn, ...]
    rows: tuple[PageRow, ...]
    """those with the most suspicious cell first, at most 10,000"""
    details: Mapping[tuple[int, int], CellDetail]
    """the most suspicious cells by (place in rows, place in columns)"""
    tests: int = 0
    """cells scored"""
    fdr: float = 0.05
    limit: float | None = None
    """the largest p-value that is flagged; None: none is"""


def page_data(f: Findings, names: list[str], title: str, left_out: Mapping[str, str]) -> PageData:
    """The page of a table with columns of these names; why some are not audited."""
    facts = {one.name: one for one in f.facts}
    columns = tuple(
        PageColumn(name, one.kind, one.predictable, one.flagged, one.drift)
        if (one := facts.get(name))
        else PageColumn(name, "not audited", None, 0, None, left_out.get(name, ""))
        for name in names
    )
    flagged = int(f.flagged.sum())
    row_at = {row: i for i, row in enumerate(f.rows.tolist())}
    column_at = {name: place for place, name in enumerate(names)}
    values = f.values()
    most = max(DETAILED, min(flagged, MOST_DETAILS))  # flagged cells come first
    details = {
        (row_at[row], column_at[f.names[j]]): _detail(f, i, values[i])
        for i, (row, j) in enumerate(f.places[:most].tolist())
        if row in row_at
    }
    marked = sum(detail.flagged for detail in details.values())
    rows = f"{len(f.row_scores):,}, counted from 0"
    if len(f.rows) < len(f.row_scores):
        rows += f"; only the {len(f.rows):,} most suspicious are on this page"
    about: tuple[tuple[str, str], ...] = (
        ("rows", rows),
        ("cells scored", f"{f.tests:,}"),
        ("false discovery rate", f"{f.fdr:g}"),
        ("flagged cells", f"{flagged:,}"),
    )
    if marked < flagged:
        about = (*about, ("of these on this page", f"{marked:,}"))
    return PageData(title, about, columns, _page_rows(f, names), details, f.tests, f.fdr, f.limit)


def _page_rows(f: Findings, names: list[str]) -> tuple[PageRow, ...]:
    places = np.searchsorted(f.picked_rows, f.rows)
    suspicion = -np.log10(np.maximum(f.picked_p_values[places], MIN_P)) / FULL_COLOUR
    audited = dict(zip(f.names, np.clip(suspicion, 0.0, 1.0).T, strict=True))
    shown = pa.array(places)
    texts = zip(*(_texts(f.picked[name].take(shown)) for name in names), strict=True)
    colours = zip(
        *(
            [None if np.isnan(s) else float(s) for s in audited[name]]
            if name in audited
            else [None] * len(places)
            for name in names
        ),
        strict=True,
    )
    return tuple(
        PageRow(str(row), float(f.row_scores[row]), float(f.row_p_values[row]), values, suspicions)
        for row, values, suspicions in zip(f.rows.tolist(), texts, colours, strict=True)
    )


def _detail(f: Findings, i: int, value: str | None) -> CellDetail:
    cells = f.cells
    h = cells.histograms.get(i)
    return CellDetail(
        value or "",
        float(f.log_odds[i]),
        float(f.p_values[i]),
        bool(f.flagged[i]),
        cells.repair[i],
        cells.confidence[i],
        cells.lower[i],
        cells.upper[i],
        cells.levels[i] if i < DETAILED else (),
        () if h is None else h.edges,
        () if h is None else h.masses,
        None if h is None else h.value,
        None if h is None else h.repair,
        None if h is None else h.interval,
    )


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Cells as text; those of types that no model takes as Python shows them."""
    if is_supported(value_type(column.type)):
        texts: list[str | None] = shown_text(column).to_pylist()
        return texts
    return [None if value is None else str(value) for value in column.to_pylist()]


# --- the page

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
            f"{detail.p_value:.2g}" if math.isfinite(detail.p_value) else "",
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
