"""Models of a representation when only few training rows have a label.

The linear one is a logistic or a ridge regression, so that it is trained to the end whatever the
number of rows and inputs; its penalty is chosen by cross-validation on the same few labels.
Validation labels play no part: whoever has 50 labels has no thousand to tune with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV

from varjepa.evaluate.splits import Index
from varjepa.metrics.target import Task

SIZES = (50, 100, 200, 500, 1000)
"""how many training rows have a label, where there are as many"""
COMPARED = ("raw", "var_t_jepa", "raw+var_t_jepa")
"""representations"""
PENALTIES = np.logspace(3, -4, 8)
"""of squared weights, from strong to weak"""
FOLDS = 3
UNSEEN = 1e-3
"""probability of a class that a fold's training rows do not have"""

BLOCK = 512
"""rows predicted at a time"""

Guess = Callable[[NDArray[np.float64]], NDArray[Any]]


def sizes_that_fit(train: int, sizes: Sequence[int] = SIZES) -> tuple[int, ...]:
    """Sizes up to the number of training rows.

    Examples:
        >>> sizes_that_fit(105)
        (50, 100)
    """
    return tuple(size for size in sizes if size <= train)


def labelled_rows(train: Index, most: int, seed: int, draw: int) -> Index:
    """Rows that have a label, in a random order.

    Nested: the first 50 of the 100, so that neighbours of the curve compare.
    """
    return np.random.default_rng([seed, draw]).permutation(train)[:most]


def linear_guesses(
    features: Callable[[Index], NDArray[np.float64]],
    labels: NDArray[Any],  # (N,)
    task: Task,
    test: Index,
    orders: Sequence[Index],
    sizes: Sequence[int],
) -> NDArray[Any]:
    """Predictions of the linear models of every order and size for the test rows.

    ``features`` gives the inputs of some rows. Only the labels of the rows in an order are read.

    Shape: ``(orders, sizes, n)``.
    """
    models = []
    for order in orders:
        x, y = features(order), labels[order]
        models += [fit_linear(x[:size], y[:size], task) for size in sizes]
    blocks = [test[start : start + BLOCK].astype(np.int64) for start in range(0, len(test), BLOCK)]
    guesses = np.concatenate(
        [np.stack([model(x) for model in models]) for x in map(features, blocks)], axis=1
    )
    return guesses.reshape(len(orders), len(sizes), len(test))


def balance_blocks(blocks: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """One matrix of several, each with the same variance in all.

    A penalty shared by 20 raw columns and 1,000 numbers of an embedding hears the latter only.
    """
    parts = [part / np.float32(max(part.shape[1], 1) ** 0.5) for part in blocks]
    return np.concatenate(parts, axis=1).astype(np.float64)


def fit_linear(x: NDArray[np.float64], y: NDArray[Any], task: Task) -> Guess:
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
