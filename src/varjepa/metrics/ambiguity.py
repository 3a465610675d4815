"""How well an uncertainty finds the rows that are known to be ambiguous."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score


def spearman(uncertainty: ArrayLike, ambiguity: ArrayLike) -> float:
    """Rank correlation; 0 where either is constant, since ranks then say nothing."""
    first, second = np.asarray(uncertainty), np.asarray(ambiguity)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(spearmanr(first, second).statistic)


def auroc_of_ambiguous(
    uncertainty: ArrayLike, ambiguity: ArrayLike, quantile: float = 0.75
) -> float:
    """AUROC for telling rows at or above the ambiguity's quantile from the others."""
    truth = np.asarray(ambiguity)
    return float(roc_auc_score(truth >= np.quantile(truth, quantile), uncertainty))
