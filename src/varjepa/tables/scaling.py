"""One numeric column to a number a network likes, and back; and its bins, which a network predicts.

A value first becomes its *position* in the training range, 0 at the smallest and 1 at the largest
training value; a method then bends positions:

- ``min_max``: the position itself;
- ``standard``: mean 0 and standard deviation 1 over the training rows;
- ``quantile``: nearly uniform on [0, 1], piecewise linear between up to 1,000 quantiles.

Positions outside [0, 1] (values that training never saw) are squeezed smoothly into (−1, 0) and
(1, 2), so that no value, however wild, can dominate a batch; nothing inside is touched.

Decoded values keep the *step* of the training values (whole days, hundreds, cents), where there is
one: each is the smallest training value plus a multiple of it, or has its number of decimals.

How exactly a value returns. Through float64: integers exactly while the column's range is below
2^51 (min_max) or 2^45 (the others). Through float32: within 1e-6 of the range and half a step, and
integers exactly while the range is below 2^22 (min_max, standard) or 2^19 (quantile). A value that
is not on the step returns as the nearest that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from varjepa.errors import InputError

Scaling = Literal["min_max", "standard", "quantile"]
SCALINGS: tuple[Scaling, ...] = get_args(Scaling)

Array = NDArray[np.float64]

MAX_KNOTS = 1000
LINEAR_SHARE = 0.05
"""Share of plain min–max in the quantile curve. Without it the segment that holds an outlier is so
flat that float32 rounding alone moves a value by 3e-5 of the range; with it, by 6e-7 at most."""

MIN_KNOT_GAP = 1e-12
"""Knots closer than this are merged: the slope between them would not be a finite number."""

CONSTANT_POSITION = 0.5
"""Where a column with a single training value sits, whatever value it is later given."""


@dataclass(frozen=True, slots=True)
class Scaler:
    """The fitted map of one numeric feature."""

    low: int | float | None
    """Smallest training value; None if no training row had one. A Python int for integer columns,
    so that differences are taken before anything is rounded to float64."""
    high: int | float | None
    """Largest training value, of the same type as ``low``."""
    is_integer: bool
    """Whether decoded values are rounded to integers."""
    shift: float = 0.0
    """Subtracted from the position (standard)."""
    scale: float = 1.0
    """Divides the shifted position (standard)."""
    knots: tuple[float, ...] = ()
    """Positions of the quantiles, increasing from 0 to 1 (quantile)."""
    heights: tuple[float, ...] = ()
    """What the quantile curve is at each knot, increasing from 0 to 1."""
    step: int | float | None = None
    """All training values are ``low`` plus a multiple of this integer, or multiples of this power
    of ten below 1; None if neither is known. Of the type of ``low``."""

    @classmethod
    def fit(
        cls,
        values: NDArray[Any],
        is_integer: bool,
        scaling: Scaling,
        step: int | float | None = None,
    ) -> Scaler:
        """Fit on the valid training values, int64, uint64 or float64."""
        check_scaling(scaling)
        if not len(values):
            return cls(None, None, is_integer)
        as_number = int if values.dtype.kind in "iu" else float
        plain = cls(as_number(values.min()), as_number(values.max()), is_integer, step=step)
        if scaling == "min_max":
            return plain
        positions = plain._positions(values)
        if scaling == "standard":
            scale = float(positions.std()) or 1.0
            shift = float(positions.mean()) if plain._span() else CONSTANT_POSITION
            return replace(plain, shift=shift, scale=scale)
        if not plain._span():
            return plain
        knots, heights = _quantile_curve(positions)
        return replace(plain, knots=knots, heights=heights)

    @property
    def is_empty(self) -> bool:
        """Whether no training row had a value, so that there is no scale to speak of."""
        return self.low is None

    def to_unit(self, values: NDArray[Any]) -> Array:
        """Values to network scale; always finite."""
        if self.is_empty:
            return np.zeros(len(values))
        position = _squeeze(self._positions(values))
        if self.knots:
            inside = np.interp(position, self.knots, self.heights)
            # the curve ends at (0, 0) and (1, 1) and goes on with slope 1
            return np.where((position < 0) | (position > 1), position, inside)
        return (position - self.shift) / self.scale

    def from_unit(self, unit: Array, clip: bool = True, on_step: bool = True) -> NDArray[Any]:
        """Network scale back to values: int64 or uint64 for integer columns, else float64.

        ``clip`` keeps the result within the training range; without it the squeeze is undone.
        Values are rounded to the step, and to integers in integer columns; not ``on_step`` they are
        float64 as they come, such as the mean of several integers.
        """
        if self.low is None or self.high is None:
            return np.zeros(len(unit))
        if self.knots:
            inside = np.interp(unit, self.heights, self.knots)
            position = np.where((unit < 0) | (unit > 1), unit, inside)
        else:
            position = unit * self.scale + self.shift
        if not self._span():
            position = np.zeros_like(position)
        position = np.clip(position, 0.0, 1.0) if clip else _unsqueeze(position)
        if not on_step:
            plain = replace(self, low=float(self.low), high=float(self.high), step=None)
            return replace(plain, is_integer=False)._floats_at(position, clip)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return _integers_at(position, self.low, self.high, int(self.step or 1))
        return self._floats_at(position, clip)

    def _span(self) -> float:
        """High − low as a float; halved where it would overflow."""
        if self.low is None or self.high is None:
            return 0.0
        if isinstance(self.low, int):
            return float(self.high - self.low)
        half = self._half()
        return self.high * half - self.low * half

    def _half(self) -> float:
        """0.5 for float columns wider than the largest float, else 1: exact either way."""
        if isinstance(self.low, float) and isinstance(self.high, float):
            return 0.5 if math.isinf(self.high - self.low) else 1.0
        return 1.0

    def _positions(self, values: NDArray[Any]) -> Array:
        """0 at low, 1 at high; may be ±inf outside, never NaN."""
        assert self.low is not None
        span, half = self._span(), self._half()
        if not span:
            return np.full(len(values), CONSTANT_POSITION)
        with np.errstate(over="ignore"):
            if isinstance(self.low, int) and _is_exact(values, self.low):
                return _offsets(values, self.low) / span
            return (values.astype(np.float64) * half - float(self.low) * half) / span

    def _rounded(self, values: Array) -> Array:
        assert self.low is not None
        if self.step is None:
            return np.rint(values) if self.is_integer else values
        if self.step < 1:
            return np.round(values, decimals_of_step(self.step))
        return self.low + np.rint((values - self.low) / self.step) * self.step

    def _floats_at(self, position: Array, clip: bool) -> Array:
        assert self.low is not None
        assert self.high is not None
        half = self._half()
        with np.errstate(over="ignore"):
            values = (float(self.low) * half + position * self._span()) / half
            values = self._rounded(values)
        # position 1 may land one rounding above high, and twice the half above the largest float
        ends = (self.low, self.high) if clip else (-np.finfo(np.float64).max, None)
        return np.nan_to_num(np.clip(values, *ends))


def check_scaling(scaling: str) -> None:
    if scaling not in SCALINGS:
        raise InputError(f"scaling must be one of {', '.join(SCALINGS)}, not {scaling!r}")


def step_of_decimals(decimals: int) -> float:
    """0.01 for 2: the float that is written like that."""
    return float(f"1e-{decimals}")


def decimals_of_step(step: float) -> int:
    return round(-math.log10(step))


def _squeeze(position: Array) -> Array:
    """Identity on [0, 1]; outside, tanh of the distance to it, which joins with slope 1."""
    over = np.maximum(position - 1.0, 0.0)
    under = np.maximum(-position, 0.0)
    return np.clip(position, 0.0, 1.0) + np.tanh(over) - np.tanh(under)


def _unsqueeze(position: Array) -> Array:
    """The inverse of the squeeze; its open ends −1 and 2 come back some 18 ranges away."""
    largest = np.nextafter(1.0, 0.0)
    over = np.clip(position - 1.0, 0.0, largest)
    under = np.clip(-position, 0.0, largest)
    return np.clip(position, 0.0, 1.0) + np.arctanh(over) - np.arctanh(under)


def _quantile_curve(positions: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Knots and heights of the curve that makes training positions nearly uniform."""
    shares = np.linspace(0.0, 1.0, min(MAX_KNOTS, len(positions)))
    knots, group = np.unique(np.quantile(positions, shares), return_inverse=True)
    height = np.bincount(group, weights=shares) / np.bincount(group)  # ties share their middle
    far_enough = np.concatenate([[True], np.diff(knots) > MIN_KNOT_GAP])
    far_enough[-1] = True
    far_enough[1:-1] &= knots[-1] - knots[1:-1] > MIN_KNOT_GAP
    knots, height = knots[far_enough], height[far_enough]
    height[0], height[-1] = 0.0, 1.0
    heights = (1.0 - LINEAR_SHARE) * height + LINEAR_SHARE * knots
    heights[-1] = 1.0
    return tuple(knots.tolist()), tuple(heights.tolist())


def _is_exact(values: NDArray[Any], low: int) -> bool:
    """Whether value − low fits in 64 bits and a sign for every value of this type."""
    if values.dtype == np.uint64:
        return low >= 0
    return values.dtype == np.int64 and low < 2**63


def _offsets(values: NDArray[Any], low: int) -> Array:
    """Value − low, rounded once: the difference itself is taken modulo 2^64, hence exact."""
    distance = values.astype(np.uint64) - np.uint64(low % 2**64)
    below = values < low
    return np.where(below, -(np.uint64(0) - distance).astype(np.float64), distance)


def _integers_at(position: Array, low: int, high: int, step: int) -> NDArray[Any]:
    """Low + step · round(position · (high − low) / step), the sum not in float64."""
    is_unsigned = high >= 2**63
    last = (high - low) // step
    steps = np.rint(np.clip(position, 0.0, 1.0) * float(last))
    at_end = steps >= float(last)
    whole = np.where(at_end, 0.0, steps).astype(np.uint64)
    whole = np.where(at_end, np.uint64(last), whole) * np.uint64(step) + np.uint64(low % 2**64)
    values = whole if is_unsigned else whole.view(np.int64)
    outside = (position < 0) | (position > 1)
    if outside.any():
        first, end = (0.0, 2.0**64) if is_unsigned else (-(2.0**63), 2.0**63)
        wide = float(low) + np.rint(position * float(last)) * float(step)
        wide = np.clip(wide, first, np.nextafter(end, 0.0))
        values = np.where(outside, wide.astype(values.dtype), values)
    return values


# --- the values of a feature, in network scale, as bins: single values and intervals between
# quantiles. A piecewise-linear encoding reads their ends, a categorical likelihood gives each a
# probability.

MOST_BINS = 48
"""Quantile intervals of a feature; spikes that cut them may bring up to as many bins again."""

TAILS = (0.001, 0.005, 0.995, 0.999)
"""Quantiles that cut the outermost intervals: a tail may be as long as all the rest."""

TAIL_ROWS = 2000
"""Rows from which on the tails are cut: a bin needs a few of them."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Sorted bins that hold every training value; a bin with low = high is a single value, an atom.

    Neighbouring intervals share an end. Next to an atom, an interval ends at its outermost training
    value, so that it does not reach into the gap next to a spike.

    Examples:
        >>> Bins.fit(np.array([0.0, 0.0, 1.0, 0.5])).low
        (0.0, 0.5, 1.0)
        >>> ages = Bins.fit(np.linspace(0, 1, 1001), most=4)
        >>> ages.knots
        (0.0, 0.25, 0.5, 0.75, 1.0)
        >>> ages.index(np.array([0.1, 0.25, 0.9])).tolist()
        [0, 0, 3]
    """

    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()
    """Where one bin ends and the next begins: halfway between the training values of either side;
    one fewer than there are bins."""
    share: tuple[float, ...] = ()
    """Share of the training values in each bin; together 1."""
    mean: tuple[float, ...] = ()
    """Mean of the training values in each bin."""

    @classmethod
    def fit(cls, unit_values: NDArray[np.float64], most: int = MOST_BINS) -> Bins:
        """Every distinct value where there are at most ``most``; else quantile intervals.

        Of :data:`TAIL_ROWS` and more rows, both outermost intervals are cut at :data:`TAILS`.
        Then a value that at least 1/most of the rows have is an atom, and so is a repeated value
        that is alone in its interval.
        """
        if not len(unit_values):
            return cls()
        values, counts = np.unique(unit_values, return_counts=True)
        if len(values) <= most:
            ranges = [(i, i, float(v)) for i, v in enumerate(values)]
        else:
            ranges = _quantile_ranges(values, counts, most)
        groups = [slice(first, last + 1) for first, last, _ in ranges]
        high = [float(values[last]) for _, last, _ in ranges]
        low = [start for _, _, start in ranges]
        return cls(
            low=tuple(low),
            high=tuple(high),
            upper=tuple(
                _middle(float(values[left[1]]), float(values[right[0]]))
                for left, right in pairwise(ranges)
            ),
            share=tuple(float(counts[g].sum() / len(unit_values)) for g in groups),
            mean=tuple(
                float(np.clip(np.average(values[g], weights=counts[g]), start, end))
                for g, start, end in zip(groups, low, high, strict=True)
            ),
        )

    def __len__(self) -> int:
        return len(self.low)

    def index(self, x: NDArray[Any]) -> NDArray[np.int64]:  # like x
        """The bin of each value; values between two bins or outside belong to the nearer one."""
        return np.searchsorted(np.array(self.upper), x).astype(np.int64)

    @property
    def knots(self) -> tuple[float, ...]:
        """All distinct ends of bins, increasing; empty if there is no bin."""
        return tuple(sorted({*self.low, *self.high}))


def _quantile_ranges(
    values: NDArray[np.float64], counts: NDArray[np.int64], most: int
) -> list[tuple[int, int, float]]:
    """First and last distinct value of each bin, and where the bin begins."""
    rows = counts.cumsum()
    is_spike = counts * most >= rows[-1]
    quantiles = np.linspace(0, rows[-1], most + 1)
    if rows[-1] >= TAIL_ROWS:
        quantiles = np.append(quantiles, rows[-1] * np.array(TAILS))
    at_quantile = np.searchsorted(rows, quantiles)
    places = np.union1d(at_quantile, np.flatnonzero(is_spike)).tolist()
    ranges = [(0, 0, float(values[0]))] if is_spike[0] else []
    for left, right in pairwise(places):
        first = left if left == 0 and not is_spike[0] else left + 1
        last = right - 1 if is_spike[right] else right
        is_repeated_value = first == last and counts[first] > 1
        if first <= last:
            start = first if is_spike[left] or is_repeated_value else left
            ranges.append((first, last, float(values[start])))
        if is_spike[right]:
            ranges.append((right, right, float(values[right])))
    return ranges


def _middle(left: float, right: float) -> float:
    """Between two floats, below the right one even if they are neighbours."""
    middle = left + (right - left) / 2
    if not math.isfinite(middle):
        middle = left / 2 + right / 2
    return min(max(middle, left), math.nextafter(right, -math.inf))
