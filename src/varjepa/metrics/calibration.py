"""Calibration of intervals on held-out values (split conformal prediction)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Coverages that levels are calibrated for; others are interpolated."""

PRIOR_VALUES = 30
"""A column's level is averaged with that of all columns as if those had so many values."""


CAUTION = 0.015
"""How much more than the coverage a level below it may cover: see :func:`calibrate_levels`."""


def calibrate_levels(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """For every column and coverage, the level whose intervals cover that share of new values.

    ``scores`` are the smallest levels whose intervals hold the values, NaN for no value. A level is
    the (1 + 1/n) · coverage quantile of n scores. Where that is below the coverage itself, the
    model's own intervals are wide enough, and they are narrowed a little less: a column of few
    different values would else lose the rarer ones everywhere.

    Columns with few values lean on all columns together, and those on the level that a perfect
    model would have: the coverage itself.

    Shape: ``scores (N, F)`` → ``(F, len(COVERAGES))``.

    Examples:
        >>> uniform = (np.arange(1000).reshape(-1, 1) + 0.5) / 1000
        >>> calibrate_levels(uniform).round(2).tolist()
        [[0.5, 0.8, 0.9, 0.95, 0.99]]
    """
    nominal = np.array(COVERAGES)
    columns = [column[~np.isnan(column)] for column in scores.T]
    together = _leaning(np.concatenate([*columns, np.empty(0)]), nominal)
    return np.array([_leaning(column, together) for column in columns]).reshape(-1, len(nominal))


def level_for(levels: NDArray[np.float64], coverage: float) -> NDArray[np.float64]:
    """Each column's level for any coverage.  # (F, len(COVERAGES)) → (F,)"""
    at = (0.0, *COVERAGES, 1.0)
    return np.array([np.interp(coverage, at, (0.0, *one, 1.0)) for one in levels])


def _leaning(scores: NDArray[np.float64], prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles of n scores, averaged with a prior that counts as much as a few scores."""
    n = len(scores)
    if not n:
        return prior
    nominal = np.array(COVERAGES)
    least, most = (
        np.quantile(scores, np.minimum(1.0, (1.0 + 1.0 / n) * share), method="inverted_cdf")
        for share in (nominal, nominal + CAUTION)
    )
    found = np.maximum(least, np.minimum(most, nominal))
    return (n * found + PRIOR_VALUES * prior) / (n + PRIOR_VALUES)
