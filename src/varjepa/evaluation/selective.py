"""Selective prediction: what is gained by leaving out the rows one is least sure of.

Rows are ordered by uncertainty. Rows with equal uncertainty cannot be told apart, so a cut through
a group of ties counts the group's mean: nothing here depends on the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RiskCoverageCurve:
    """Mean loss of the k most certain rows, for k = 1 … n."""

    coverage: Floats  # (n,) k / n
    risk: Floats  # (n,)


def risk_coverage(loss: ArrayLike, uncertainty: ArrayLike) -> RiskCoverageCurve:
    """The curve of any per-row loss (an error indicator, a squared error, …)."""
    losses, scores = _pair(loss, uncertainty)
    order = np.argsort(scores, kind="stable")
    _, group, counts = np.unique(scores[order], return_inverse=True, return_counts=True)
    group_means = np.bincount(group, weights=losses[order]) / counts
    running = np.cumsum(group_means[group])
    k = np.arange(1, len(losses) + 1)
    return RiskCoverageCurve(k / len(losses), running / k)


def risk_at(loss: ArrayLike, uncertainty: ArrayLike, coverage: float) -> float:
    """Mean loss of the most certain share of the rows (at least one)."""
    curve = risk_coverage(loss, uncertainty)
    kept = max(1, round(coverage * len(curve.risk)))
    return float(curve.risk[kept - 1])


def accuracy_at(correct: ArrayLike, uncertainty: ArrayLike, coverage: float) -> float:
    """Accuracy on the most certain share of the rows."""
    return 1.0 - risk_at(1.0 - np.asarray(correct, dtype=np.float64), uncertainty, coverage)


def _pair(loss: ArrayLike, uncertainty: ArrayLike) -> tuple[Floats, Floats]:
    losses = np.asarray(loss, dtype=np.float64)
    scores = np.asarray(uncertainty, dtype=np.float64)
    if losses.ndim != 1 or losses.shape != scores.shape or not len(losses):
        raise ValueError(f"expected two equally long vectors, not {losses.shape}, {scores.shape}")
    if not np.isfinite(scores).all():
        raise ValueError("uncertainties must be finite")
    return losses, scores
