"""What suspicious cells should be: repair, interval or levels, confidence.

    confidence = P(the cell is wrong) · P(the repair is right | the cell is wrong)

The first factor makes a probability of the log odds, with the share of flagged cells as the prior.
The second is the model's; of a number, the probability within a quarter of the column's spread. A
number that is far away only by its sign or decimal point is repaired by that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from varjepa.audit.odds import MIN_LOG_P, SPREADS
from varjepa.audit.scoring import CellScorer, Details, numbers_in_text
from varjepa.audit.text import OTHER_CAUSE, plain_number
from varjepa.estimators.cells import decode_values
from varjepa.tables.codec import EncodedTable
from varjepa.tables.columns import NumericFeature, category_text, read_parts
from varjepa.tables.values import NANOSECONDS, is_text, shown_text, value_type

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

FORM_CONFIDENCE = 0.99
"""That a number in another form means the number."""

COMMON = 0.5
"""Share of a number's column from which one value is its usual one. It is the right repair less
often than the model says: the true value of a wrong cell with an unusual one is often unusual too.
On six tables of benchmarks/ground with planted errors, in no committed run, it was right in .49 of
the wrong cells where the model said .77; so its confidence is halved."""

DETAILED = 1000
"""Cells with a distribution on the page."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Distribution of a number or date, which is in milliseconds since 1970."""

    edges: tuple[float, ...]
    masses: tuple[float, ...]
    value: float | None
    repair: float
    interval: tuple[float, float]


@dataclass(slots=True)
class CellDescriptions:
    """Of every listed cell: what it should be."""

    repair: list[str | None]
    lower: list[str | None]
    upper: list[str | None]
    confidence: list[float | None]
    levels: list[tuple[tuple[str, float], ...]]
    typed: dict[str, list[tuple[int, pa.Scalar]]] = field(default_factory=dict)
    """of each column: place in the list and repair in the column's own type"""
    histograms: dict[int, Histogram] = field(default_factory=dict)
    """by place in the list"""


DESCRIBED_ROWS = 1024
"""Rows whose distributions are in memory at a time."""


@dataclass(frozen=True, slots=True)
class WrongCells:
    """How probable it is that a listed cell is wrong."""

    log_odds: Floats
    p_values: Floats
    certain: Bools
    """wrong by a rule"""
    share: float
    """of all cells that are wrong"""

    def by_odds(self, i: int, excess: float = 0.0) -> float:
        """From the log odds, less an ``excess`` that is not to be trusted."""
        prior = math.log(self.share / (1.0 - self.share))
        odds = min(max(float(self.log_odds[i]) - excess + prior, -500.0), 500.0)
        return 1.0 if self.certain[i] else 1.0 / (1.0 + math.exp(-odds))

    def by_p(self, i: int) -> float:
        """From the p-value, by the bound of Sellke, Bayarri and Berger: odds of −e · p · log p.

        More confident than the log odds, for errors that their form gives away. A column's p-values
        do not know its genuine rare values.
        """
        p = min(max(float(self.p_values[i]), 1e-300), math.exp(-1.0))
        return 1.0 / (1.0 - math.e * p * math.log(p) * (1.0 - self.share) / self.share)


def describe_cells(
    scorer: CellScorer,
    picked: pa.Table,
    rows: EncodedTable,
    numbers: Integers,
    listed: Integers,
    wrong: WrongCells,
) -> CellDescriptions:
    """Repairs of the listed cells; ``picked`` and ``rows`` are the rows with these numbers."""
    n = len(listed)
    found = CellDescriptions([None] * n, [None] * n, [None] * n, [None] * n, [()] * n)
    places = np.searchsorted(numbers, listed[:, 0])
    order = np.argsort(places, kind="stable")
    needed = np.unique(places)
    for begin in range(0, len(needed), DESCRIBED_ROWS):
        here = needed[begin : begin + DESCRIBED_ROWS]
        low, high = np.searchsorted(places[order], [here[0], here[-1] + 1])
        mine = order[low:high]
        columns, at = listed[mine, 1], np.searchsorted(here, places[mine])
        asked = {scorer.names[j]: at[columns == j] for j in np.unique(columns)}
        details = scorer.details(rows.take(torch.as_tensor(here)), asked)
        block = picked.take(pa.array(here))
        _Description(scorer, block, details, wrong, found).add(mine, columns, at)
    return found


class _Description:
    """Describes listed cells of one block of rows."""

    def __init__(
        self,
        scorer: CellScorer,
        block: pa.Table,
        details: Details,
        wrong: WrongCells,
        found: CellDescriptions,
    ) -> None:
        self.scorer, self.block, self.details = scorer, block, details
        self.wrong, self.found, self.codec = wrong, found, scorer.codec

    def add(self, listed: Integers, columns: Integers, places: Integers) -> None:
        codes = np.zeros((self.block.num_rows, len(self.codec.categorical)), dtype=np.int64)
        for j in np.unique(columns):
            name = self.scorer.names[j]
            if name in self.scorer.places:
                mine = columns == j
                self._levels(name, listed[mine], places[mine], codes)
        d = self.details
        best, lower, upper = (
            decode_values(self.codec, side, codes, rounding)
            for side, rounding in ((d.median, np.rint), (d.lower, np.floor), (d.upper, np.ceil))
        )
        for j in np.unique(columns):
            name, mine = self.scorer.names[j], columns == j
            texts = shown_text(best[name])
            repairs = {
                int(i): (best[name][int(place)], texts[int(place)].as_py())
                for i, place in zip(listed[mine], places[mine], strict=True)
            }
            if name not in self.scorer.places:
                ends = [shown_text(side[name]).to_pylist() for side in (lower, upper)]
                self._numbers(name, listed[mine], places[mine], ends, repairs)
            for i, (scalar, text) in repairs.items():
                if self.found.confidence[i] is not None and scalar.is_valid:  # None: no other level
                    self.found.typed.setdefault(name, []).append((i, scalar))
                    self.found.repair[i] = text

    def _levels(self, name: str, listed: Integers, places: Integers, codes: Integers) -> None:
        column = self.codec.schema.columns[self.codec.schema.names.index(name)]
        j = self.scorer.places[name]
        levels = self.codec.categorical[j].levels
        text = category_text(self.block[name], column.type, levels)
        own, texts = levels.encode(text), text.to_pylist()
        close = self.scorer.meanings(name, [texts[place] for place in places])
        named = levels.texts.to_pylist()
        for i, place in zip(listed, places, strict=True):
            p = self.details.levels[j][place].copy()
            likeness = close[texts[place]][0] if texts[place] in close else None
            excess = 0.0
            if own[place]:
                # a network that saw so many rows does not know of anything rarer than one in them
                nll = min(-math.log(max(p[own[place] - 1], 1e-300)), -MIN_LOG_P)
                excess = max(0.0, nll - math.log(sum(levels.counts)))
                p[own[place] - 1] = 0.0
            if likeness is not None:
                p = p * (np.exp(likeness) + np.exp(OTHER_CAUSE))
            if not p.sum() > 0.0:
                continue
            p /= p.sum()
            best = np.argsort(-p)[:3]
            codes[place, j] = best[0] + 1
            is_typing_error = likeness is not None and np.isfinite(likeness[best[0]])
            wrong = self.wrong.by_p(i) if is_typing_error else self.wrong.by_odds(i, excess)
            self.found.confidence[i] = float(wrong * p[best[0]])
            self.found.levels[i] = tuple((named[k], float(p[k])) for k in best if p[k] > 0.0)

    def _numbers(
        self,
        name: str,
        listed: Integers,
        places: Integers,
        ends: list[list[str | None]],
        repairs: dict[int, tuple[pa.Scalar, str | None]],
    ) -> None:
        """Confidence, interval and histogram of a column's cells; repairs that their form gives."""
        found, d = self.found, self.details
        feature = self.scorer.features[name][0]
        column = self.codec.schema.columns[self.codec.schema.names.index(name)]
        number, raw = self.codec.numeric[feature], self.block[name]
        is_textual = is_text(value_type(raw.type))
        given = numbers_in_text(raw)[0] if column.kind == "numeric" and is_textual else raw
        parts = read_parts(column, given)
        values = next(iter(parts.values.values())).astype(np.float64)
        far = np.zeros(len(values))
        if column.kind == "numeric" and name in self.scorer.tails:
            far = np.where(parts.valid, self.scorer.tails[name].distance(values), 0.0)
        has_bins = bool(d.bins.shape[-1] and len(number.bins))
        axis = _Axis.of(number, column.unit, has_bins)
        low_ends, high_ends = (axis(np.array(s)) for s in (number.bins.low, number.bins.high))
        median, *interval = (axis(side[:, feature]) for side in (d.median, d.lower, d.upper))
        for i, place in zip(listed.tolist(), places.tolist(), strict=True):
            found.lower[i], found.upper[i] = ends[0][place], ends[1][place]
            wrong = self.wrong.by_odds(i)
            found.confidence[i] = wrong * self._near(number, place, feature)
            text = raw[place].as_py() if is_textual else None
            meant = plain_number(text) if isinstance(text, str) else None
            if meant is not None and meant != text:
                found.confidence[i] = FORM_CONFIDENCE
                repairs[i] = pa.scalar(meant), meant
                continue
            if not has_bins:
                continue
            masses = d.bins[place, feature, : len(number.bins)].astype(np.float64)
            repair = median[place]
            if far[place] > 0.0:
                half = SPREADS * self.scorer.tails[name].spread
                slip = find_slip(
                    values[place], low_ends, high_ends, masses, half, number.scaler.is_integer
                )
                if slip is not None:
                    repair, found.confidence[i] = slip[0], wrong * slip[1]
                    scalar = pa.scalar(repair).cast(repairs[i][0].type, safe=False)
                    repairs[i] = scalar, shown_text(pa.chunked_array([[scalar.as_py()]]))[0].as_py()
            if i < DETAILED:
                value = values[place] * axis.factor if parts.valid[place] else None
                low, high = (float(side[place]) for side in interval)
                found.histograms[i] = Histogram(
                    axis.edges, tuple(masses.tolist()), value, float(repair), (low, high)
                )

    def _near(self, number: Any, place: int, feature: int) -> float:
        """Probability that the true number is near the median."""
        sure = float(self.details.confidence[place, feature])
        if len(number.bins):
            median = self.details.median[[place], feature].astype(np.float64)
            if number.bins.share[int(number.bins.index(median)[0])] >= COMMON:
                sure /= 2.0
        return sure


@dataclass(frozen=True, slots=True)
class _Axis:
    """Values of a number or date as the page draws them: dates in milliseconds."""

    number: NumericFeature
    factor: float
    edges: tuple[float, ...] = ()

    @classmethod
    def of(cls, number: NumericFeature, unit: Any, has_bins: bool) -> _Axis:
        factor = 1.0 if unit is None else NANOSECONDS[unit] / NANOSECONDS["ms"]
        plain, bins = cls(number, factor), number.bins
        if not has_bins:
            return plain
        edges = plain(np.array([bins.low[0], *bins.upper, bins.high[-1]]))
        return cls(number, factor, tuple(edges.tolist()))

    def __call__(self, unit: NDArray[Any]) -> Floats:
        values = self.number.scaler.from_unit(unit.astype(np.float64), on_step=False)
        return values.astype(np.float64) * self.factor


# --- slips of a number's sign or decimal point

SLIPS = (-1, 10, 100, 1000, 0.1, 0.01, 0.001)
"""What a slip multiplies a number by: its sign or its decimal point is wrong."""

MAGNITUDES = 1e6
"""Orders of magnitude that a number may have which is wrong for another reason."""


def find_slip(
    value: float, low: Floats, high: Floats, masses: Floats, half: float, is_integer: bool
) -> tuple[float, float] | None:
    """The number that a slip made into this value, and how probable that is; None: another cause.

    Half of the numbers that are far from their column are taken as slips, all equally probable. The
    others may have any sign and magnitude, so the density of log |value| is even. That of a slip is
    the model's at the number that was meant, which it shifts: so the two compare in any unit.
    ``low``, ``high`` and ``masses`` are those of the bins, of which some are single values; the
    density is measured from ``half`` below to ``half`` above the number.

    Examples:
        >>> edges, masses = np.array([30.0, 40.0, 50.0, 60.0]), np.array([0.1, 0.8, 0.1])
        >>> find_slip(497.0, edges[:-1], edges[1:], masses, 1.0, is_integer=False)[0]
        49.7
        >>> find_slip(90.0, edges[:-1], edges[1:], masses, 1.0, is_integer=False) is None
        True
    """
    even = 1.0 / (2.0 * math.log(MAGNITUDES))
    found = []
    for slip in SLIPS:
        meant = float(Decimal(repr(float(value))) / Decimal(str(slip)))
        is_near = low[0] - half <= meant <= high[-1] + half
        if not is_near or (is_integer and not meant.is_integer()):
            continue
        begin, end = np.maximum(low, meant - half), np.minimum(high, meant + half)
        width = np.where(low < high, high - low, 1.0)
        share = np.where(low < high, (end - begin).clip(0.0) / width, begin <= end)
        density = float(masses @ share) / max(2.0 * half, 1e-300)
        found.append((abs(meant) * density / (even * len(SLIPS)), meant))
    odds, meant = max(found, default=(0.0, 0.0))
    return (meant, odds / (1.0 + sum(o for o, _ in found))) if odds > 1.0 else None
