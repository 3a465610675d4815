"""The jobs: each measures one method on one table and gives rows of figures.

A fit is the cost, so jobs share one where the protocol allows. The contender is fitted on

    all rows, 20 % of the cells removed        impute_mcar
    three quarters, 20 % removed               impute_unseen
    three quarters, complete, no target        embed, uncertainty, sample, collapse, time
    three quarters, complete, with the target  train_on_sampled
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.ground import peers, scoring
from benchmarks.ground.scoring import Figures
from benchmarks.ground.tables import (
    ROWS,
    TABLES,
    Bools,
    Coder,
    load,
    numbers_as_floats,
    remove,
    removed_cells,
    split_rows,
)
from benchmarks.measures import peak_resident_mb

Row = dict[str, Any]

OURS = "ours"


@dataclass(frozen=True, slots=True)
class Contender:
    """The estimator that is measured."""

    kind: str = "varjepa:VarTJEPA"
    """module:class"""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """changes of its defaults, nested as in ``training__epochs``"""
    device: str = "auto"

    def make(self, seed: int) -> Any:
        """An estimator that is not fitted yet."""
        module, _, name = self.kind.partition(":")
        estimator = getattr(import_module(module), name)(random_state=seed, device=self.device)
        return estimator.set_params(**self.parameters)


@dataclass(frozen=True, slots=True)
class Task:
    """Jobs of one method on one table that share a fit."""

    table: str
    jobs: tuple[str, ...]
    method: str
    seed: int
    rows: int = ROWS
    contender: Contender = Contender()

    def __str__(self) -> str:
        return f"{self.table}, {' '.join(self.jobs)}, {self.method}, seed {self.seed}"


def measure(task: Task) -> list[Row]:
    """The rows of a task, one a job."""
    reset_peak()
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence of a probe, collapse of a model: figures say
        figures = JOBS[task.jobs[0]](task)
    seconds = round(time.perf_counter() - start, 3)
    peak = round(peak_resident_mb(), 1)
    return [
        {
            "table": task.table,
            "job": job,
            "method": task.method,
            "seed": task.seed,
            "rows": task.rows,
            "version": version_of(task.method),
            "figures": figures[job],
            "seconds": seconds,
            "peak_mb": peak,
        }
        for job in task.jobs
    ]


def version_of(method: str) -> str | None:
    """The package of a peer with its version; empty for ours, None if it is not installed."""
    return "" if method == OURS else peers.version_of(method)


def reset_peak() -> None:
    """Count the peak memory of this process from here on, where the system can."""
    path = Path("/proc/self/clear_refs")
    if path.exists():
        path.write_text("5")


def package_versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("pandas", "scikit-learn", "scipy")}


# --- missing cells


def impute_mcar(task: Task) -> dict[str, Figures]:
    """Remove 20 % of the cells of all rows, learn from the rest and fill them."""
    frame = numbers_as_floats(load(task.table, task.rows).features)
    removed = removed_cells(frame, task.seed)
    return {"impute_mcar": _fill(task, frame, removed, remove(frame, removed), None)}


def impute_unseen(task: Task) -> dict[str, Figures]:
    """Learn from three quarters with 20 % removed; fill the other quarter, likewise removed."""
    frame = numbers_as_floats(load(task.table, task.rows).features)
    removed = removed_cells(frame, task.seed)
    left = remove(frame, removed)
    fit, unseen = split_rows(len(frame), task.seed)
    figures = _fill(task, frame.iloc[unseen], removed[unseen], left.iloc[fit], left.iloc[unseen])
    return {"impute_unseen": figures}


def _fill(
    task: Task, truth: pd.DataFrame, removed: Bools, known: pd.DataFrame, unseen: Any
) -> Figures:
    """Figures of a method that learns from ``known`` and fills ``unseen``, or ``known`` itself."""
    asked = known if unseen is None else unseen
    coder = Coder(known, asked, truth)
    start = time.perf_counter()
    if task.method != OURS:
        fill = peers.IMPUTERS[task.method]
        filled = fill(coder(known), None if unseen is None else coder(unseen), task.seed)
        seconds = time.perf_counter() - start
        figures = scoring.imputation_figures(coder(truth), filled, removed)
        return {**figures, "fit_seconds": round(seconds, 3)}
    model = task.contender.make(task.seed).fit(known)
    seconds = time.perf_counter() - start
    figures = scoring.imputation_figures(coder(truth), coder(model.impute(asked)), removed)
    figures["fit_seconds"] = round(seconds, 3)
    if hasattr(model, "predict_cells"):
        cells = model.predict_cells(asked, coverage=scoring.COVERAGE)
        lower, upper = (_numbers_only(coder, side, asked) for side in (cells.lower, cells.upper))
        figures |= scoring.interval_figures(
            coder(truth), coder(lower), coder(upper), removed, coder(known)
        )
    return figures


def _numbers_only(coder: Coder, side: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """An interval's end; a category has none."""
    columns = {
        name: side[name] if name in side.columns and levels is None else like[name]
        for name, levels in zip(coder.names, coder.levels, strict=True)
    }
    return pd.DataFrame(columns, index=like.index)


# --- all of them


GROUPS = (
    ("impute_mcar",),
    ("impute_unseen",),
)
"""jobs that share a fit of the contender"""

METHODS: dict[str, tuple[str, ...]] = {
    OURS: tuple(job for group in GROUPS for job in group),
    **dict.fromkeys(peers.IMPUTERS, ("impute_mcar", "impute_unseen")),
}
"""what each method can do"""

DEFAULT_JOBS = tuple(job for job in METHODS[OURS] if job != "train_on_sampled")


def applies(job: str, table: str) -> bool:
    """Whether a job can be done on a table."""
    return table in TABLES


JOBS: dict[str, Callable[[Task], dict[str, Figures]]] = {
    "impute_mcar": impute_mcar,
    "impute_unseen": impute_unseen,
}
