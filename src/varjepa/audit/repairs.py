"""What suspicious cells should be: repair, interval or levels, confidence.

    confidence = P(the cell is wrong) · P(the repair is right | the cell is wrong)

The first factor makes a probability of the log odds, with the share of flagged cells as the prior.
The second is the model's; of a number, the probability within a quarter of the column's spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from varjepa.audit.odds import MIN_LOG_P
from varjepa.audit.scoring import CellScorer, Details, numbers_in_text
from varjepa.audit.text import OTHER_CAUSE, plain_number
from varjepa.estimators.cells import decode_values
from varjepa.tables.codec import EncodedTable
from varjepa.tables.columns import category_text, read_parts
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
        details = scorer.details(rows.take(torch.as_tensor(here)))
        block = picked.take(pa.array(here))
        _Description(scorer, block, details, wrong, found).add(
            mine, listed[mine, 1], np.searchsorted(here, places[mine])
        )
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
            texts = [shown_text(t[name]).to_pylist() for t in (best, lower, upper)]
            for i, place in zip(listed[mine], places[mine], strict=True):
                if self.found.confidence[i] is None and name in self.scorer.places:
                    continue  # there is no other level
                scalar = best[name][int(place)]
                if name not in self.scorer.places:
                    scalar = self._number(name, i, place, scalar, texts)
                if scalar.is_valid:
                    self.found.typed.setdefault(name, []).append((int(i), scalar))
                    self.found.repair[i] = texts[0][place]

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

    def _number(
        self, name: str, i: int, place: int, scalar: pa.Scalar, texts: list[list[str | None]]
    ) -> pa.Scalar:
        feature = self.scorer.features[name][0]
        self.found.lower[i], self.found.upper[i] = texts[1][place], texts[2][place]
        number, raw = self.codec.numeric[feature], self.block[name][int(place)]
        sure = self.wrong.by_odds(i) * float(self.details.confidence[place, feature])
        if len(number.bins):
            median = self.details.median[[place], feature].astype(np.float64)
            if number.bins.share[int(number.bins.index(median)[0])] >= COMMON:
                sure /= 2.0
        self.found.confidence[i] = sure
        if is_text(value_type(raw.type)) and isinstance(raw.as_py(), str):
            meant = plain_number(raw.as_py())
            if meant is not None and meant != raw.as_py():
                self.found.confidence[i] = FORM_CONFIDENCE
                texts[0][place] = meant
                return pa.scalar(meant)
        if i < DETAILED and self.details.bins.shape[-1] and len(number.bins):
            self.found.histograms[i] = self._histogram(name, place, feature)
        return scalar

    def _histogram(self, name: str, place: int, feature: int) -> Histogram:
        column = self.codec.schema.columns[self.codec.schema.names.index(name)]
        number, d = self.codec.numeric[feature], self.details
        factor = 1.0 if column.unit is None else NANOSECONDS[column.unit] / NANOSECONDS["ms"]

        def on_axis(unit: Any) -> list[float]:
            values = number.scaler.from_unit(np.array(unit, dtype=np.float64), on_step=False)
            return [float(value) * factor for value in values]

        cell = self.block[name].slice(int(place), 1)
        if column.kind == "numeric" and is_text(value_type(cell.type)):
            cell, _ = numbers_in_text(cell)
        parts = read_parts(column, cell)
        value = float(next(iter(parts.values.values()))[0]) * factor if parts.valid[0] else None
        repair, *ends = on_axis([side[place, feature] for side in (d.median, d.lower, d.upper)])
        bins = number.bins
        edges = on_axis([bins.low[0], *bins.upper, bins.high[-1]])
        masses = d.bins[place, feature, : len(bins)].astype(np.float64)
        return Histogram(tuple(edges), tuple(masses.tolist()), value, repair, (ends[0], ends[1]))
