"""Selective prediction: what is gained by leaving out the rows one is least sure of.

Rows are ordered by uncertainty. Rows with equal uncertainty cannot be told apart, so a cut through
a group of ties counts the group's mean: nothing here depends on the order of the rows.

Two bounds need no function of their own: a constant uncertainty is random abstention (its risk is
the error rate at every coverage), and the loss itself as the uncertainty is the oracle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid
from scipy.stats import rankdata

Floats = NDArray[np.float64]

AurcEstimator = Literal["mean", "trapezoid", "collapsed"]


@dataclass(frozen=True, slots=True)
class RiskCoverageCurve:
    """Mean loss of the k most certain rows, for k = 1 … n."""

    coverage: Floats  # (n,) k / n
    risk: Floats  # (n,)


@dataclass(frozen=True, slots=True)
class SelectiveScores:
    """Every summary of one uncertainty on one classifier; only AURCs of equal errors compare."""

    error_rate: float
    """risk at full coverage"""
    aurc: float
    """mean of the running risk"""
    aurc_trapezoid: float
    """trapezoids over coverages 1/n … 1, divided by that length"""
    aurc_collapsed: float
    """trapezoids between groups of ties, flat to coverage 0 (as in fd-shifts)"""
    augrc: float
    """area under P(wrong and kept) over the coverage"""
    auroc_failure: float
    """chance that an error is more uncertain than a hit; NaN where there are only one kind"""


def risk_coverage(loss: ArrayLike, uncertainty: ArrayLike) -> RiskCoverageCurve:
    """The curve of any per-row loss (an error indicator, a squared error, …)."""
    losses, scores = _pair(loss, uncertainty)
    # sorting the losses too makes sums, and so the last bits, the same for every row order
    order = np.lexsort((losses, scores))
    _, group, counts = np.unique(scores[order], return_inverse=True, return_counts=True)
    group_means = np.bincount(group, weights=losses[order]) / counts
    running = np.cumsum(group_means[group])
    k = np.arange(1, len(losses) + 1)
    return RiskCoverageCurve(k / len(losses), running / k)


def risk_at(loss: ArrayLike, uncertainty: ArrayLike, coverage: float) -> float:
    """Mean loss of the most certain share of the rows (at least one)."""
    curve = risk_coverage(loss, uncertainty)
    return float(curve.risk[rows_kept(len(curve.risk), coverage) - 1])


def accuracy_at(correct: ArrayLike, uncertainty: ArrayLike, coverage: float) -> float:
    """Accuracy on the most certain share of the rows."""
    return 1.0 - risk_at(1.0 - np.asarray(correct, dtype=np.float64), uncertainty, coverage)


def aurc(loss: ArrayLike, uncertainty: ArrayLike, estimator: AurcEstimator = "mean") -> float:
    """Area under the risk–coverage curve, by a named estimator; all tied gives the mean loss.

    ``mean``: the running risk's mean over k = 1 … n. ``trapezoid``: the trapezoid rule over
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
    """Area under the generalised risk, mean over all rows of loss · [kept], over the coverage.

    For errors it equals (1 − AUROC_f) · acc · err + err² / 2.
    """
    curve = risk_coverage(loss, uncertainty)
    generalised = np.concatenate(([0.0], curve.risk * curve.coverage))
    return float(trapezoid(generalised, dx=1 / len(curve.risk)))


def auroc_failure(error: ArrayLike, uncertainty: ArrayLike) -> float:
    """AUROC_f: the chance that an error is more uncertain than a hit, ties counting a half.

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
    """How many rows a coverage keeps: the nearest whole number, at least one."""
    if not 0 < coverage <= 1:
        raise ValueError(f"a coverage must be in (0, 1], not {coverage}")
    return max(1, round(coverage * rows))


def kept_weights(uncertainty: ArrayLike, coverage: float) -> Floats:
    """Each row's chance of being kept, if ties at the cut are drawn at random.  # (n,)

    Certain rows have 1, uncertain rows 0, and the tied group at the cut shares what is left.
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
