"""What a column becomes for the networks: numbers, categories with levels, marginals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from varjepa.tables.arrow_types import is_plain_number, is_text, value_type
from varjepa.tables.dates import CALENDAR_PARTS, as_instants
from varjepa.tables.scaling import Scaler, Scaling
from varjepa.tables.schema import Column
from varjepa.tables.summaries import LevelSummary, NumberSummary
from varjepa.tables.values import as_numbers, as_text, drop_zero_decimals

BOOLEAN_SPELLINGS = (("true", "false"), ("True", "False"), ("TRUE", "FALSE"), ("1", "0"))


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels seen in training: text in, codes out; code 0 is MISSING.

    They are sorted, so that row order and input format do not matter.
    """

    texts: pa.Array  # (L,) large_string, sorted
    """Canonical text of each level; level i has code i + 1."""

    counts: tuple[int, ...]
    """How many training rows had each level."""

    @classmethod
    def fit(cls, text: pa.ChunkedArray, max_levels: int | None = None) -> Levels:
        """All distinct texts, or the ``max_levels`` most frequent (ties: first in sorted order)."""
        found = LevelSummary()
        found.add(text)
        return cls.of_counts(found.counts(), max_levels)

    @classmethod
    def of_counts(cls, counts: pa.Table, max_levels: int | None = None) -> Levels:
        """The same of a ``text`` and a ``count`` of each level."""
        if max_levels is not None and len(counts) > max_levels:
            by_count = [("count", "descending"), ("text", "ascending")]
            counts = counts.take(pc.sort_indices(counts, by_count)[:max_levels])
        counts = counts.sort_by("text")
        texts = counts["text"].combine_chunks().cast(pa.large_string())
        return cls(texts, tuple(counts["count"].to_pylist()))

    def __len__(self) -> int:
        return len(self.counts)

    def encode(self, text: pa.ChunkedArray) -> NDArray[np.int64]:  # (N,)
        """1..L for a known level; 0 for a missing cell and for an unknown level alike."""
        index = pc.index_in(text, value_set=self.texts)
        return pc.fill_null(index, -1).to_numpy().astype(np.int64) + 1


def category_text(
    column: pa.ChunkedArray, fitted: pa.DataType, levels: Levels | None = None
) -> pa.ChunkedArray:
    """Canonical text of a column as a codec fitted on type ``fitted`` would have written it.

    The same data arrives as text from one file and as numbers or booleans from another; this is
    where 1, 1.0, "1.0", True and "true" meet. ``levels`` are those of the fitted column, if any.
    """
    text = as_text(column)
    fitted, given = value_type(fitted), value_type(column.type)
    if pa.types.is_boolean(fitted):
        text = pc.utf8_lower(pc.utf8_trim_whitespace(text)) if is_text(given) else text
        text = drop_zero_decimals(text)
        for number, word in (("1", "true"), ("0", "false")):
            text = pc.if_else(pc.equal(text, number), word, text)
        return text.cast(pa.large_string())
    if pa.types.is_boolean(given) and levels is not None:
        yes, no = _boolean_spelling(levels)
        text = pc.if_else(pc.equal(text, "true"), yes, pc.if_else(pc.is_null(text), text, no))
        return text.cast(pa.large_string())
    if is_plain_number(fitted) and is_text(given):
        return drop_zero_decimals(pc.utf8_trim_whitespace(text))
    return text


def _boolean_spelling(levels: Levels) -> tuple[str, str]:
    """How a column that was fitted as text or numbers writes true and false."""
    for spelling in BOOLEAN_SPELLINGS:
        if pc.any(pc.is_in(levels.texts, value_set=pa.array(spelling, pa.large_string()))).as_py():
            return spelling
    return BOOLEAN_SPELLINGS[0]


# --- the model tokens of a table, and how each is fitted on a column's training rows

VALUE = "value"
"""The one part of a numeric column; a datetime column has elapsed time and calendar parts."""

MARGINAL_QUANTILES = 101


@dataclass(frozen=True, slots=True)
class Feature:
    """One model token. A datetime column has several, every other column exactly one."""

    name: str
    """The column's name; ``column:part`` for the parts of a datetime column."""

    column: str

    kind: Literal["numeric", "categorical"]

    levels: int
    """Number of levels of a categorical feature, MISSING not counted; 0 if numeric."""


@dataclass(frozen=True, slots=True)
class Marginal:
    """How one feature is distributed over the training rows, for sampling and for baselines."""

    missing_share: float

    quantiles: tuple[float, ...] = ()
    """Numeric: 101 evenly spaced quantiles of the observed cells in network scale; empty if there
    were none."""

    counts: tuple[int, ...] = ()
    """Categorical: training rows of each level."""

    def frequencies(self) -> NDArray[np.float64]:  # (L,)
        """Share of each level among the training rows that have one."""
        counts = np.asarray(self.counts, dtype=np.float64)
        return counts / max(counts.sum(), 1.0)


@dataclass(frozen=True, slots=True)
class NumericFeature:
    """A number of a row: a numeric column, or one part of a datetime column."""

    column: str

    part: str
    """``value`` for a numeric column; elapsed, month, weekday or hour for a datetime column."""

    scaler: Scaler

    marginal: Marginal

    @property
    def feature(self) -> Feature:
        name = self.column if self.part == VALUE else f"{self.column}:{self.part}"
        return Feature(name, self.column, "numeric", 0)


@dataclass(frozen=True, slots=True)
class CategoricalFeature:
    """A category of a row, which is always a whole column."""

    column: str

    levels: Levels

    missing_share: float

    @property
    def feature(self) -> Feature:
        return Feature(self.column, self.column, "categorical", len(self.levels))

    @property
    def marginal(self) -> Marginal:
        return Marginal(self.missing_share, counts=self.levels.counts)


@dataclass(frozen=True, slots=True)
class Parts:
    """The numbers of one column, by part; all parts are there or not together."""

    values: dict[str, NDArray[Any]]  # each (N,) int64, uint64 or float64
    valid: NDArray[np.bool_]  # (N,)
    infinite: int = 0
    """How many ±inf were set aside as missing."""


def read_parts(column: Column, data: pa.ChunkedArray) -> Parts:
    """Read a numeric or datetime column as the kind it was fitted as."""
    if column.unit is None:
        numbers = as_numbers(data, column.name)
        return Parts({VALUE: numbers.values}, numbers.valid, numbers.infinite)
    instants = as_instants(data, column.name).in_unit(column.unit)
    return Parts(instants.parts(), instants.valid)


def fit_part(
    column: Column, part: str, numbers: NumberSummary, missing_share: float, scaling: Scaling
) -> NumericFeature | None:
    """One part of a column; a calendar part that never varies says nothing and is left out."""
    if part in CALENDAR_PARTS and numbers.low == numbers.high:
        return None
    known = numbers.take_kept()
    scaler = Scaler.fit(known, column.is_integer or column.unit is not None, scaling)
    marginal = Marginal(missing_share, _quantiles(scaler.to_unit(known)))
    return NumericFeature(column.name, part, scaler, marginal)


def _quantiles(unit: NDArray[np.float64]) -> tuple[float, ...]:
    if not len(unit):
        return ()
    grid = np.quantile(unit, np.linspace(0.0, 1.0, MARGINAL_QUANTILES))
    return tuple(grid.tolist())
