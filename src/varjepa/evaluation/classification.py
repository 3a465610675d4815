"""Accuracy and F1 on the rows a classifier is surest of.

A cut through a group of ties keeps each tied row with the same weight, the chance that a random
draw from the group would keep it. Accuracy and F1 are then computed from the *expected* counts of
hits, misses and false alarms; so row order does not matter, and without ties at the cut the result
is scikit-learn's on the rows kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import accuracy_score, f1_score

from varjepa.evaluation.selective import kept_weights

COVERAGES = (1.0, 0.9, 0.8, 0.5)
"""the paper's"""


@dataclass(frozen=True, slots=True)
class ClassificationScores:
    """Scores of the most certain share of the rows."""

    coverage: float
    """share of rows asked for"""
    accuracy: float
    f1_macro: float
    """plain mean over the classes that occur among the rows kept or their predictions"""
    f1_weighted: float
    """mean weighted by the classes' shares of the rows kept; the paper's tables show this one"""


def classification_at(
    y_true: ArrayLike, y_pred: ArrayLike, uncertainty: ArrayLike, coverage: float = 1.0
) -> ClassificationScores:
    """Accuracy and both F1 scores on the most certain share of the rows.

    A class without hits has F1 0; a class that neither occurs nor is predicted among the rows kept
    is not part of the macro mean.

    Examples:
        >>> y_true, y_pred, uncertainty = [0, 1, 1, 0], [0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4]
        >>> classification_at(y_true, y_pred, uncertainty, coverage=0.5).accuracy
        1.0
    """
    truth, predicted = np.asarray(y_true), np.asarray(y_pred)
    weights = kept_weights(uncertainty, coverage)
    if truth.shape != weights.shape or predicted.shape != weights.shape:
        raise ValueError(
            f"expected equally long vectors, not {truth.shape}, {predicted.shape}, {weights.shape}"
        )
    kept = weights > 0
    truth, predicted, weights = truth[kept], predicted[kept], weights[kept]
    macro, weighted = (
        float(f1_score(truth, predicted, sample_weight=weights, average=average, zero_division=0))
        for average in ("macro", "weighted")
    )
    accuracy = float(accuracy_score(truth, predicted, sample_weight=weights))
    return ClassificationScores(coverage, accuracy, macro, weighted)


def classification_by_coverage(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    uncertainty: ArrayLike,
    coverages: Sequence[float] = COVERAGES,
) -> tuple[ClassificationScores, ...]:
    """One row of scores per coverage."""
    return tuple(classification_at(y_true, y_pred, uncertainty, c) for c in coverages)
