"""The values of one numeric feature as bins: single values and intervals between quantiles.

A piecewise-linear encoding reads their ends, a categorical likelihood gives each a probability.
Values are in network scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    value, so that it does not reach into the gap beside a spike.

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
