"""``varjepa.audit``: score all cells, calibrate, and describe those that look wrong.

A table in files is read a block at a time: a sample of its rows calibrates, then every block is
scored, and of it only row scores, column sums and the most suspicious cells stay in memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import clone

from varjepa.audit.findings import ColumnFacts, Findings
from varjepa.audit.fitting import FitOptions, fit_own
from varjepa.audit.repairs import WrongCells, describe_cells
from varjepa.audit.result import Audit
from varjepa.audit.scoring import CellScorer, Scores, joined
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.estimators.fitting import table_files
from varjepa.metrics.discoveries import MIN_P, ExponentialTail, benjamini_hochberg
from varjepa.settings import at_least_one, fits, plain
from varjepa.tables import Kind, TableFiles, read_table
from varjepa.tables.messages import TableWarnings
from varjepa.tables.streaming import pick_rows
from varjepa.training.progress import progress

Floats = NDArray[np.float64]

BLOCK_ROWS = 1 << 14
"""Rows that are scored at a time."""

CALIBRATION_ROWS = 1 << 16
"""Rows whose scores calibrate p-values; of a larger table, so many drawn at random."""

TIMED_ROWS = 1 << 10
"""Rows by whose scoring the time for all is estimated."""

MOST_CELLS = 1_000_000
"""Suspicious cells that are held in memory."""

SHOWN_CELLS = 200_000
"""Cells of the page."""

SHOWN_ROWS = 10_000
"""Rows of the page."""

FIT_SHARE = 0.75
"""Of a time limit that a fit may take."""

Show = Callable[[int, int, str, str], None]


def audit(
    table: Any,
    model: VarTJEPA | str | os.PathLike[str] | None = None,
    *,
    fdr: float = 0.05,
    top: int = 1000,
    column_kinds: Mapping[str, Kind] | None = None,
    time_limit: float | None = None,
    device: str | None = None,
    random_state: int | None = None,
    verbose: int = 0,
    folder: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> Audit:
    """Find cells that do not fit the rest of their row, and say what they should be.

    Args:
        table: a frame, array or path, or a folder or pattern of Parquet files.
        model: a fitted VarTJEPA or its folder; then drift against its training rows is measured
            too. None: one is fitted to the table itself, with defaults; or with the settings of
            a VarTJEPA that is not fitted.
        fdr: false discovery rate: share of the flagged cells that may be right.
        top: minimum number of cells that are described, flagged or not.
        column_kinds: as in VarTJEPA, for a new fit only.
        time_limit: seconds for fit and scoring; the fit ends early, with its best checkpoint.
        device: "auto", "cpu" or "cuda"; None: the model's own.
        random_state: seed of a new fit; None: that of a VarTJEPA that is not fitted, otherwise 0.
        verbose: 1 shows progress.
        folder: where an interrupted audit leaves its fit, and from where the same call continues.
        overwrite: replace a fit in ``folder`` that is of another table or has other settings.

    Missing cells have no score. Identifiers, free text, constant and empty columns are not audited.
    """
    start = time.monotonic()
    if not fits(plain(fdr), float) or not 0.0 < fdr < 1.0:
        raise InputError(f"fdr must be above 0 and below 1, not {fdr!r}")
    if time_limit is not None and not (fits(plain(time_limit), float) and time_limit > 0.0):
        raise InputError(f"time_limit must be above 0 seconds, not {time_limit!r}")
    at_least_one("top", top)
    if isinstance(model, str | os.PathLike):
        model = VarTJEPA.load(Path(model))
    if model is not None and not isinstance(model, VarTJEPA):
        raise InputError(f"model must be a VarTJEPA or its folder, not {type(model).__name__}")
    source: pa.Table | TableFiles = table_files(table) or read_table(table)
    rows = source.rows if isinstance(source, TableFiles) else source.num_rows
    if not rows:
        raise InputError("the table has no rows")
    levels = None
    is_fitted = model is not None and hasattr(model, "model_")
    for option, given in (("column_kinds", column_kinds), ("random_state", random_state)):
        if is_fitted and given is not None:
            raise InputError(f"{option} is for a new fit, and the model given is fitted already")
    if model is None or not is_fitted:
        limit = None if time_limit is None else FIT_SHARE * time_limit
        own = None if folder is None else Path(folder)
        new = VarTJEPA(random_state=0) if model is None else clone(model)
        if device is not None:
            new.set_params(device=device)
        if random_state is not None:
            new.set_params(random_state=random_state)
        kinds = column_kinds or new.column_kinds
        fitted, levels = fit_own(source, FitOptions(new, kinds, limit, verbose, own, overwrite))
    else:
        fitted = model
        if not hasattr(model, "feature_names_in_") and not isinstance(source, TableFiles):
            source = source.rename_columns([f"x{j}" for j in range(source.num_columns)])
    absent = [c.name for c in fitted.codec_.schema.modelled if c.name not in source.schema.names]
    if absent:
        fitted.codec_.unseen_cells(source.schema.empty_table())  # says which, and what is similar
    if is_fitted and not isinstance(source, TableFiles):
        known = fitted.codec_.schema.names
        TableWarnings(extra=[n for n in source.column_names if n not in known]).warn(stacklevel=3)
    own_device = fitted.device
    try:
        if device is not None:
            fitted.set_params(device=device)
        scorer = CellScorer(fitted, levels)
        with progress() if verbose else nullcontext(lambda *_: None) as show:
            end = None if time_limit is None else start + time_limit
            found = _Sweep(scorer, source, rows, is_fitted, show, end)
            findings = _pick(found, scorer, source, fdr, top, show)
    finally:
        fitted.set_params(device=own_device)
    return Audit(source, table, scorer, findings)


def _blocks(source: pa.Table | TableFiles) -> Iterator[pa.Table]:
    if isinstance(source, TableFiles):
        yield from source.blocks(source.schema.names, BLOCK_ROWS)
        return
    for begin in range(0, source.num_rows, BLOCK_ROWS):
        yield source.slice(begin, BLOCK_ROWS)


def take_rows(source: pa.Table | TableFiles, wanted: NDArray[np.int64]) -> pa.Table:
    """Some rows, in ascending order."""
    if isinstance(source, pa.Table):
        return source.take(pa.array(wanted))
    return pa.concat_tables([source.schema.empty_table(), *pick_rows(_blocks(source), wanted)])


class _Sweep:
    """Scores every block once; of small tables, the blocks that calibrated."""

    def __init__(
        self,
        scorer: CellScorer,
        source: pa.Table | TableFiles,
        rows: int,
        with_drift: bool,
        show: Show,
        end: float | None,
    ) -> None:
        self.scorer, self.source, self.rows, self.show, self.end = scorer, source, rows, show, end
        self.held: list[Scores] = []
        """of a table that is small enough to keep them"""
        self.done = 0
        self.sampled = CALIBRATION_ROWS if rows > CALIBRATION_ROWS else 0
        """rows that are scored before all rows are"""
        self.again = self._has_time()
        """whether rows are scored in two passes"""
        self.facts = [ColumnFacts.of(scorer, name, with_drift) for name in scorer.names]
        self.tails = self._calibrate()
        self.tests = 0
        self.row_scores = np.zeros(rows)
        self.row_cells = np.full((rows, 3), -1, dtype=np.int32)  # columns that say most, −1: none
        self.worst_p = np.ones(rows)  # of the row's most suspicious cell
        self.worst_odds = np.full(rows, -np.inf)
        # the most suspicious cells: p-values, odds, whether a rule says so, (row, column)
        self.suspects: list[NDArray[Any]] = [
            np.empty(0), np.empty(0), np.empty(0, dtype=bool), np.empty((0, 2), dtype=np.int64),
        ]  # fmt: skip
        begin = 0
        for number, block in enumerate(_blocks(source)):
            self._add(self.held[number] if self.held else self._score(block), begin)
            begin += block.num_rows

    def _add(self, scores: Scores, begin: int) -> None:
        p = p_values(self.tails, scores)
        known = ~np.isnan(p)
        evidence = np.where(known, -np.log(np.where(known, p, 1.0)), -1.0)
        here = slice(begin, begin + len(p))
        self.row_scores[here] = evidence.clip(0.0).sum(1) / np.maximum(known.sum(1), 1)
        best = np.argsort(-evidence, axis=1)[:, :3]
        is_known = np.take_along_axis(evidence, best, 1) >= 0.0
        self.row_cells[here, : best.shape[1]] = np.where(is_known, best, -1)
        self.worst_p[here] = np.where(known, p, 1.0).min(1, initial=1.0)
        self.worst_odds[here] = np.where(known, scores.odds, -np.inf).max(1, initial=-np.inf)
        self.tests += int(known.sum())
        for j, facts in enumerate(self.facts):
            facts.add(scores, j, p[:, j])
        places = np.argwhere(known) + np.array([begin, 0])
        new = p[known], scores.odds[known], scores.certain[known], places
        suspects = [np.concatenate(pair) for pair in zip(self.suspects, new, strict=True)]
        if len(suspects[0]) > MOST_CELLS:
            keep = np.argpartition(suspects[0], MOST_CELLS)[:MOST_CELLS]
            suspects = [part[keep] for part in suspects]
        self.suspects = suspects

    def _has_time(self) -> bool:
        """Whether two passes over all rows end in time.

        Known before the first score counts: p-values compare scores of the same number of passes.
        """
        begin = time.monotonic()
        if self.end is None or begin >= self.end:
            return self.end is None
        if self.rows <= TIMED_ROWS:
            return True
        some = next(_blocks(self.source)).slice(0, TIMED_ROWS)
        self.scorer.score(some)
        seconds = time.monotonic() - begin
        return begin + seconds * (self.rows + self.sampled) / some.num_rows <= self.end

    def _calibrate(self) -> list[ExponentialTail]:
        if not self.sampled:
            self.held = [self._score(block) for block in _blocks(self.source)]
            parts = self.held
        else:
            drawn = np.random.default_rng(0).choice(self.rows, self.sampled, replace=False)
            sample = take_rows(self.source, np.sort(drawn))
            parts = [
                self._score(sample.slice(i, BLOCK_ROWS)) for i in range(0, len(drawn), BLOCK_ROWS)
            ]
        odds = np.concatenate([np.where(part.certain, np.nan, part.odds) for part in parts])
        return [ExponentialTail(column) for column in odds.T]

    def _score(self, block: pa.Table) -> Scores:
        scores = self.scorer.score(block, self.again)
        self.done += block.num_rows
        of_all = self.done - self.sampled
        what = f"{of_all:,} of {self.rows:,} rows" if of_all > 0 else "a sample to calibrate"
        self.show(self.done, self.rows + self.sampled, "scoring", what)
        return scores


def p_values(tails: list[ExponentialTail], scores: Scores) -> Floats:
    """Of every cell: NaN where it is missing, the smallest where a rule says so.  # (N, C)"""
    columns = [tail.p_values(column) for tail, column in zip(tails, scores.odds.T, strict=True)]
    found = np.column_stack(columns)
    return np.where(scores.certain, MIN_P, found)


def _pick(
    found: _Sweep, scorer: CellScorer, source: Any, fdr: float, top: int, show: Show
) -> Findings:
    """Flag, choose what is described, and describe it."""
    # what a rule says is no test: it is flagged, and does not make the limit of others higher
    all_p, all_odds, all_certain, places = found.suspects
    tested = all_p[~all_certain]
    tests = found.tests - int(all_certain.sum())
    largest = benjamini_hochberg(tested, fdr, tests)
    limit = max(largest, MIN_P)
    flagged = int((all_p <= limit).sum())
    order = np.lexsort((-all_odds, all_p))[: max(top, flagged)]
    listed, p, odds, certain = places[order], all_p[order], all_odds[order], all_certain[order]
    rows_p = ExponentialTail(found.row_scores, are_odds=False).p_values(found.row_scores)
    shown = min(SHOWN_ROWS, max(100, SHOWN_CELLS // max(len(source.schema.names), 1)))
    rows = np.lexsort((-found.row_scores, -found.worst_odds, found.worst_p))[:shown]
    wanted = np.unique(np.concatenate([rows, listed[:, 0]]).astype(np.int64))
    picked = take_rows(source, wanted)
    show(1, 1, "describing", f"{len(listed):,} cells")
    scores = joined(found.held).take(wanted) if found.held else scorer.score(picked, found.again)
    share = max(1, flagged - int(certain.sum())) / max(2, tests)
    wrong = WrongCells(odds, p, certain, min(share, 0.5))
    cells = describe_cells(scorer, picked, scores.rows, wanted, listed, wrong)
    for j, facts in enumerate(found.facts):
        facts.flagged = int((listed[:, 1][p <= limit] == j).sum())
    return Findings(
        names=scorer.names,
        cells=cells,
        places=listed,
        p_values=p,
        log_odds=odds,
        flagged=p <= limit,
        row_scores=found.row_scores,
        row_p_values=rows_p,
        row_cells=found.row_cells,
        worst_p_values=found.worst_p,
        facts=found.facts,
        tests=found.tests,
        fdr=fdr,
        limit=largest if largest > 0.0 else None,
        rows=rows,
        picked=picked,
        picked_rows=wanted,
        picked_p_values=p_values(found.tails, scores),
    )
