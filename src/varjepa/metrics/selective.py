"""Selective prediction: risk, accuracy and F1 of the most certain rows; AURC, AUGRC.

Rows are sorted by uncertainty u, most certain first. With losses ℓ, the risk at coverage k/n is
R(k/n) = (1/k) Σ_{i ≤ k} ℓ_i. Rows of equal uncertainty form a group of ties; a cut through a group
counts its mean loss, so nothing here depends on the order of the rows.

Two bounds need no function of their own: a constant uncertainty is random abstention (its risk is
the error rate at every coverage), and the loss itself as the uncertainty is the oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid
from scipy.stats import rankdata
from sklearn.metrics import accuracy_score, f1_score

Floats = NDArray[np.float64]

AurcEstimator = Literal["mean", "trapezoid", "collapsed"]


@dataclass(frozen=True, slots=True)
class RiskCoverageCurve:
    """Mean loss of the k most certain rows, for k = 1 … n."""

    coverage: Floats  # (n,) k / n
    risk: Floats  # (n,)


@dataclass(frozen=True, slots=True)
class SelectiveScores:
    """All summaries of one uncertainty. Compare AURCs only for the same errors."""

    error_rate: float
    """risk at full coverage"""
    aurc: float
    """mean of the running risk"""
    aurc_trapezoid: float
    """trapezoids over coverages 1/n … 1, divided by that length"""
    aurc_collapsed: float
    """trapezoids between groups of ties, flat to coverage 0 (as in fd-shifts)"""
    augrc: float
    """area under P(error and kept) over the coverage"""
    auroc_failure: float
    """P(u_error > u_correct); NaN where all rows are of one kind"""


def risk_coverage(loss: ArrayLike, uncertainty: ArrayLike) -> RiskCoverageCurve:
    """R(k/n) for k = 1 … n, of any loss per row (0/1 error, squared error, …).

    Examples:
        >>> risk_coverage([0, 1, 0], [0.1, 0.9, 0.5]).risk.round(3).tolist()
        [0.0, 0.0, 0.333]
    """
    losses, scores = _pair(loss, uncertainty)
    # sorting the losses too makes sums, and so the last bits, the same for every row order
    order = np.lexsort((losses, scores))
    _, group, counts = np.unique(scores[order], return_inverse=True, return_counts=True)
    group_means = np.bincount(group, weights=losses[order]) / counts
    running = np.cumsum(group_means[group])
    k = np.arange(1, len(losses) + 1)
    return RiskCoverageCurve(k / len(losses), running / k)


def risk_at(loss: ArrayLike, uncertainty: ArrayLike, coverage: float) -> float:
    """R(coverage): mean loss of the most certain share of the rows (at least one)."""
    curve = risk_coverage(loss, uncertainty)
    return float(curve.risk[rows_kept(len(curve.risk), coverage) - 1])


def accuracy_at(correct: ArrayLike, uncertainty: ArrayLike, coverage: float) -> float:
    """Accuracy on the most certain share of the rows: 1 − R(coverage) of the 0/1 error."""
    return 1.0 - risk_at(1.0 - np.asarray(correct, dtype=np.float64), uncertainty, coverage)


def aurc(loss: ArrayLike, uncertainty: ArrayLike, estimator: AurcEstimator = "mean") -> float:
    """Area under the risk–coverage curve; where all rows tie it is the mean loss.

    ``mean``: (1/n) Σ_k R(k/n). ``trapezoid``: the trapezoid rule over
    coverages 1/n … 1, divided by the length 1 − 1/n. ``collapsed``: one point per group of ties,
    the trapezoid rule between them, and the first group's risk down to coverage 0.

    Examples:
        >>> errors, uncertainty = [0, 0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4, 0.5]
        >>> [round(aurc(errors, uncertainty, e), 6) for e in ("mean", "trapezoid", "collapsed")]
        [0.196667, 0.195833, 0.156667]
    """
    curve = risk_coverage(loss, uncertainty)
    n = len(curve.risk)
    if estimator == "mean" or n == 1:
        return float(curve.risk.mean())
    if estimator == "trapezoid":
        return float(trapezoid(curve.risk, curve.coverage) / (1 - 1 / n))
    if estimator == "collapsed":
        counts = np.unique(np.asarray(uncertainty, dtype=np.float64), return_counts=True)[1]
        ends = np.cumsum(counts) - 1  # last row of each group of ties
        coverage = np.concatenate(([0.0], curve.coverage[ends]))
        risk = curve.risk[ends]
        return float(trapezoid(np.concatenate((risk[:1], risk)), coverage))
    names = ", ".join(get_args(AurcEstimator))
    raise ValueError(f"the AURC estimator must be one of {names}, not {estimator!r}")


def augrc(loss: ArrayLike, uncertainty: ArrayLike) -> float:
    """Area under the generalised risk c · R(c) = (1/n) Σ_i ℓ_i · [row i is kept] over c.

    For 0/1 errors it equals (1 − AUROC_f) · acc · err + err² / 2.

    Examples:
        >>> round(augrc([0, 0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4, 0.5]), 6)
        0.12
    """
    curve = risk_coverage(loss, uncertainty)
    generalised = np.concatenate(([0.0], curve.risk * curve.coverage))
    return float(trapezoid(generalised, dx=1 / len(curve.risk)))


def auroc_failure(error: ArrayLike, uncertainty: ArrayLike) -> float:
    """AUROC_f = P(u_error > u_correct) + ½ P(u_error = u_correct).

    NaN where no row, or every row, is an error: there is no pair to compare.
    """
    errors, scores = _pair(error, uncertainty)
    if not np.isin(errors, (0, 1)).all():
        raise ValueError("errors must be 0 or 1")
    wrong = int(errors.sum())
    right = len(errors) - wrong
    if not wrong or not right:
        return float("nan")
    rank_sum = float(rankdata(scores)[errors == 1].sum())
    return (rank_sum - wrong * (wrong + 1) / 2) / (wrong * right)


def selective_scores(error: ArrayLike, uncertainty: ArrayLike) -> SelectiveScores:
    """All summaries at once, for 0/1 errors."""
    return SelectiveScores(
        error_rate=float(np.mean(np.asarray(error, dtype=np.float64))),
        aurc=aurc(error, uncertainty, "mean"),
        aurc_trapezoid=aurc(error, uncertainty, "trapezoid"),
        aurc_collapsed=aurc(error, uncertainty, "collapsed"),
        augrc=augrc(error, uncertainty),
        auroc_failure=auroc_failure(error, uncertainty),
    )


def rows_kept(rows: int, coverage: float) -> int:
    """Number of rows that a coverage keeps: the nearest integer, at least one."""
    if not 0 < coverage <= 1:
        raise ValueError(f"a coverage must be in (0, 1], not {coverage}")
    return max(1, round(coverage * rows))


def kept_weights(uncertainty: ArrayLike, coverage: float) -> Floats:
    """Each row's probability of being kept if ties at the cut are broken at random.  # (n,)

    Examples:
        >>> kept_weights([0.1, 0.5, 0.5, 0.9], coverage=0.5).tolist()
        [1.0, 0.5, 0.5, 0.0]
    """
    scores = _pair(np.zeros(np.shape(uncertainty)), uncertainty)[1]
    kept = rows_kept(len(scores), coverage)
    cut = np.partition(scores, kept - 1)[kept - 1]
    below, tied = scores < cut, scores == cut
    return below + tied * ((kept - below.sum()) / tied.sum())


def _pair(loss: ArrayLike, uncertainty: ArrayLike) -> tuple[Floats, Floats]:
    losses = np.asarray(loss, dtype=np.float64)
    scores = np.asarray(uncertainty, dtype=np.float64)
    if losses.ndim != 1 or losses.shape != scores.shape or not len(losses):
        raise ValueError(f"expected two equally long vectors, not {losses.shape}, {scores.shape}")
    if not np.isfinite(scores).all():
        raise ValueError("uncertainties must be finite")
    return losses, scores


# --- Accuracy and F1 by coverage.
#
# A cut through a group of ties keeps each tied row with the same weight, the chance that a random
# choice from the group would keep it. Accuracy and F1 are computed from the *expected* counts, so
# row order does not matter; without ties at the cut the result is scikit-learn's on the kept rows.

COVERAGES = (1.0, 0.9, 0.8, 0.5)
"""the paper's"""


@dataclass(frozen=True, slots=True)
class ClassificationScores:
    """Scores of the most certain share of the rows."""

    coverage: float
    """share of rows asked for"""
    accuracy: float
    f1_macro: float
    """plain mean over the classes that occur among the kept rows or their predictions"""
    f1_weighted: float
    """mean weighted by the classes' shares of the kept rows; the paper's tables show this one"""


def classification_at(
    y_true: ArrayLike, y_pred: ArrayLike, uncertainty: ArrayLike, coverage: float = 1.0
) -> ClassificationScores:
    """Accuracy and both F1 scores on the most certain share of the rows.

    A class that is never predicted correctly has F1 0; a class that neither occurs nor is predicted
    among the kept rows is not part of the macro mean.

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
