"""What labels find in features: linear probes, few labels, and which errors a score foresees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold
from sklearn.neighbors import NearestNeighbors
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, quantile_transform

from benchmarks.ground.tables import CodedTable, Coder, Floats
from varjepa.estimators.selective import SelectiveClassifier
from varjepa.metrics.confidence import one_minus_msp
from varjepa.metrics.selective import accuracy_at, aurc, auroc_failure

Figures = dict[str, Any]

INVERSE_PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0)
RIDGE_PENALTIES = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
CHOICE_ROWS = 3000
"""training rows on which the logistic regression's penalty is chosen, at most"""
LABELS = (50, 200)
DRAWS = 5
COMPONENTS = 64
NEIGHBOURS = 10


def standardised(fit: CodedTable, *others: CodedTable) -> list[Floats]:
    """Raw features of several tables, scaled by the first: medians for missing numbers, one-hot.

    A missing category is a level of its own; a level that the first table lacks is all zeros.
    """
    columns: list[list[Floats]] = [[] for _ in range(1 + len(others))]
    for j, levels in enumerate(fit.levels):
        values = [table.values[:, j] for table in (fit, *others)]
        if levels is None:
            known = values[0][~np.isnan(values[0])]
            middle = float(np.median(known)) if len(known) else 0.0
            filled = [np.where(np.isnan(v), middle, v) for v in values]
            spread = float(filled[0].std()) or 1.0
            parts = [((v - filled[0].mean()) / spread)[:, None] for v in filled]
        else:
            codes = [np.where(np.isnan(v), len(levels), v) for v in values]
            there = np.unique(codes[0])
            parts = [(c[:, None] == there).astype(np.float64) for c in codes]
        for some, part in zip(columns, parts, strict=True):
            some.append(part)
    return [np.hstack(some) for some in columns]


def principal_components(fit: Floats, *others: Floats) -> list[Floats]:
    model = PCA(min(COMPONENTS, *fit.shape), random_state=0).fit(fit)
    return [model.transform(table) for table in (fit, *others)]


# --- linear probes


def probe_figures(
    train: Floats, y: NDArray[Any], test: Floats, truth: NDArray[Any], is_regression: bool
) -> Figures:
    """R² of ridge regression, or accuracy of logistic regression with all, 200 and 50 labels."""
    train, test = _scaled(train, test)
    if is_regression:
        model = RidgeCV(RIDGE_PENALTIES).fit(train, y)
        return {"score": float(model.score(test, truth)), "dimensions": train.shape[1]}
    figures = {"score": _accuracy(train, y, test, truth), "dimensions": train.shape[1]}
    for labels in LABELS:
        drawn = [_draw(y, labels, draw) for draw in range(DRAWS)]
        accuracies = [_accuracy(train[some], y[some], test, truth) for some in drawn]
        figures[f"labels_{labels}"] = float(np.mean(accuracies))
    return figures


def _accuracy(train: Floats, y: NDArray[Any], test: Floats, truth: NDArray[Any]) -> float:
    """Of a logistic regression whose penalty is chosen by 3-fold cross-validation."""
    some = np.random.default_rng(0).permutation(len(y))[:CHOICE_ROWS]
    folds = list(KFold(3).split(some))
    means = [
        np.mean([_fit_score(c, train, y, some[a], train[some[b]], y[some[b]]) for a, b in folds])
        for c in INVERSE_PENALTIES
    ]
    best = INVERSE_PENALTIES[int(np.argmax(means))]
    return _fit_score(best, train, y, np.arange(len(y)), test, truth)


def _fit_score(
    c: float, x: Floats, y: NDArray[Any], rows: NDArray[np.int64], test: Floats, truth: NDArray[Any]
) -> float:
    if len(np.unique(y[rows])) < 2:
        return float(np.mean(truth == y[rows][0]))
    model = LogisticRegression(C=c, max_iter=200).fit(x[rows], y[rows])
    return float(model.score(test, truth))


def _draw(y: NDArray[Any], labels: int, draw: int) -> NDArray[np.int64]:
    """Rows whose label is known: a random few, with at least two classes among them."""
    rng = np.random.default_rng(draw)
    while True:
        some = rng.permutation(len(y))[:labels]
        if len(np.unique(y[some])) > 1:
            return some


# --- errors that a score foresees


def error_figures(
    train: Floats,
    y: NDArray[Any],
    test: Floats,
    truth: NDArray[Any],
    scores: Mapping[str, Floats],
    seed: int,
) -> Figures:
    """Accuracy of an MLP on all test rows and on the half that each score keeps; AUROC of errors.

    ``scores``: larger for less certain rows. The MLP's own confidence is added.
    """
    train, test = _scaled(train, test)
    labels, counts = np.unique(y, return_counts=True)
    learn = np.isin(y, labels[counts > 1])  # its validation split is by class
    model = MLPClassifier((128,), early_stopping=True, random_state=seed)
    model.fit(train[learn], y[learn])
    correct = model.predict(test) == truth
    own = {"own_confidence": one_minus_msp(model.predict_proba(test))}
    return {
        "accuracy": float(correct.mean()),
        "scores": {
            name: {
                "kept_half": accuracy_at(correct, score, 0.5),
                "gain": accuracy_at(correct, score, 0.5) - float(correct.mean()),
                "auroc_errors": auroc_failure(~correct, score) if 0 < correct.mean() < 1 else None,
            }
            for name, score in {**own, **scores}.items()
        },
    }


def selective_figures(
    model: Any,
    train: pd.DataFrame,
    y: NDArray[Any],
    test: pd.DataFrame,
    truth: NDArray[Any],
    seed: int,
) -> Figures:
    """AURC of two classifiers on raw columns: of the confidence, and with latent scores added."""
    coder = Coder(train, test)
    coded = coder(train)
    raw = FunctionTransformer(lambda frame: standardised(coded, coder(frame))[1])
    figures: Figures = {}
    for name, classifier in (
        ("boosting", HistGradientBoostingClassifier(max_iter=60, random_state=seed)),
        ("logistic", LogisticRegression(max_iter=300)),
    ):
        selective = SelectiveClassifier(
            make_pipeline(raw, classifier),
            coverage=0.8,
            abstain_by=FrozenEstimator(model),
            random_state=seed,
        ).fit(train, y)
        assert selective.combined_ is not None
        wrong = selective.predict(test) != truth
        alone = one_minus_msp(selective.predict_proba(test))
        figures[name] = {
            "error_rate": float(wrong.mean()),
            "aurc_confidence": aurc(wrong, alone),
            "aurc": aurc(wrong, selective.uncertainty(test)),
            "is_combined": selective.combined_.chosen == "linear",
        }
    return figures


def mixture_atypicality(fit: CodedTable, test: CodedTable, seed: int) -> Floats:
    """Minus the log density of 20 Gaussians on 12 principal components.

    Numbers are quantile-normalised, categories one-hot next to them.
    """
    both = np.vstack(standardised(fit, test))
    numbers = np.array([len(np.unique(column)) > 2 for column in both.T])
    if numbers.any():
        both[:, numbers] = quantile_transform(
            both[:, numbers], n_quantiles=min(1000, len(both)), output_distribution="normal"
        )
    n = len(fit.values)
    reduced = PCA(min(12, *both.shape), random_state=seed).fit(both[:n]).transform(both)
    model = GaussianMixture(min(20, n // 5), reg_covar=1e-3, random_state=seed).fit(reduced[:n])
    return -model.score_samples(reduced[n:])


# --- similar rows


def gower_distances(fit: CodedTable, asked: CodedTable) -> Floats:
    """Mean over columns that both rows know: |a − b| over the range, or whether levels differ.

    Two rows that share no known column have a distance of 1.  # (asked, fit)
    """
    total = np.zeros((len(asked.values), len(fit.values)))
    known = np.zeros_like(total)
    for j, levels in enumerate(fit.levels):
        a, b = asked.values[:, j, None], fit.values[None, :, j]
        both = ~np.isnan(a) & ~np.isnan(b)
        there = b[~np.isnan(b)]
        span = float(np.ptp(there)) if len(there) else 0.0
        far = np.abs(a - b) / (span or 1.0) if levels is None else (a != b).astype(np.float64)
        total += np.where(both, far, 0.0)
        known += both
    return np.where(known > 0, total / np.maximum(known, 1.0), 1.0)


def nearest_rows(fit: Floats, asked: Floats) -> NDArray[np.int64]:
    """By Euclidean distance.  # (asked, NEIGHBOURS)"""
    index = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(fit)
    return index.kneighbors(asked, return_distance=False)


def neighbour_figures(nearest: NDArray[np.int64], y: NDArray[Any], truth: NDArray[Any]) -> Figures:
    """Share of the neighbours that have a row's own class."""
    return {"precision": float(np.mean(y[nearest] == truth[:, None]))}


def _scaled(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    scaler = StandardScaler().fit(train)
    return scaler.transform(train), scaler.transform(test)
