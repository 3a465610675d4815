"""What the audit page shows, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from varjepa.audit.findings import ColumnFacts, Findings
from varjepa.audit.repairs import DETAILED
from varjepa.metrics.discoveries import MIN_P
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
    columns = tuple(_page_column(name, facts.get(name), left_out.get(name, "")) for name in names)
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


def _page_column(name: str, facts: ColumnFacts | None, why: str) -> PageColumn:
    if facts is None:
        return PageColumn(name, "not audited", None, 0, None, why)
    return PageColumn(name, facts.kind, facts.predictable, facts.flagged, facts.drift)


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
