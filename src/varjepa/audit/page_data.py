"""What the audit page shows, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageColumn:
    """A column of the table."""

    name: str
    kind: str
    """number, category, date or "not audited" """
    predictable: float | None
    """how well the other columns predict it, from 0 to 1"""
    suspicious: int
    """flagged cells"""
    drift: float | None
    """against the training rows"""


@dataclass(frozen=True, slots=True)
class CellDetail:
    """A suspicious cell and its distribution given the other cells of the row."""

    value: str
    surprise: float
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


@dataclass(frozen=True, slots=True)
class PageRow:
    """A row of the table."""

    label: str
    score: float
    p_value: float
    values: tuple[str | None, ...]
    """one a column, None where missing"""
    surprises: tuple[float | None, ...]
    """one a column, scaled to 0..1 for colour"""


@dataclass(frozen=True, slots=True)
class PageData:
    """The whole page."""

    title: str
    facts: tuple[tuple[str, str], ...]
    """name and value, such as rows, cells, level, flagged cells"""
    columns: tuple[PageColumn, ...]
    rows: tuple[PageRow, ...]
    """worst first, at most 10,000"""
    details: Mapping[tuple[int, int], CellDetail]
    """the most suspicious cells by (place in rows, place in columns)"""
