"""Cells of a table: best guesses, intervals, probabilities of levels; values to draw from."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from varjepa.errors import InputError
from varjepa.estimators.frames import like_input
from varjepa.tables import TableCodec
from varjepa.tables.codec import EncodedTable
from varjepa.tables.columns import VALUE
from varjepa.tables.messages import quoted, suggestion
from varjepa.tables.scaling import Bins, Scaler

Asked = Literal["missing", "all"]
"""Which cells are predicted."""

Rounding = Callable[[NDArray[Any]], NDArray[Any]]
"""np.rint, np.floor or np.ceil"""


@dataclass(frozen=True, slots=True, repr=False)
class CellPredictions:
    """Predictions of cells: frames of the caller's library with the table's own columns in order.

    A cell that was not asked for is missing in all of them.
    """

    best: Any
    """the mean of a number or date, the most likely level of a category"""
    lower: Any
    """lower ends of the intervals of numbers and dates; missing for categories"""
    upper: Any
    """upper ends. A mean may lie outside: that of a column that is 0 but for a few large values"""
    probability: Any
    """probability of the best level; NaN for numbers and dates"""
    coverage: float
    """share of the cells that the intervals are calibrated to hold"""
    _levels: Mapping[str, tuple[list[str], NDArray[np.float32]]]
    """of each category: its levels, and their probabilities (n, L)"""
    _table: Any
    """what was asked about, as it came"""
    _asked: int
    """cells"""

    def __repr__(self) -> str:
        cells = f"{self._asked:,} cell{'s' * (self._asked != 1)}"
        return (
            f"CellPredictions({cells}; .best, .lower and .upper at coverage {self.coverage:g}, "
            ".probability, .levels(column))"
        )

    def levels(self, column: str) -> Any:
        """Probabilities of all levels of a categorical column: a frame with a column per level.

        Levels are texts here: "true" stands for True, "10" for 10.
        """
        column = str(column)  # a pandas frame may have integers for names
        if column not in self._levels:
            close = suggestion(column, self._levels)
            raise InputError(f"{quoted(column)} is no categorical column of the model{close}")
        names, probabilities = self._levels[column]
        by_level = {name: pa.array(p) for name, p in zip(names, probabilities.T, strict=True)}
        return like_input(pa.table(by_level), self._table, with_types=False)


def cell_predictions(
    codec: TableCodec,
    table: pa.Table,
    X: Any,
    statistics: NDArray[np.float32],
    coverage: float,
    cells: Asked,
) -> CellPredictions:
    """Predictions from what :func:`varjepa.models.cells.cell_statistics` computed for each row."""
    numeric, rows = len(codec.numeric), table.num_rows
    mean, lower, upper = (statistics[:, i * numeric : (i + 1) * numeric] for i in range(3))
    asked = codec.missing_cells(table)
    if cells == "all":
        asked = {name: np.ones(rows, dtype=bool) for name in asked}
    levels: dict[str, tuple[list[str], NDArray[np.float32]]] = {}
    codes = np.zeros((rows, len(codec.categorical)), dtype=np.int64)
    certain = {name: np.ones(rows, np.float32) for name in _constant_texts(codec)}
    place = 3 * numeric
    for j, category in enumerate(codec.categorical):
        count = len(category.levels)
        p = np.where(asked[category.column][:, None], statistics[:, place : place + count], np.nan)
        place += count
        levels[category.column] = category.levels.texts.to_pylist(), p.astype(np.float32)
        known = np.where(np.isnan(p), -1.0, p)
        if count:
            codes[:, j] = np.where(known.max(1) >= 0.0, 1 + known.argmax(1), 0)
            certain[category.column] = np.where(codes[:, j] > 0, known.max(1), np.nan)

    def shown(decoded: pa.Table, left_out: Collection[str] = ()) -> Any:
        columns = {
            name: pa.nulls(rows, column.type)
            if name in left_out or name not in asked
            else decoded[name].take(pa.array(np.arange(rows), mask=~asked[name]))
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        return like_input(pa.table(columns), X)

    def ends(values: NDArray[np.float32], outwards: Rounding) -> Any:
        return shown(decode_values(codec, values, codes, outwards), left_out=certain)

    nothing = np.full(rows, np.nan, np.float32)
    probability = {
        name: pa.array(np.where(asked[name], certain[name], np.nan) if name in certain else nothing)
        for name in table.column_names
    }
    return CellPredictions(
        best=shown(codec.decode(mean, codes, on_step=False)),
        lower=ends(lower, np.floor),
        upper=ends(upper, np.ceil),
        probability=like_input(pa.table(probability), X, with_types=False),
        coverage=coverage,
        _levels=levels,
        _table=X,
        _asked=sum(int(mask.sum()) for mask in asked.values()),
    )


def _constant_texts(codec: TableCodec) -> list[str]:
    """Categories that have one level only."""
    return [
        name for name, left_out in codec.schema.left_out.items() if isinstance(left_out.value, str)
    ]


# --- float32 values as a table


def decode_values(
    codec: TableCodec,
    num: NDArray[np.float32],
    cat: NDArray[np.int64],
    rounding: Rounding = np.rint,
) -> pa.Table:
    """Values, not means, as a table: with no more digits than the networks' float32 can tell apart.

    So a value that many rows have comes back as it is, not as 1.2e-8 instead of 0. Ends of
    intervals are rounded outwards: a value of more digits that is an end is inside.
    """
    table = codec.decode(num, cat)
    for number in codec.numeric:
        kind, digits = table.schema.field(number.column).type, decimals(number.scaler)
        if number.part == VALUE and pa.types.is_floating(kind) and digits is not None:
            values = table[number.column].to_numpy().astype(np.float64)  # 10^digits fits in it
            rounded = pa.array(round_to(values, digits, rounding), from_pandas=True)
            place = table.column_names.index(number.column)
            table = table.set_column(place, number.column, rounded.cast(kind))
    return table


def round_to(values: NDArray[Any], digits: int, rounding: Rounding) -> NDArray[np.float64]:
    """Values with so many digits behind the point; a shorter number that is meant stays itself."""
    if rounding is np.rint:
        return np.round(values, digits)
    short, unit = np.round(values, digits - 2), 10.0**digits
    is_meant = np.abs(short - values) <= 1.0 / unit
    return np.where(is_meant, short, np.round(rounding(values * unit) / unit, digits))


def decimals(scaler: Scaler) -> int | None:
    """Digits behind the point that float32 in network scale resolves; None: a step rounds."""
    if scaler.is_empty or scaler.step is not None:
        return None
    assert scaler.low is not None
    assert scaler.high is not None
    span = float(scaler.high) - float(scaler.low)
    step = span * FLOAT32_STEP
    if not 0.0 < step < math.inf:  # a range of subnormal numbers has no step
        return None
    digits = math.floor(-math.log10(step))
    return digits if digits <= MOST_DIGITS else None


MOST_DIGITS = 300
"""Values of more digits behind the point are not rounded: float64 ends at 10^308."""

FLOAT32_STEP = 2.0**-22
"""Distance of values, in ranges of their column, that float32 in network scale tells apart."""


# --- what the training rows alone say of a cell, for rows that are drawn


def draw_marginals(
    codec: TableCodec, n: int, generator: torch.Generator, from_bins: bool
) -> EncodedTable:
    """Independent values of every feature, as they are distributed in the training rows.

    ``from_bins``: numbers from their bins, so that atoms stay what they are; else from quantiles.
    """
    uniform = torch.rand(n, len(codec.features), generator=generator, device=generator.device)
    draws = uniform.cpu().double().numpy()  # (n, D)
    numeric = len(codec.numeric)
    columns = [
        _level(marginal.frequencies(), draws[:, j])
        if not marginal.quantiles
        else _value(codec.numeric[j].bins, draws[:, j])
        if from_bins
        else _quantile(marginal.quantiles, draws[:, j])
        for j, marginal in enumerate(codec.marginals)
    ]
    num = np.column_stack([*columns[:numeric], np.empty((n, 0))])
    cat = np.column_stack([*columns[numeric:], np.empty((n, 0))])
    device = generator.device
    return EncodedTable(
        torch.as_tensor(num, dtype=torch.float32, device=device),
        torch.as_tensor(cat, dtype=torch.long, device=device),
        None,
    )


def numeric_limits(codec: TableCodec, device: torch.device) -> tuple[Tensor, Tensor]:
    """Smallest and largest training value of every numeric feature, in network scale."""
    ends = [
        (m.quantiles[0], m.quantiles[-1]) if m.quantiles else (0.0, 0.0) for m in codec.marginals
    ]
    both = torch.tensor(ends[: len(codec.numeric)], dtype=torch.float32, device=device).view(-1, 2)
    return both[:, 0], both[:, 1]


def _quantile(quantiles: tuple[float, ...], uniform: np.ndarray) -> np.ndarray:
    return np.interp(uniform, np.linspace(0, 1, len(quantiles)), quantiles)


def _value(bins: Bins, uniform: np.ndarray) -> np.ndarray:
    """Quantiles of a number that is spread evenly inside each of its bins."""
    ends = np.cumsum(bins.share)
    index = np.searchsorted(ends[:-1], uniform, side="right")
    low, high = np.array(bins.low)[index], np.array(bins.high)[index]
    share = np.array(bins.share)[index]
    return low + (high - low) * np.clip((uniform - ends[index]) / share + 1.0, 0.0, 1.0)


def _level(frequencies: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Level codes start at 1; a feature without levels stays MISSING."""
    if not len(frequencies):
        return np.zeros(len(uniform))
    return 1 + np.searchsorted(np.cumsum(frequencies)[:-1], uniform, side="right")
