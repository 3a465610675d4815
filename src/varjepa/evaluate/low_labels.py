"""The low-label curve: how good a linear model is when only few training rows have a label.

The model is a logistic or a ridge regression, so that it is trained to the end whatever the number
of rows and inputs; its penalty is chosen by cross-validation on the same few labels. Validation
labels play no part: whoever has 50 labels has no thousand to tune with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV

from varjepa.datasets.dataset import Split
from varjepa.downstream import Inputs
from varjepa.downstream.batches import BLOCK, InputEncoder
from varjepa.evaluate.target import Target

SIZES = (50, 100, 200, 500, 1000)
"""how many training rows have a label, where there are as many"""
DRAWS = 10
"""random choices of the rows that have one"""
COMPARED = ("raw", "var_t_jepa", "raw+var_t_jepa")
PENALTIES = np.logspace(3, -4, 8)
"""of squared weights, from strong to weak"""
FOLDS = 3
UNSEEN = 1e-3
"""probability of a class that a fold's training rows do not have"""

Guess = Callable[[NDArray[np.float64]], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class LowLabelPoint:
    """One representation with one number of labels."""

    representation: str
    labels: int
    mean: float
    """accuracy, or RMSE, mean over the draws"""
    standard_error: float
    """of that mean, over the draws of the labelled rows; the test rows stay the same"""


def sizes_that_fit(train: int) -> tuple[int, ...]:
    """Sizes up to the number of training rows.

    Examples:
        >>> sizes_that_fit(105)
        (50, 100)
    """
    return tuple(size for size in SIZES if size <= train)


def low_label_curve(
    inputs: Mapping[str, Inputs], target: Target, split: Split, seed: int
) -> list[LowLabelPoint]:
    """Every representation that is compared here with every number of labels that fits."""
    sizes = sizes_that_fit(len(split.train))
    if not sizes:
        return []
    points = []
    for name in (name for name in COMPARED if name in inputs):
        scores = _scores(inputs[name], target, split, sizes, seed)  # (draws, sizes)
        errors = scores.std(0, ddof=1) / np.sqrt(DRAWS)
        for size, mean, error in zip(sizes, scores.mean(0), errors, strict=True):
            points.append(LowLabelPoint(name, size, float(mean), float(error)))
    return points


def _scores(
    inputs: Inputs, target: Target, split: Split, sizes: Sequence[int], seed: int
) -> NDArray[np.float64]:
    """Accuracy or RMSE on the test rows.  # (draws, sizes)"""
    # scaling needs no labels, so all training rows serve it
    encoder = InputEncoder("one-hot", "flat").fit(inputs, split.train)
    rows = encoder.transform(inputs)

    def features(index: NDArray[np.int64]) -> NDArray[np.float64]:
        batch = rows.take(torch.from_numpy(index)[None])
        parts = [batch.numeric[0]]
        if batch.tokens is not None:
            parts.append(batch.tokens[0].flatten(1))
        # a penalty shared by 20 raw columns and 1,000 numbers of an embedding hears the latter
        # only: each block gets the same variance in all
        return (
            torch.cat([part / max(part.shape[1], 1) ** 0.5 for part in parts], 1).double().numpy()
        )

    models = []
    for draw in range(DRAWS):
        # nested: the first 50 of the 100, so that neighbours of the curve compare
        order = np.random.default_rng([seed, draw]).permutation(split.train)[: max(sizes)]
        x, y = features(order), target.values[order]
        models += [_fit(x[:size], y[:size], target.task) for size in sizes]
    blocks = [
        split.test[start : start + BLOCK].astype(np.int64)
        for start in range(0, len(split.test), BLOCK)
    ]
    guesses = np.concatenate(
        [np.stack([model(x) for model in models]) for x in map(features, blocks)], axis=1
    )  # (draws · sizes, n_test)
    truth = target.values[split.test]
    if target.task == "classification":
        scores = (guesses == truth).mean(1)
    else:
        scores = np.sqrt(((guesses - truth) ** 2).mean(1))
    return scores.reshape(DRAWS, len(sizes))


def _fit(x: NDArray[np.float64], y: NDArray[Any], task: str) -> Guess:
    """A function from features to guesses; a single class is guessed always."""
    if np.ptp(y) == 0:
        return lambda rows: np.full(len(rows), y[0])
    if task == "regression":
        guess: Guess = RidgeCV(alphas=PENALTIES).fit(x, y).predict
        return guess
    # an L2 penalty keeps the weights in the span of the rows: as many inputs as rows will do
    centre = x.mean(0)
    span = np.linalg.svd(x - centre, full_matrices=False)[2] if len(x) < x.shape[1] else None

    def inside(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return rows - centre if span is None else (rows - centre) @ span.T

    inputs = inside(x)
    folds = _folds(y)
    risks = sum(_fold_risks(inputs, y, folds == fold) for fold in range(FOLDS))
    best = int(np.argmin(risks))
    model = list(_path(inputs, y, best + 1))[-1]
    return lambda rows: model.predict(inside(rows))


def _path(x: NDArray[np.float64], y: NDArray[Any], count: int) -> Iterator[LogisticRegression]:
    """Models of the first ``count`` penalties, each starting from the one before."""
    model = LogisticRegression(warm_start=True, max_iter=200, tol=1e-3)
    for penalty in PENALTIES[:count]:
        model.set_params(C=1.0 / penalty)
        with warnings.catch_warnings():  # the weakest penalties may take longer than they are worth
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x, y)
        yield model


def _fold_risks(
    x: NDArray[np.float64], y: NDArray[Any], out: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Cross-entropy of the rows that are left out, summed, for every penalty."""
    inside = y[~out]
    if not out.any() or np.ptp(inside) == 0:
        return np.zeros(len(PENALTIES))
    risks = []
    for model in _path(x[~out], inside, len(PENALTIES)):
        place = np.searchsorted(model.classes_, y[out]).clip(max=len(model.classes_) - 1)
        chance = model.predict_proba(x[out])[np.arange(out.sum()), place]
        seen = model.classes_[place] == y[out]
        risks.append(-np.log(np.where(seen, chance, UNSEEN).clip(UNSEEN)).sum())
    return np.array(risks)


def _folds(y: NDArray[Any]) -> NDArray[np.int64]:
    """Each class spread evenly over the folds; rows came in random order."""
    fold = np.empty(len(y), dtype=np.int64)
    fold[np.argsort(y, kind="stable")] = np.arange(len(y)) % FOLDS
    return fold
