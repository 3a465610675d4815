"""The jobs: each measures one method on one table and gives rows of figures.

A fit is the cost, so jobs share one where the protocol allows. The contender is fitted on

    all rows, 20 % of the cells removed        impute_mcar
    three quarters, 20 % removed               impute_unseen
    three quarters, complete, no target        embed, uncertainty, selective, similar, sample,
                                               collapse, terms, time
    three quarters, complete, with the target  train_on_sampled
    DiffPuter's training rows, 30 % removed    impute_mar
    all rows; half of the normal ones          anomaly; anomaly_normal
    all rows, errors put in; as they came      cells; dirty
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import bisect
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from benchmarks.ground import audits, errors, peers, probes, samples, scoring, terms
from benchmarks.ground.scoring import Figures
from benchmarks.ground.tables import (
    DIRTY,
    NUMERIC_ANOMALIES,
    PAPER,
    REGRESSION,
    ROWS,
    TABLES,
    Bools,
    CodedTable,
    Coder,
    Floats,
    Integers,
    load,
    load_dirty,
    numbers_as_floats,
    remove,
    removed_cells,
    split_rows,
)
from benchmarks.measures import peak_resident_mb
from varjepa.models.inference import QUESTIONS

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
        module, _, name = self.kind.partition(":")
        estimator = getattr(import_module(module), name)(random_state=seed, device=self.device)
        return estimator.set_params(**self.parameters)


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs of one method on one table that share a fit."""

    table: str
    jobs: tuple[str, ...]
    method: str
    seed: int
    rows: int = ROWS
    contender: Contender = Contender()

    def __str__(self) -> str:
        return f"{self.table}, {' '.join(self.jobs)}, {self.method}, seed {self.seed}"


def measure(group: JobGroup) -> list[Row]:
    """The rows of a group, one a job."""
    reset_peak()
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence of a probe, collapse of a model: figures say
        figures = JOBS[group.jobs[0]](group)
    seconds = round(time.perf_counter() - start, 3)
    peak, on_gpu = round(peak_resident_mb(), 1), torch.cuda.is_initialized()
    return [
        {
            "table": group.table,
            "job": job,
            "method": group.method,
            "seed": group.seed,
            "rows": group.rows,
            "version": version_of(group.method),
            "figures": figures[job],
            "seconds": seconds,
            "peak_mb": peak,
            "gpu_peak_mb": round(torch.cuda.max_memory_allocated() / 2**20, 1) if on_gpu else None,
        }
        for job in group.jobs
    ]


def version_of(method: str) -> str | None:
    """The package of a peer with its version; empty for ours, None if it is not installed."""
    return "" if method == OURS else peers.version_of(method)


def reset_peak() -> None:
    """Count the peak memory of this process from here on, where the system can."""
    path = Path("/proc/self/clear_refs")
    if path.exists():
        path.write_text("5")
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def package_versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("pandas", "scikit-learn", "scipy")}


# --- missing cells


def impute_mcar(group: JobGroup) -> dict[str, Figures]:
    """Remove 20 % of the cells of all rows, learn from the rest and fill them."""
    frame = numbers_as_floats(load(group.table, group.rows).features)
    removed = removed_cells(frame, group.seed)
    return {"impute_mcar": _fill(group, frame, removed, remove(frame, removed))}


def impute_unseen(group: JobGroup) -> dict[str, Figures]:
    """Learn from three quarters with 20 % removed; fill the other quarter, likewise removed."""
    frame = numbers_as_floats(load(group.table, group.rows).features)
    removed = removed_cells(frame, group.seed)
    left = remove(frame, removed)
    fit, unseen = split_rows(len(frame), group.seed)
    figures = _fill(group, frame.iloc[unseen], removed[unseen], left.iloc[fit], left.iloc[unseen])
    return {"impute_unseen": figures}


def _filled(
    group: JobGroup, coder: Coder, known: pd.DataFrame, unseen: pd.DataFrame | None = None
) -> tuple[CodedTable, float, Any]:
    """What a method that learns from ``known`` fills into ``unseen``, or into ``known`` itself.

    Also seconds (of ours: of the fit), and our fitted model.
    """
    start = time.perf_counter()
    if group.method != OURS:
        fill = peers.IMPUTERS[group.method]
        filled = fill(coder(known), None if unseen is None else coder(unseen), group.seed)
        return filled, round(time.perf_counter() - start, 3), None
    model = group.contender.make(group.seed).fit(known)
    seconds = round(time.perf_counter() - start, 3)
    return coder(model.impute(known if unseen is None else unseen)), seconds, model


def _fill(
    group: JobGroup,
    truth: pd.DataFrame,
    removed: Bools,
    known: pd.DataFrame,
    unseen: pd.DataFrame | None = None,
) -> Figures:
    """Figures of filled cells, and of ours of their intervals."""
    asked = known if unseen is None else unseen
    coder = Coder(known, asked, truth)
    filled, seconds, model = _filled(group, coder, known, unseen)
    figures = scoring.imputation_figures(coder(truth), filled, removed)
    figures["fit_seconds"] = seconds
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


@dataclass(frozen=True, slots=True)
class MarTable:
    """How DiffPuter treats one of the ground's tables."""

    categories: tuple[str, ...]
    """columns that count as categories, whatever they hold"""
    published: float
    """RMSE in its paper: 30 % MAR, in-sample"""


MAR_TABLES = {
    "letter_recognition": MarTable((), 0.481),
    "online_shoppers": MarTable(
        ("Month", "OperatingSystems", "Browser", "Region", "TrafficType", "VisitorType", "Weekend"),
        0.601,
    ),
}
OBSERVED = 0.3
"""share of the columns, the target among them, that stay whole and decide what is removed"""
MAR_SHARE = 0.3


def impute_mar(group: JobGroup) -> dict[str, Figures]:
    """Remove cells at random given others, as DiffPuter's public code does, and fill them.

    Its rows: 70 % of the whole table. Its RMSE is over all removed numbers, standardised by mean
    and deviation of the cells that are left.
    """
    about = MAR_TABLES[group.table]
    table = load(group.table, rows=10**9)
    order, observed = mar_draws(len(table.features), table.features.shape[1] + 1, group.seed)
    whole = pd.concat([table.features, table.target.astype(str).rename("target")], axis=1)
    whole = numbers_as_floats(whole).astype(dict.fromkeys(about.categories, str))
    values = Coder(whole)(whole).values[order]
    frame = whole.iloc[order].drop(columns="target").reset_index(drop=True)
    removed = mar_cells(values, observed, group.seed)[:, :-1]  # the target is last
    known = remove(frame, removed)
    coder = Coder(known, frame)
    filled, seconds, _ = _filled(group, coder, known)
    figures = scoring.pooled_figures(coder(frame), filled, removed)
    return {"impute_mar": {**figures, "published": about.published, "fit_seconds": seconds}}


def mar_draws(rows: int, columns: int, mask: int) -> tuple[Integers, Integers]:
    """Training rows, and the columns that stay whole in DiffPuter's mask of this number.

    Its script draws both from numpy's legacy generator, with ten masks of another kind between.
    """
    legacy = np.random.RandomState(1234)
    order = np.arange(rows)
    legacy.shuffle(order)
    train = int(0.7 * rows)
    for _ in range(10):
        for part in (train, rows - train):
            legacy.rand(part, columns)
    count = max(int(OBSERVED * columns), 1)
    drawn = [legacy.choice(columns, count, replace=False) for _ in range(2 * mask + 1)]
    return order[:train], drawn[-1]  # every other draw is for its test rows


def mar_cells(values: Floats, observed: Integers, seed: int) -> Bools:
    """Cells that are missing at random given the observed columns.  # (n, columns)

    A cell's chance is the logistic function of a random linear combination of those columns, scaled
    to variance 1, plus what brings the column's mean chance to share / (1 − observed share).
    """
    rng = np.random.default_rng(seed)
    others = np.setdiff1d(np.arange(values.shape[1]), observed)
    combined = values[:, observed] @ rng.normal(size=(len(observed), len(others)))
    combined /= combined.std(0, ddof=1)
    removed = np.zeros(values.shape, dtype=bool)
    chance = MAR_SHARE / (1 - OBSERVED)
    for column, score in zip(others, combined.T, strict=True):
        shift = bisect(lambda b, s=score: expit(s + b).mean() - chance, -500, 500)
        removed[:, column] = rng.random(len(values)) < expit(score + shift)
    return removed


# --- embeddings, uncertainty, samples: one fit


def represent(group: JobGroup) -> dict[str, Figures]:
    """Learn from three quarters without the target; every job that such a fit can do."""
    table = load(group.table, group.rows)
    fit, unseen = split_rows(len(table.features), group.seed)
    train, test = table.features.iloc[fit], table.features.iloc[unseen]
    target = table.target.to_numpy() if table.is_regression else table.target.astype(str).to_numpy()
    labels = target[fit], target[unseen]
    coder = Coder(train, test)
    coded = coder(train), coder(test)
    figures: dict[str, Figures] = {}
    if "sample" in group.jobs and group.method in SAMPLERS:
        drawn = _sample_peer(group, train)
        return {"sample": samples.sample_figures(train, test, drawn, group.seed)}
    if group.method == "gower":
        distances = probes.gower_distances(*coded)
        nearest = np.argsort(distances, axis=1, kind="stable")[:, : probes.NEIGHBOURS]
        return {"similar": probes.neighbour_figures(nearest, *labels)}
    if group.method != OURS:
        features = probes.standardised(*coded)
        if group.method == "pca":
            features = probes.principal_components(*features)
        if "similar" in group.jobs:
            nearest = probes.nearest_rows(*features)
            return {"similar": probes.neighbour_figures(nearest, *labels)}
        return _represented(group, features, labels, coded, {}, table.is_regression)
    start = time.perf_counter()
    model = group.contender.make(group.seed).fit(train)
    seconds = round(time.perf_counter() - start, 3)
    if {"embed", "uncertainty"} & {*group.jobs}:
        features = [_floats(model.transform(frame)) for frame in (train, test)]
        scores = label_free_scores(model, test) if "uncertainty" in group.jobs else {}
        figures |= _represented(group, features, labels, coded, scores, table.is_regression)
    if "selective" in group.jobs:
        figures["selective"] = probes.selective_figures(
            model, train, labels[0], test, labels[1], group.seed
        )
    if "similar" in group.jobs:
        if hasattr(model, "similar"):
            numbers = model.similar(train, test, k=probes.NEIGHBOURS)["row"].to_numpy()
            nearest = numbers.reshape(len(test), probes.NEIGHBOURS)
        else:
            nearest = probes.nearest_rows(*(_floats(model.transform(f)) for f in (train, test)))
        figures["similar"] = probes.neighbour_figures(nearest, *labels)
    if "sample" in group.jobs:
        drawn = model.sample(min(len(train), samples.MOST))
        figures["sample"] = samples.sample_figures(train, test, drawn, group.seed)
    if "terms" in group.jobs:
        figures["terms"] = terms.term_figures(model, train)
    seen = model.collapse_
    figures["collapse"] = {
        "collapsed": bool(seen.collapsed),
        "active_share": float(seen.active_share),
        "silent_features": len(seen.silent_features),
    }
    shape = {"rows_fitted": len(train), "columns": train.shape[1]}
    figures["time"] = {"fit_seconds": seconds, **shape}
    return figures


def _represented(
    group: JobGroup,
    features: list[Floats],
    labels: tuple[Any, Any],
    coded: tuple[CodedTable, CodedTable],
    scores: Mapping[str, Floats],
    is_regression: bool,
) -> dict[str, Figures]:
    figures = {}
    if "embed" in group.jobs:
        figures["embed"] = probes.probe_figures(
            features[0], labels[0], features[1], labels[1], is_regression
        )
    if "uncertainty" in group.jobs:
        mixture = {"mixture": probes.mixture_atypicality(*coded, group.seed)}
        figures["uncertainty"] = probes.error_figures(
            features[0], labels[0], features[1], labels[1], {**scores, **mixture}, group.seed
        )
    return figures


def label_free_scores(model: Any, test: pd.DataFrame) -> dict[str, Floats]:
    """The default score and every other one that the contender offers."""
    scores = {"default": model.uncertainty(test)}
    if hasattr(model, "uncertainties"):
        scores |= {question: model.uncertainty(test, question) for question in QUESTIONS}
        scores |= model.uncertainties(test)
    return {name: _floats(score) for name, score in scores.items()}


def train_on_sampled(group: JobGroup) -> dict[str, Figures]:
    """Learn from three quarters with the target; sample rows that a classifier learns from."""
    table = load(group.table, group.rows)
    fit, unseen = split_rows(len(table.features), group.seed)
    target = table.target if table.is_regression else table.target.astype(str)
    frame = pd.concat([table.features, target.rename("target")], axis=1)
    train, test = frame.iloc[fit], frame.iloc[unseen]
    if group.method == OURS:
        model = group.contender.make(group.seed).fit(train)
        drawn = model.sample(min(len(train), samples.MOST))
    else:
        drawn = _sample_peer(group, train)
    figures = samples.teaching_figures(train, test, drawn, table.is_regression, group.seed)
    return {"train_on_sampled": figures}


SAMPLERS = {"tvae": "TVAE", "ctgan": "CTGAN"}


def _sample_peer(group: JobGroup, train: pd.DataFrame) -> pd.DataFrame:
    rows = min(len(train), samples.MOST)
    kind = SAMPLERS[group.method]
    return samples.sample_ctgan(kind, train, rows, group.seed, group.contender.device)


# --- anomalies


def anomaly(group: JobGroup) -> dict[str, Figures]:
    """Learn from all rows and score them."""
    table = load(group.table, group.rows)
    return {"anomaly": _anomaly_figures(group, table.features, None, table.target)}


def anomaly_normal(group: JobGroup) -> dict[str, Figures]:
    """Learn from half of the normal rows; score the other half and all anomalies."""
    table = load(group.table, group.rows)
    normal = np.random.default_rng(group.seed).permutation(np.flatnonzero(table.target == 0))
    fit = np.sort(normal[: len(normal) // 2])
    test = np.setdiff1d(np.arange(len(table.target)), fit)
    rows = table.features.iloc[fit], table.features.iloc[test]
    return {"anomaly_normal": _anomaly_figures(group, *rows, table.target.iloc[test])}


def _anomaly_figures(
    group: JobGroup, fit: pd.DataFrame, asked: pd.DataFrame | None, flags: pd.Series
) -> Figures:
    """AUROC of a method; of ours also that of what its score could be made of."""
    if group.method != OURS:
        frames = [fit] if asked is None else [fit, asked]
        coder = Coder(*frames)
        features = probes.standardised(*(coder(frame) for frame in frames))
        asked_features = None if asked is None else features[1]
        scores = peers.DETECTORS[group.method](features[0], asked_features, group.seed)
        return {"auroc": float(roc_auc_score(flags, scores))}
    model = group.contender.make(group.seed).fit(fit)
    rows = fit if asked is None else asked
    if not hasattr(model, "outlier_score"):
        return {"auroc": float(roc_auc_score(flags, _floats(model.uncertainty(rows, "nll"))))}
    candidates = outlier_candidates(model, fit, rows)
    return {
        "auroc": float(roc_auc_score(flags, _floats(model.outlier_score(rows)))),
        "scores": {name: float(roc_auc_score(flags, s)) for name, s in candidates.items()},
    }


def outlier_candidates(model: Any, fit: pd.DataFrame, rows: pd.DataFrame) -> dict[str, Floats]:
    """What an outlier score could be: single scores, and sums of each and the distance."""

    def single(frame: pd.DataFrame) -> dict[str, Floats]:
        typical = {"objective": -model.score_samples(frame)}
        several = {**model.outlier_parts(frame), **model.uncertainties(frame), **typical}
        return {name: _floats(score) for name, score in several.items()}

    own, scores = single(fit), single(rows)
    scaled = {k: (v - own[k].mean()) / (own[k].std() or 1.0) for k, v in scores.items()}
    return scaled | {
        f"distance + {weight} {name}": scaled["distance"] + weight * scaled[name]
        for name in ("atypical", "nll mean", "surprise mean", "objective")
        for weight in (0.1, 0.25, 0.5, 1.0)
    }


# --- wrong cells


def cells(group: JobGroup) -> dict[str, Figures]:
    """Make 3 % of the cells wrong, and find them."""
    frame = load(group.table, group.rows).features
    spoiled = errors.spoil(frame, group.seed)
    scored = _scored(group, spoiled.frame)
    texts = Coder(frame)(frame).is_category
    figures = audits.audit_figures(
        scored, spoiled.is_wrong, spoiled.frame.notna().to_numpy(), texts
    )
    return {"cells": figures}


DIRTY_COLUMNS = {"dirty/beers": ("city", "state", "abv")}
"""columns whose errors can be known from the table; elsewhere all"""


def dirty(group: JobGroup) -> dict[str, Figures]:
    """Find and mend the errors of a table as it came."""
    frame, clean = load_dirty(group.table)
    is_wrong = (frame.fillna("") != clean.fillna("")).to_numpy()
    known = frame.notna().to_numpy() & frame.columns.isin(
        DIRTY_COLUMNS.get(group.table, tuple(frame.columns))
    )
    scored = _scored(group, frame)
    figures = audits.audit_figures(scored, is_wrong, known, np.ones(frame.shape[1], dtype=bool))
    return {"dirty": {**figures, **audits.repair_figures(scored, clean, is_wrong & known)}}


def _scored(group: JobGroup, frame: pd.DataFrame) -> audits.ScoredCells:
    if group.method == OURS:
        return audits.by_audit(frame, group.contender.make(group.seed))
    return audits.FINDERS[group.method](frame, group.seed)


def _floats(values: Any) -> Floats:
    return np.asarray(values, dtype=np.float64)


# --- all of them


GROUPS: dict[tuple[str, ...], Callable[[JobGroup], dict[str, Figures]]] = {
    ("impute_mcar",): impute_mcar,
    ("impute_unseen",): impute_unseen,
    ("impute_mar",): impute_mar,
    (
        "embed", "uncertainty", "selective", "similar", "sample", "collapse", "terms", "time",
    ): represent,
    ("train_on_sampled",): train_on_sampled,
    ("anomaly",): anomaly,
    ("anomaly_normal",): anomaly_normal,
    ("cells",): cells,
    ("dirty",): dirty,
}  # fmt: skip
"""jobs that share a fit of the contender, and what measures them"""
JOBS = {job: measure_jobs for jobs, measure_jobs in GROUPS.items() for job in jobs}

METHODS: dict[str, tuple[str, ...]] = {
    OURS: tuple(job for group in GROUPS for job in group),
    **dict.fromkeys(peers.IMPUTERS, ("impute_mcar", "impute_unseen", "impute_mar")),
    "raw": ("embed", "uncertainty", "similar"),
    "pca": ("embed", "similar"),
    "gower": ("similar",),
    **dict.fromkeys(SAMPLERS, ("sample", "train_on_sampled")),
    **dict.fromkeys(peers.DETECTORS, ("anomaly", "anomaly_normal")),
    "boosting": ("impute_mcar", "impute_unseen", "impute_mar", "cells", "dirty"),
    "cleanlab": ("cells",),
    "mode": ("dirty",),
    "outliertree": ("dirty",),
}
"""what each method can do"""

DEFAULT_JOBS = tuple(job for job in METHODS[OURS] if job != "train_on_sampled")


def applies(job: str, table: str) -> bool:
    """Whether a job can be done on a table."""
    if job in ("anomaly", "anomaly_normal"):
        return table in NUMERIC_ANOMALIES or (table not in TABLES and job == "anomaly")
    if job == "impute_mar":
        return table in MAR_TABLES
    if job == "dirty" or table in DIRTY:
        return job == "dirty" and table in DIRTY
    if job == "cells":
        return table in TABLES and table not in PAPER
    needs_classes = job in ("uncertainty", "selective", "similar")
    return table in TABLES and not (needs_classes and table in REGRESSION)
