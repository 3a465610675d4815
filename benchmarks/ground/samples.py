"""Sampled rows: can boosting tell them, do they teach, are they copies; two peers that sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import NearestNeighbors

from benchmarks.ground.probes import standardised
from benchmarks.ground.tables import CodedTable, Coder, Floats

Figures = dict[str, Any]

MOST = 5000
"""rows that are sampled, at most"""
NOT_KNOWN = "(missing)"


def sample_figures(
    train: pd.DataFrame, unseen: pd.DataFrame, sampled: pd.DataFrame, seed: int
) -> Figures:
    """AUROC of boosting that tells sampled from unseen rows; distances to the nearest training row.

    A distance is √(Σ squared differences of standardised numbers + number of other categories);
    the figures are 5th percentiles over rows.
    """
    coder = Coder(train, unseen, sampled)
    learnt, real, drawn = coder(train), coder(unseen), coder(sampled)
    drawn = with_missing_cells(drawn, learnt, seed)
    rows = min(len(real.values), len(drawn.values))
    near = nearest(learnt, real, drawn)
    return {
        "auroc": separability(real.values[:rows], drawn.values[:rows], seed),
        "distance_unseen": float(np.quantile(near[0], 0.05)),
        "distance_sampled": float(np.quantile(near[1], 0.05)),
        "rows_compared": rows,
    }


def with_missing_cells(sampled: CodedTable, real: CodedTable, seed: int) -> CodedTable:
    """Samples without the cells that a random real row lacks.

    Few methods sample missing cells, and a table's gaps would give any complete row away. Samples
    that have missing cells stay as they are.
    """
    if np.isnan(sampled.values).any():
        return sampled
    drawn = np.random.default_rng(seed).integers(len(real.values), size=len(sampled.values))
    gaps = np.isnan(real.values)[drawn]
    return CodedTable(np.where(gaps, np.nan, sampled.values), sampled.levels)


def separability(real: Floats, sampled: Floats, seed: int) -> float:
    """AUROC of gradient boosting, the mean of two folds; .5: it cannot tell them apart."""
    x = np.concatenate([real, sampled])
    y = np.repeat([0, 1], [len(real), len(sampled)])
    areas = []
    for fit, test in StratifiedKFold(2, shuffle=True, random_state=seed).split(x, y):
        model = HistGradientBoostingClassifier(random_state=seed).fit(x[fit], y[fit])
        areas.append(roc_auc_score(y[test], model.predict_proba(x[test])[:, 1]))
    return float(np.mean(areas))


def nearest(train: CodedTable, *tables: CodedTable) -> list[Floats]:
    """Distance of every row to its nearest training row."""
    features = standardised(train, *tables)
    # a differing category changes two places of its one-hot code by 1
    scale = np.concatenate([
        np.ones(1)
        if levels is None
        else np.full(len(np.unique(np.nan_to_num(column, nan=len(levels)))), np.sqrt(0.5))
        for column, levels in zip(train.values.T, train.levels, strict=True)
    ])  # fmt: skip
    search = NearestNeighbors(n_neighbors=1).fit(features[0] * scale)
    return [search.kneighbors(table * scale)[0][:, 0] for table in features[1:]]


def teaching_figures(
    train: pd.DataFrame, unseen: pd.DataFrame, sampled: pd.DataFrame, is_regression: bool, seed: int
) -> Figures:
    """Boosting trained on sampled rows and on as many real ones, tested on unseen rows.

    Frames have the column ``target``.
    """
    real = train.iloc[: len(sampled)]
    scores = [_test(frame, unseen, is_regression, seed) for frame in (real, sampled)]
    return {
        "score_real": scores[0],
        "score_sampled": scores[1],
        "difference": scores[1] - scores[0],
    }


def _test(train: pd.DataFrame, test: pd.DataFrame, is_regression: bool, seed: int) -> float:
    features = [frame.drop(columns="target") for frame in (train, test)]
    coder = Coder(*features)
    x, asked = (coder(frame).values for frame in features)
    if is_regression:
        y, truth = (pd.to_numeric(frame["target"]).to_numpy(np.float64) for frame in (train, test))
        model = HistGradientBoostingRegressor(random_state=seed).fit(x, y)
        return float(r2_score(truth, model.predict(asked)))
    labels, truth = (frame["target"].astype(str).to_numpy(object) for frame in (train, test))
    if len(np.unique(labels)) < 2:
        return float(np.mean(truth == labels[0]))
    classifier = HistGradientBoostingClassifier(random_state=seed).fit(x, labels)
    return float(accuracy_score(truth, classifier.predict(asked)))


def sample_ctgan(kind: str, train: pd.DataFrame, rows: int, seed: int, device: str) -> pd.DataFrame:
    """Rows from ctgan's "TVAE" or "CTGAN" with its defaults; dates as seconds."""
    import ctgan

    train = train.reset_index(drop=True)
    coder = Coder(train)
    complete = {}
    for j, (name, levels) in enumerate(zip(coder.names, coder.levels, strict=True)):
        column = train[name]
        if levels is None:
            numbers = pd.Series(coder(train).values[:, j])
            complete[name] = numbers.fillna(numbers.median())
        else:
            complete[name] = column.astype(object).where(column.notna(), NOT_KNOWN)
    frame = pd.DataFrame(complete)
    texts = [n for n, levels in zip(coder.names, coder.levels, strict=True) if levels is not None]
    model = getattr(ctgan, kind)(enable_gpu=device != "cpu")
    model.set_random_state(seed)
    model.fit(frame, texts)
    drawn = model.sample(rows)
    drawn[texts] = drawn[texts].where(drawn[texts] != NOT_KNOWN, None)
    return drawn
