"""What an audit found: frames of cells, rows and columns, repairs, files, a page."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.audit.findings import Findings
from varjepa.audit.page import PageData, page_data, small_form, write_page
from varjepa.audit.scoring import CellScorer
from varjepa.errors import InputError
from varjepa.estimators.frames import as_dictionary, as_kind, frame_kind, like_input
from varjepa.files import make_folder
from varjepa.settings import fits, plain
from varjepa.tables import TableFiles, write_table
from varjepa.tables.messages import joined, quoted
from varjepa.tables.values import as_text, is_text, value_type

Integers = NDArray[np.int64]


class Audit:
    """The result of :func:`varjepa.audit`.

    Attributes:
        cells: the most suspicious cells, worst first: row (counted from 0), column, value,
            log_odds (of an error against a value that belongs there), p_value, flagged,
            repair, lower and upper (90 % interval of numbers and dates), the three most likely
            levels of categories with their probabilities, and the confidence: the probability
            that the cell is wrong and the repair right.
        rows: of every row, in the table's order: score (mean of −log p of its cells), p_value of
            the score, p_value_1 of its most suspicious cell, by which the page sorts, and the three
            columns that say most.
        columns: of every column: kind, audited cells, predictable (share of its entropy that the
            others explain), flagged cells, their share, drift against the training rows of a given
            model; why a column is not audited.
        flagged: number of flagged cells.
        name: of the table, for the page's title; the file's, where it is one.

    Rows are counted from 0. Where a pandas frame has an index of its own, cells, rows and changes
    have its labels in a column ``index``.
    """

    def __init__(
        self, source: pa.Table | TableFiles, given: Any, scorer: CellScorer, findings: Findings
    ) -> None:
        self._source, self._given = source, given
        self.name = Path(given).name if isinstance(given, str | os.PathLike) else ""
        reasons = {name: one.reason for name, one in scorer.left_out.items()}
        self._not_audited = {
            name: reasons.get(name, "unknown to the model") for name in source.schema.names
        }
        """why, unless the findings have the column"""
        self._findings = findings
        self._kind = frame_kind(given)
        self.flagged = int(findings.flagged.sum())
        self._tables = {"cells": self._cells(), "rows": self._rows(), "columns": self._columns()}
        self.cells, self.rows, self.columns = map(self._frame, self._tables.values())

    def _frame(self, table: pa.Table) -> Any:
        return as_kind(table, "pyarrow" if self._kind == "numpy" else self._kind)

    # --- frames

    def _labels(self, rows: Integers) -> dict[str, pa.Array]:
        """The index of a pandas frame, unless it counts the rows as we do."""
        index = getattr(self._given, "index", None) if self._kind == "pandas" else None
        if index is None or list(index) == list(range(len(index))):
            return {}
        try:
            labels = pa.array(index)
        except (pa.ArrowException, TypeError):  # of several types
            labels = None
        if labels is None or pa.types.is_nested(labels.type):  # of several levels
            labels = pa.array([str(label) for label in index], pa.string())
        return {"index": labels.take(pa.array(rows))}

    def _cells(self) -> pa.Table:
        f, cells = self._findings, self._findings.cells
        best = [[*levels, *[(None, None)] * (3 - len(levels))] for levels in cells.levels]
        columns = {
            "row": pa.array(f.places[:, 0]),
            **self._labels(f.places[:, 0]),
            "column": pa.array([f.names[j] for j in f.places[:, 1]], pa.string()),
            "value": pa.array(f.values(), pa.string()),
            "log_odds": pa.array(f.log_odds),
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

    def _rows(self) -> pa.Table:
        f = self._findings
        names = np.array([*f.names, None], dtype=object)
        columns = {
            "row": pa.array(np.arange(len(f.row_scores))),
            **self._labels(np.arange(len(f.row_scores))),
            "score": pa.array(f.row_scores),
            "p_value": pa.array(f.row_p_values),
            "p_value_1": pa.array(f.worst_p_values),
        }
        for k in range(3):
            columns[f"column_{k + 1}"] = pa.array(names[f.row_cells[:, k]].tolist(), pa.string())
        return pa.table(columns)

    def _columns(self) -> pa.Table:
        rows = {
            name: {"column": name, "cells": 0, "flagged": 0, "not_audited": why}
            for name, why in self._not_audited.items()
        }
        for one in self._findings.facts:
            rows[one.name] = {
                "column": one.name,
                "kind": one.kind,
                "cells": one.cells,
                "predictable": one.predictable,
                "flagged": one.flagged,
                "flagged_share": one.flagged / max(one.cells, 1),
                "drift": one.drift,
            }
        schema = pa.schema({
            "column": pa.string(), "kind": pa.string(), "cells": pa.int64(),
            "predictable": pa.float64(), "flagged": pa.int64(), "flagged_share": pa.float64(),
            "drift": pa.float64(), "not_audited": pa.string(),
        })  # fmt: skip
        return pa.Table.from_pylist(list(rows.values()), schema)

    # --- repairs

    def changes(self, min_confidence: float = 0.5) -> Any:
        """Flagged cells with a repair of at least this confidence: row, column, value, repair.

        At the default, a change is more likely right than not.
        """
        mask = self._changed(min_confidence)
        cells = self._tables["cells"].filter(pa.array(mask))
        names = ["row", "index", "column", "value", "repair", "confidence"]
        return self._frame(cells.select([name for name in names if name in cells.column_names]))

    def repaired(self, min_confidence: float = 0.5) -> Any:
        """The table with the cells of :meth:`changes` repaired; nothing else is touched.

        The other flagged cells are left as they are: they may be right, or what they should be is
        not clear, as with most numbers. They are in ``cells``, with their intervals or levels.
        """
        if isinstance(self._source, TableFiles):
            raise InputError(
                f"{self._source.source} is not held in memory; changes() lists what to repair"
            )
        mask, f = self._changed(min_confidence), self._findings
        is_arrow = isinstance(self._given, pa.Table)
        table = self._given if is_arrow else self._source  # with all its columns and metadata
        for name, typed in f.cells.typed.items():
            wanted = [(int(f.places[i, 0]), scalar) for i, scalar in typed if mask[i]]
            if wanted:
                place = table.column_names.index(name)
                new = _replaced(self._source[name], dict(wanted))
                table = table.set_column(place, table.field(place).with_type(new.type), new)
        return table if is_arrow else like_input(table, self._given)

    def _changed(self, min_confidence: float) -> NDArray[np.bool_]:
        if not fits(plain(min_confidence), float) or not 0.0 <= min_confidence <= 1.0:
            raise InputError(f"min_confidence must be from 0 to 1, not {min_confidence!r}")
        cells = self._findings.cells
        sure = [r is not None and c is not None and c >= min_confidence
                for r, c in zip(cells.repair, cells.confidence, strict=True)]  # fmt: skip
        return self._findings.flagged & np.array(sure, dtype=bool)

    # --- files and page

    def save(self, folder: str | os.PathLike[str], raw_text: bool = False) -> None:
        """Write cells, rows and columns as Parquet and CSV, and report.html: all or none.

        CSV cells that a spreadsheet would run as formulas are quoted unless ``raw_text``.
        """
        out = Path(folder)
        make_folder(out)
        with tempfile.TemporaryDirectory(dir=out, prefix=".audit-") as temporary:
            new = Path(temporary)
            for name, table in self._tables.items():
                write_table(table, new / f"{name}.parquet")
                write_table(table, new / f"{name}.csv", raw_text)
            write_page(self.page_data(), new / "report.html")
            for path in sorted(new.iterdir()):
                path.replace(out / path.name)

    def page_data(self) -> PageData:
        """What the page shows."""
        title = f"Audit of {self.name}" if self.name else "Audit"
        return page_data(self._findings, self._source.schema.names, title, self._not_audited)

    def _repr_html_(self) -> str:
        return small_form(self.page_data())

    def __repr__(self) -> str:
        f = self._findings
        others = [
            f"{quoted(name)} ({why})"
            for name, why in self._not_audited.items()
            if name not in f.names
        ]
        return (
            f"Audit: {self.flagged:,} of {f.tests:,} cells flagged in {len(f.row_scores):,} "
            f"row{'s' * (len(f.row_scores) != 1)} (false discovery rate {f.fdr:g})"
        ) + (f"; not audited: {joined(others)}" if others else "")


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
    return as_dictionary(filled, column, column)
