"""What suspicious cells should be: repair, interval or levels, confidence."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from varjepa.audit.scoring import CellScorer, Details, numbers_in_text
from varjepa.audit.text import OTHER_CAUSE, plain_number
from varjepa.estimators.cells import decode_values
from varjepa.tables.codec import EncodedTable
from varjepa.tables.columns import category_text, read_parts
from varjepa.tables.values import as_text, is_text, value_type

Integers = NDArray[np.int64]

FORM_CONFIDENCE = 0.99
"""That a number in another form means the number."""

DETAILED = 1000
"""Cells with a distribution on the page."""


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
    histograms: dict[
        int, tuple[tuple[float, ...], tuple[float, ...], float | None, float | None]
    ] = field(default_factory=dict)
    """by place in the list: edges, masses, place of the value and of the repair"""


DESCRIBED_ROWS = 1024
"""Rows whose distributions are in memory at a time."""


def describe_cells(
    scorer: CellScorer, picked: pa.Table, rows: EncodedTable, numbers: Integers, listed: Integers
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
        _Description(scorer, block, details, found).add(
            mine, listed[mine, 1], np.searchsorted(here, places[mine])
        )
    return found


class _Description:
    """Describes listed cells of one block of rows."""

    def __init__(
        self, scorer: CellScorer, block: pa.Table, details: Details, found: CellDescriptions
    ) -> None:
        self.scorer, self.block, self.details, self.found = scorer, block, details, found
        self.codec = scorer.codec

    def add(self, listed: Integers, columns: Integers, places: Integers) -> None:
        codes = np.zeros((self.block.num_rows, len(self.codec.categorical)), dtype=np.int64)
        for j in np.unique(columns):
            name = self.scorer.names[j]
            if name in self.scorer.places:
                mine = columns == j
                self._levels(name, listed[mine], places[mine], codes)
        d = self.details
        best, lower, upper = (
            decode_values(self.codec, side, codes) for side in (d.median, d.lower, d.upper)
        )
        for j in np.unique(columns):
            name, mine = self.scorer.names[j], columns == j
            texts = [as_text(t[name]).to_pylist() for t in (best, lower, upper)]
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
            if own[place]:
                p[own[place] - 1] = 0.0
            if texts[place] in close:
                p = p * (np.exp(close[texts[place]][0]) + np.exp(OTHER_CAUSE))
            if not p.sum() > 0.0:
                continue
            p /= p.sum()
            best = np.argsort(-p)[:3]
            codes[place, j] = best[0] + 1
            self.found.confidence[i] = float(p[best[0]])
            self.found.levels[i] = tuple((named[k], float(p[k])) for k in best if p[k] > 0.0)

    def _number(
        self, name: str, i: int, place: int, scalar: pa.Scalar, texts: list[list[str | None]]
    ) -> pa.Scalar:
        feature = self.scorer.features[name][0]
        self.found.lower[i], self.found.upper[i] = texts[1][place], texts[2][place]
        self.found.confidence[i] = float(self.details.confidence[place, feature])
        number, raw = self.codec.numeric[feature], self.block[name][int(place)]
        if is_text(value_type(raw.type)) and isinstance(raw.as_py(), str):
            meant = plain_number(raw.as_py())
            if meant is not None and meant != raw.as_py():
                self.found.confidence[i] = FORM_CONFIDENCE
                texts[0][place] = meant
                return pa.scalar(meant)
        if i < DETAILED and self.details.bins.shape[-1] and len(number.bins):
            bins = number.bins
            ends = np.array([bins.low[0], *bins.upper, bins.high[-1]])
            edges = number.scaler.from_unit(ends, on_step=False).astype(np.float64)
            masses = self.details.bins[place, feature, : len(bins)].astype(np.float64)
            value, repair = self._places(name, place, feature)
            self.found.histograms[i] = tuple(edges.tolist()), tuple(masses.tolist()), value, repair
        return scalar

    def _places(self, name: str, place: int, feature: int) -> tuple[float | None, float]:
        """Of the value and of the repair on the histogram's axis."""
        column = self.codec.schema.columns[self.codec.schema.names.index(name)]
        cell = self.block[name].slice(int(place), 1)
        if column.kind == "numeric" and is_text(value_type(cell.type)):
            cell, _ = numbers_in_text(cell)
        parts = read_parts(column, cell)
        value = float(next(iter(parts.values.values()))[0]) if parts.valid[0] else None
        median = self.details.median[[place], feature].astype(np.float64)
        repair = self.codec.numeric[feature].scaler.from_unit(median, on_step=False)
        return value, float(repair[0])
