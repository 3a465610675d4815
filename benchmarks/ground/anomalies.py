"""Peers that find anomalies: isolation forest, nearest neighbours, local outlier factor, ECOD."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import rankdata, skew
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors

from benchmarks.ground.tables import Floats

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
