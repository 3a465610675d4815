"""How well an uncertainty finds the rows that are known to be ambiguous."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score


def spearman(uncertainty: ArrayLike, ambiguity: ArrayLike) -> float:
    """Spearman's rank correlation; 0 where either side is constant, because it has no ranks.

    Examples:
        >>> spearman([0.1, 0.2, 0.9], [1, 2, 3]), spearman([0.5, 0.5, 0.5], [1, 2, 3])
        (1.0, 0.0)
    """
    first, second = np.asarray(uncertainty), np.asarray(ambiguity)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(spearmanr(first, second).statistic)


def auroc_of_ambiguous(
    uncertainty: ArrayLike, ambiguity: ArrayLike, quantile: float = 0.75
) -> float:
    """P(u_i > u_j) for a row i at or above the ambiguity's quantile and a row j below it.

    Examples:
        >>> auroc_of_ambiguous([0.1, 0.3, 0.2, 0.9], [0, 0, 1, 1], quantile=0.5)
        0.75
    """
    truth = np.asarray(ambiguity)
    return float(roc_auc_score(truth >= np.quantile(truth, quantile), uncertainty))
