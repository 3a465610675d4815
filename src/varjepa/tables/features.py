"""The model tokens of a table, and how each is fitted on a column's training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.tables.instants import CALENDAR_PARTS, as_instants
from varjepa.tables.levels import Levels
from varjepa.tables.scaling import Scaler, Scaling
from varjepa.tables.schema import Column
from varjepa.tables.summaries import NumberSummary
from varjepa.tables.values import as_numbers

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
