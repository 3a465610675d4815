"""What an audit found: frames of cells, rows and columns, repairs, files, a page."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from varjepa.audit.page_data import CellDetail, PageColumn, PageData, PageRow
from varjepa.audit.scoring import CellScorer, Details, Scores, numbers_in_text
from varjepa.audit.text import OTHER_CAUSE, plain_number
from varjepa.errors import InputError
from varjepa.estimators.cells import decode_values
from varjepa.estimators.frames import as_kind, frame_kind, like_input
from varjepa.files import make_folder
from varjepa.metrics.discoveries import MIN_P
from varjepa.tables import TableFiles, write_table
from varjepa.tables.codec import EncodedTable
from varjepa.tables.columns import category_text, read_parts
from varjepa.tables.values import as_text, is_supported, is_text, value_type

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FORM_CONFIDENCE = 0.99
"""That a number in another form means the number."""

DETAILED = 1000
"""Cells with a distribution on the page."""

MOST_DETAILS = 20_000
"""Flagged cells that the page marks, with their repairs."""

FULL_COLOUR = 6.0
"""−log10 of the p-value that has the page's strongest colour."""

FRAMES = ("cells", "rows", "columns")

KINDS = {"numeric": "number", "categorical": "category", "datetime": "date"}


# --- columns


@dataclass(slots=True)
class ColumnFacts:
    """Sums over one column's cells."""

    name: str
    kind: str
    entropy: float
    """of the column itself, the mean over a date's parts"""
    features: list[int]
    shares: list[Floats] | None
    """of bins or levels in the training rows; None: drift is not measured"""
    scorer: CellScorer = field(repr=False)
    cells: int = 0
    seen: int = 0
    """cells of which the model says how likely they are"""
    nll: float = 0.0
    flagged: int = 0
    counts: list[Floats] = field(default_factory=list)

    @classmethod
    def of(cls, scorer: CellScorer, name: str, with_drift: bool) -> ColumnFacts:
        features, codec = scorer.features[name], scorer.codec
        numeric = len(codec.numeric)
        shares = [
            np.array(codec.numeric[j].bins.share)
            if j < numeric
            else np.array([0.0, *codec.categorical[j - numeric].marginal.frequencies()])
            for j in features
        ]
        entropies = [float(-(s * np.log(np.maximum(s, 1e-300))).sum()) for s in shares]
        kind = KINDS[scorer.kinds[name]]
        found = cls(
            name, kind, float(np.mean(entropies)), features, shares if with_drift else None, scorer
        )
        found.counts = [np.zeros(len(share)) for share in shares]
        return found

    def add(self, scores: Scores, column: int, p: Floats) -> None:
        """Count a block's cells of this column."""
        known, nll = ~np.isnan(p), scores.nll[:, column]
        self.cells += int(known.sum())
        self.seen += int((~np.isnan(nll)).sum())
        self.nll += float(np.nansum(nll))
        if self.shares is None:
            return
        codec, numeric = self.scorer.codec, len(self.scorer.codec.numeric)
        for counts, j in zip(self.counts, self.features, strict=True):
            if j < numeric:
                unit = scores.numbers[:, j].astype(np.float64)
                codes = codec.numeric[j].bins.index(unit[~np.isnan(unit)])
            else:
                codes = scores.rows.cat[:, j - numeric].cpu().numpy()[known]
            counts += np.bincount(codes, minlength=len(counts))[: len(counts)]

    @property
    def predictable(self) -> float | None:
        """Share of the column's entropy that the other columns explain; None: it has none."""
        if not self.seen or self.entropy < 1e-6 or self.scorer.errors.is_gaussian(self.features[0]):
            return None
        return float(np.clip(1.0 - self.nll / self.seen / self.entropy, 0.0, 1.0))

    @property
    def drift(self) -> float | None:
        """Distance from the training rows: Kolmogorov and Smirnov's, of categories total variation.

        0: the same; 1: nothing in common.
        """
        if self.shares is None or not self.cells:
            return None
        now = [c / max(c.sum(), 1.0) for c in self.counts]
        if self.kind == "category":
            return float(0.5 * np.abs(now[0] - self.shares[0]).sum())
        return max(
            float(np.abs(np.cumsum(a - b)).max(initial=0.0))
            for a, b in zip(now, self.shares, strict=True)
        )


# --- cells


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


# --- all of it


@dataclass(frozen=True, slots=True)
class Findings:
    """Arrays behind the frames."""

    cells: CellDescriptions
    places: Integers  # (listed, 2) row and column
    p_values: Floats
    odds: Floats
    flagged: NDArray[np.bool_]
    row_scores: Floats
    row_p_values: Floats
    row_cells: Integers
    facts: list[ColumnFacts]
    tests: int
    fdr: float
    rows: Integers
    """rows of the page, worst first"""
    picked: pa.Table
    """all rows that are shown or have a listed cell"""
    picked_rows: Integers
    picked_p_values: Floats


class Audit:
    """The result of :func:`varjepa.audit`.

    Attributes:
        cells: the most suspicious cells, worst first: row (counted from 0), column, value,
            surprise (log odds of an error against a value that belongs there), p_value, flagged,
            repair, lower and upper (90 % interval of numbers and dates), the three most likely
            levels of categories with their probabilities, confidence of the repair.
        rows: of every row: score (mean of −log p of its cells), p_value, and the three columns
            that say most.
        columns: of every column: kind, audited cells, predictable (share of its entropy that the
            others explain), flagged cells, their share, drift against the training rows of a given
            model; why a column is not audited.
        flagged: number of flagged cells.
    """

    def __init__(
        self, source: pa.Table | TableFiles, given: Any, scorer: CellScorer, findings: Findings
    ) -> None:
        self._source, self._given, self._names = source, given, scorer.names
        self._left_out = {n: o.reason for n, o in scorer.left_out.items()}
        self._findings = findings
        self._kind = frame_kind(given)
        self.flagged = int(findings.flagged.sum())
        self.cells = self._frame(self._cells())
        self.rows = self._frame(self._rows())
        self.columns = self._frame(self._columns())

    def _frame(self, table: pa.Table) -> Any:
        return as_kind(table, "pyarrow" if self._kind == "numpy" else self._kind)

    # --- frames

    def _cells(self) -> pa.Table:
        f, cells = self._findings, self._findings.cells
        values = self._values()
        best = [[*levels, *[(None, None)] * (3 - len(levels))] for levels in cells.levels]
        columns = {
            "row": pa.array(f.places[:, 0]),
            "column": pa.array([self._names[j] for j in f.places[:, 1]], pa.string()),
            "value": pa.array(values, pa.string()),
            "surprise": pa.array(f.odds),
            "p_value": pa.array(f.p_values),
            "flagged": pa.array(f.flagged),
            "repair": pa.array(cells.repair, pa.string()),
            "confidence": pa.array(cells.confidence, pa.float64()),
            "lower": pa.array(cells.lower, pa.string()),
            "upper": pa.array(cells.upper, pa.string()),
        }
        for k in range(3):
            columns[f"level_{k + 1}"] = pa.array([one[k][0] for one in best], pa.string())
            columns[f"probability_{k + 1}"] = pa.array([one[k][1] for one in best], pa.float64())
        return pa.table(columns)

    def _values(self) -> list[str | None]:
        """Text of the listed cells."""
        f = self._findings
        places = np.searchsorted(f.picked_rows, f.places[:, 0])
        texts = {name: as_text(f.picked[name]) for name in self._names}
        return [
            texts[self._names[j]][int(i)].as_py()
            for i, j in zip(places, f.places[:, 1], strict=True)
        ]

    def _rows(self) -> pa.Table:
        f = self._findings
        names = np.array([*self._names, None], dtype=object)
        columns = {
            "row": pa.array(np.arange(len(f.row_scores))),
            "score": pa.array(f.row_scores),
            "p_value": pa.array(f.row_p_values),
        }
        for k in range(3):
            columns[f"column_{k + 1}"] = pa.array(names[f.row_cells[:, k]].tolist(), pa.string())
        return pa.table(columns)

    def _columns(self) -> pa.Table:
        facts = {one.name: one for one in self._findings.facts}
        rows = []
        for name in self._source.schema.names:
            one = facts.get(name)
            rows.append(
                {
                    "column": name,
                    "kind": None if one is None else one.kind,
                    "cells": 0 if one is None else one.cells,
                    "predictable": None if one is None else one.predictable,
                    "flagged": 0 if one is None else one.flagged,
                    "flagged_share": None if one is None else one.flagged / max(one.cells, 1),
                    "drift": None if one is None else one.drift,
                    "not_audited": None
                    if one is not None
                    else self._left_out.get(name, "unknown to the model"),
                }
            )
        kinds = [pa.string(), pa.string(), pa.int64(), pa.float64(), pa.int64(), pa.float64()]
        names = ["column", "kind", "cells", "predictable", "flagged", "flagged_share"]
        schema = pa.schema(
            [*zip(names, kinds, strict=True), ("drift", pa.float64()), ("not_audited", pa.string())]
        )
        return pa.Table.from_pylist(rows, schema)

    # --- repairs

    def changes(self, min_confidence: float = 0.5) -> Any:
        """Flagged cells with a repair of at least this confidence: row, column, value, repair."""
        mask = self._changed(min_confidence)
        cells = self._cells().filter(pa.array(mask))
        return self._frame(cells.select(["row", "column", "value", "repair", "confidence"]))

    def repaired(self, min_confidence: float = 0.5) -> Any:
        """The table with the cells of :meth:`changes` repaired; nothing else is touched."""
        if isinstance(self._source, TableFiles):
            raise InputError(
                f"{self._source.source} is not held in memory; changes() lists what to repair"
            )
        mask, f = self._changed(min_confidence), self._findings
        columns = {name: self._source[name] for name in self._source.column_names}
        for name, typed in f.cells.typed.items():
            wanted = [(int(f.places[i, 0]), scalar) for i, scalar in typed if mask[i]]
            if wanted:
                columns[name] = _replaced(columns[name], dict(wanted))
        return like_input(pa.table(columns), self._given)

    def _changed(self, min_confidence: float) -> NDArray[np.bool_]:
        if not 0.0 <= min_confidence <= 1.0:
            raise InputError(f"min_confidence must be from 0 to 1, not {min_confidence}")
        cells = self._findings.cells
        sure = [r is not None and c is not None and c >= min_confidence
                for r, c in zip(cells.repair, cells.confidence, strict=True)]  # fmt: skip
        return self._findings.flagged & np.array(sure, dtype=bool)

    # --- files and page

    def save(self, folder: str | os.PathLike[str], raw_text: bool = False) -> None:
        """Write cells, rows and columns as Parquet and CSV, and report.html: all or none.

        CSV cells that a spreadsheet would run as formulas are quoted unless ``raw_text``.
        """
        from varjepa.audit.page import write_page

        out = Path(folder)
        make_folder(out)
        with tempfile.TemporaryDirectory(dir=out, prefix=".audit-") as temporary:
            new = Path(temporary)
            for name, table in zip(
                FRAMES, (self._cells(), self._rows(), self._columns()), strict=True
            ):
                write_table(table, new / f"{name}.parquet")
                write_table(table, new / f"{name}.csv", raw_text)
            write_page(self.page_data(), new / "report.html")
            for path in sorted(new.iterdir()):
                path.replace(out / path.name)

    def page_data(self) -> PageData:
        """What the page shows."""
        f = self._findings
        names = list(self._source.schema.names)
        facts = {one.name: one for one in f.facts}
        columns = tuple(_page_column(name, facts.get(name)) for name in names)
        texts = [texts_of(f.picked[name]) for name in names]
        order = {name: j for j, name in enumerate(self._names)}
        shade = np.clip(-np.log10(np.maximum(f.picked_p_values, MIN_P)) / FULL_COLOUR, 0.0, 1.0)
        rows = []
        for row in f.rows.tolist():
            place = int(np.searchsorted(f.picked_rows, row))
            surprises = [
                None
                if n not in order or np.isnan(shade[place, order[n]])
                else float(shade[place, order[n]])
                for n in names
            ]
            rows.append(
                PageRow(
                    str(row),
                    float(f.row_scores[row]),
                    float(f.row_p_values[row]),
                    tuple(column[place] for column in texts),
                    tuple(surprises),
                )
            )
        at = {row: i for i, row in enumerate(f.rows.tolist())}
        values = self._values()
        details: dict[tuple[int, int], CellDetail] = {}
        place_of = {name: place for place, name in enumerate(names)}
        most = max(DETAILED, min(self.flagged, MOST_DETAILS))  # flagged cells come first
        for i, (row, j) in enumerate(f.places[:most].tolist()):
            if row in at:
                details[at[row], place_of[self._names[j]]] = self._detail(i, values[i])
        marked = sum(detail.flagged for detail in details.values())
        rows_total = len(f.row_scores)
        about: tuple[tuple[str, str], ...] = (
            ("rows", f"{rows_total:,}"),
            ("cells scored", f"{f.tests:,}"),
            ("false discovery rate", f"{f.fdr:g}"),
            ("flagged cells", f"{self.flagged:,}"),
        )
        if marked < self.flagged:
            about = (*about, ("of these on this page", f"{marked:,}"))
        return PageData("Audit", about, columns, tuple(rows), details)

    def _detail(self, i: int, value: str | None) -> CellDetail:
        f, cells = self._findings, self._findings.cells
        edges, masses, at, repair_at = cells.histograms.get(i, ((), (), None, None))
        return CellDetail(
            value or "",
            float(f.odds[i]),
            float(f.p_values[i]),
            bool(f.flagged[i]),
            cells.repair[i],
            cells.confidence[i],
            cells.lower[i],
            cells.upper[i],
            cells.levels[i] if i < DETAILED else (),
            edges,
            masses,
            at,
            repair_at,
        )

    def _repr_html_(self) -> str:
        from varjepa.audit.page import small_form

        return small_form(self.page_data())

    def __repr__(self) -> str:
        f = self._findings
        return (
            f"Audit: {self.flagged:,} of {f.tests:,} cells flagged in {len(f.row_scores):,} rows "
            f"(false discovery rate {f.fdr:g})"
        )


def _page_column(name: str, facts: ColumnFacts | None) -> PageColumn:
    if facts is None:
        return PageColumn(name, "not audited", None, 0, None)
    return PageColumn(name, facts.kind, facts.predictable, facts.flagged, facts.drift)


def texts_of(column: pa.ChunkedArray) -> list[str | None]:
    """Cells as text; those of types that no model takes as Python shows them."""
    if is_supported(value_type(column.type)):
        return as_text(column).to_pylist()
    return [None if value is None else str(value) for value in column.to_pylist()]


def _replaced(column: pa.ChunkedArray, repairs: dict[int, pa.Scalar]) -> pa.ChunkedArray:
    """A column with some cells replaced, of its own type."""
    kind = value_type(column.type)
    plain = column.cast(kind) if pa.types.is_dictionary(column.type) else column
    each = [pa.chunked_array([pa.array([s.as_py()], s.type)]) for s in repairs.values()]
    if is_text(kind):
        each = [as_text(one) for one in each]
    new = [chunk for one in each for chunk in one.cast(kind, safe=False).chunks]
    index = np.arange(len(column))
    index[list(repairs)] = len(column) + np.arange(len(repairs))
    filled = pa.chunked_array([*plain.chunks, *new], kind).take(pa.array(index))
    if pa.types.is_dictionary(column.type):
        return filled.dictionary_encode().cast(column.type)
    return filled
