"""Peers: what a user would take instead, with settings that are the same for every table."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
from scipy.stats import rankdata, skew
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
)
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors

from benchmarks.ground.tables import CodedTable, Floats, join

PACKAGES = {
    "miceforest": "miceforest",
    "tvae": "ctgan",
    "ctgan": "ctgan",
    "outliertree": "outliertree",
    "cleanlab": "cleanlab",
}
"""the package of each peer that is not made of scikit-learn"""

Imputer = Callable[[CodedTable, CodedTable | None, int], CodedTable]
"""Learn from the first table; fill the second, or the first where there is none; a seed."""


def version_of(method: str) -> str | None:
    """The package that makes a peer's numbers, with its version; None if it is not installed."""
    package = PACKAGES.get(method, "scikit-learn")
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return None


# --- missing cells


def fill_mean_mode(known: CodedTable, unseen: CodedTable | None, seed: int) -> CodedTable:
    """The mean of a number, the most frequent level of a category."""
    asked = known if unseen is None else unseen
    return CodedTable(np.where(np.isnan(asked.values), _centres(known), asked.values), known.levels)


def fill_boosting(known: CodedTable, unseen: CodedTable | None, seed: int) -> CodedTable:
    """Gradient boosting of every column on the others, missing cells as NaN."""
    asked = known if unseen is None else unseen
    filled = asked.values.copy()
    for j, is_category in enumerate(known.is_category):
        wanted = np.isnan(asked.values[:, j])
        rows = ~np.isnan(known.values[:, j])
        y = known.values[rows, j]
        if not wanted.any():
            continue
        if len(np.unique(y)) < 2:
            filled[wanted, j] = _centres(known)[j]
            continue
        others, theirs = (np.delete(table.values, j, axis=1) for table in (known, asked))
        model = boosting(is_category, seed)
        filled[wanted, j] = _predict(model, others[rows], y, theirs[wanted], known.levels[j])
    return CodedTable(filled, known.levels)


def boosting(is_category: bool, seed: int) -> Any:
    """Boosted trees as they fill and audit every table."""
    if is_category:
        return HistGradientBoostingClassifier(max_iter=50, early_stopping=False, random_state=seed)
    return HistGradientBoostingRegressor(max_iter=100, early_stopping=True, random_state=seed)


def fill_miss_forest(known: CodedTable, unseen: CodedTable | None, seed: int) -> CodedTable:
    """From mean and mode, four rounds of forests of extra trees over the columns.

    Forests learn from the known table only; unseen rows are filled alongside, round by round.
    """
    both = known if unseen is None else join([known, unseen])
    missing = np.isnan(both.values)
    learn = np.arange(len(both.values)) < len(known.values)
    filled = np.where(missing, _centres(known), both.values)
    for _ in range(4):
        for j in map(int, np.flatnonzero(missing.any(0))):
            rows = learn & ~missing[:, j]
            if not rows.any():
                continue
            kind = ExtraTreesClassifier if known.is_category[j] else ExtraTreesRegressor
            model = kind(100, min_samples_leaf=3, random_state=seed)
            others = np.delete(filled, j, axis=1)
            wanted = missing[:, j]
            filled[wanted, j] = _predict(
                model, others[rows], filled[rows, j], others[wanted], known.levels[j]
            )
    return CodedTable(filled[~learn] if unseen is not None else filled, known.levels)


def _predict(model: Any, x: Floats, y: Floats, asked: Floats, levels: Any) -> Floats:
    """Predictions of a fitted model; of categories it learns the texts, not their codes."""
    if levels is None:
        return model.fit(x, y).predict(asked)
    texts = levels.to_numpy(object)[y.astype(np.int64)]
    return levels.get_indexer(model.fit(x, texts).predict(asked)).astype(np.float64)


def _centres(table: CodedTable) -> Floats:
    """Mean or mode of every column; 0 where nothing is known.  # (columns,)"""
    return np.array([
        _centre(column[~np.isnan(column)], is_category)
        for column, is_category in zip(table.values.T, table.is_category, strict=True)
    ])  # fmt: skip


def _centre(known: Floats, is_category: np.bool_) -> float:
    if not len(known):
        return 0.0
    return float(np.bincount(known.astype(np.int64)).argmax() if is_category else known.mean())


def fill_miceforest(known: CodedTable, unseen: CodedTable | None, seed: int) -> CodedTable:
    """The package miceforest with its defaults: five iterations of LightGBM."""
    import miceforest
    import pandas as pd

    def frame(table: CodedTable) -> pd.DataFrame:
        columns = {f"c{j}": column for j, column in enumerate(table.values.T)}
        kinds = {f"c{j}": "category" for j in np.flatnonzero(known.is_category)}
        return pd.DataFrame(columns).astype(kinds)

    kernel = miceforest.ImputationKernel(frame(known), num_datasets=1, random_state=seed)
    kernel.mice(5, num_threads=1)
    done = kernel if unseen is None else kernel.impute_new_data(frame(unseen))
    return CodedTable(done.complete_data(0).to_numpy(np.float64), known.levels)


IMPUTERS: dict[str, Imputer] = {
    "mean_mode": fill_mean_mode,
    "boosting": fill_boosting,
    "miss_forest": fill_miss_forest,
    "miceforest": fill_miceforest,
}


# --- anomalies

Detector = Callable[[Floats, Floats | None, int], Floats]
"""Learn from the first rows; score the second, or the first where there are none; a seed."""


def isolation_forest(fit: Floats, asked: Floats | None, seed: int) -> Floats:
    model = IsolationForest(random_state=seed).fit(fit)
    return -model.score_samples(fit if asked is None else asked)


def nearest_neighbours(fit: Floats, asked: Floats | None, seed: int) -> Floats:
    """Distance to the fifth neighbour; a training row is not its own."""
    model = NearestNeighbors(n_neighbors=5).fit(fit)
    return model.kneighbors(asked)[0][:, -1]


def local_outlier_factor(fit: Floats, asked: Floats | None, seed: int) -> Floats:
    model = LocalOutlierFactor(novelty=asked is not None).fit(fit)
    return -(model.negative_outlier_factor_ if asked is None else model.score_samples(asked))


def ecod(fit: Floats, asked: Floats | None, seed: int) -> Floats:
    """Sum over columns of −log of the empirical tail that the value is in.

    As pyod computes it: the larger of both tails, or of the tail that the column's skewness picks;
    new rows count in the empirical distribution.
    """
    rows = fit if asked is None else np.concatenate([fit, asked])
    left = -np.log(rankdata(rows, method="max", axis=0) / len(rows))
    right = -np.log(rankdata(-rows, method="max", axis=0) / len(rows))
    skewness = np.nan_to_num(skew(rows, axis=0))
    picked = -np.sign(skewness - 1) * left + np.sign(skewness + 1) * right
    scores = np.maximum(np.maximum(left, right), picked).sum(1)
    return scores if asked is None else scores[len(fit) :]


DETECTORS: dict[str, Detector] = {
    "isolation_forest": isolation_forest,
    "knn": nearest_neighbours,
    "lof": local_outlier_factor,
    "ecod": ecod,
}
