"""What the explorer shows, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExploreColumn:
    """A column of the table, one entry a row."""

    name: str
    kind: str
    """number, category or date"""
    values: tuple[str | None, ...]
    """as text, None where missing"""
    numbers: tuple[float | None, ...] | None
    """numbers and dates: places on an axis; None for categories"""
    surprises: tuple[float | None, ...] | None
    """scaled to 0..1 for colour, or None where they were not computed"""


@dataclass(frozen=True, slots=True)
class ExploreData:
    """The whole page; rows are at most 10,000."""

    title: str
    facts: tuple[tuple[str, str], ...]
    """name and value, such as rows, columns, model"""
    labels: tuple[str, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    """places on the map; a row without a finite place is not on it"""
    columns: tuple[ExploreColumn, ...]
    measures: tuple[tuple[str, tuple[float | None, ...]], ...]
    """name and a number a row, such as uncertainty and outlier score"""
    similar: tuple[tuple[int, ...], ...]
    """places of the most similar rows of each row, the most similar first"""
