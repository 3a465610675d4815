"""p-values of scores that contain unusual ones, and which of them are discoveries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import bisect

Floats = NDArray[np.float64]

BULK, TAIL = 0.6, 0.9
"""Quantiles between which a tail's scale is measured: errors are the top few per cent."""

USUAL_SHARE = 0.02
"""Share of errors up to which that holds. Of what a column has beyond it, the largest scores are
left out first."""

MIN_SCALE = 0.5
"""Of log odds, at least. Theory bounds it by 1 only from above (exp(score) has a mean of about 1
under the null); .5 was picked by trial, see benchmarks/LOG.md."""

PRIOR_VALUES, PRIOR_SHARE = 5, 0.005
"""A column's tail is averaged with exp(−score) as if that had so many values, or such a share of
the column's: a column of 10,000 rows has as large a share of rare but right values as one of 1,000.
See benchmarks/LOG.md."""


class ExponentialTail:
    """Null distribution of scores: what was seen up to a quantile, exponential beyond it.

    The table that scores come from has errors, which are among the largest scores. So the largest
    tenth is not looked at: the scale is that of the values before it, or larger. A score is log
    odds, so exp(−score) is about a p-value by itself (Markov); it has the say where values are few.
    The scores also say how many errors a column has; what is unusual of them is left out first. If
    ``are_odds`` is False, none of this holds, and the tail alone counts.
    """

    def __init__(self, scores: Floats, are_odds: bool = True):
        known = np.sort(scores[~np.isnan(scores)])
        unusual = max(0.0, error_share(known) - USUAL_SHARE) if are_odds else 0.0
        known = known[: len(known) - int(unusual * len(known))]
        self.values = known[: max(1, int(TAIL * len(known)))]
        self.count = len(known)
        self.prior = max(PRIOR_VALUES, PRIOR_SHARE * self.count) if are_odds else 0.0
        min_scale = MIN_SCALE if are_odds else 1e-9
        self.start, self.scale = 0.0, min_scale
        if len(known):
            low, self.start = np.quantile(known, [BULK, TAIL])
            measured = (self.start - low) / np.log((1.0 - BULK) / (1.0 - TAIL))
            self.scale = max(min_scale, float(measured))

    def p_values(self, scores: Floats) -> Floats:
        """Chance of such a score or a larger one; NaN stays."""
        with np.errstate(over="ignore", invalid="ignore"):
            beyond = (1.0 - TAIL) * np.exp(-np.maximum(scores - self.start, 0.0) / self.scale)
            rank = np.searchsorted(self.values, scores) if self.count else np.zeros(scores.shape)
            within = 1.0 - rank / max(self.count, 1)
            p = np.where(scores > self.start, beyond, np.maximum(within, beyond))
            bound = np.exp(-np.maximum(scores, 0.0))
        mixed = (self.count * p + self.prior * bound) / max(self.count + self.prior, 1)
        return np.where(np.isnan(scores), np.nan, np.clip(mixed, MIN_P, 1.0))


def error_share(log_odds: Floats) -> float:
    """The likeliest share π of errors among cells of which the log odds T of an error are known.

    It maximises Σ log(1 − π + π exp(T)), which is concave in π. Where exp(T) has a mean of at most
    1, as without errors, it is 0.

    Examples:
        >>> error_share(np.array([-2.0] * 90 + [5.0] * 10))
        0.1095...
        >>> error_share(np.array([-2.0] * 99 + [3.0]))
        0.0
    """
    excess = np.expm1(np.minimum(log_odds, LARGEST_ODDS))

    def slope(share: float) -> float:
        return float(np.mean(excess / (1.0 + share * excess)))

    if not len(excess) or slope(0.0) <= 0.0:
        return 0.0
    if slope(MOST_ERRORS) >= 0.0:
        return MOST_ERRORS
    return float(bisect(slope, 0.0, MOST_ERRORS, xtol=1e-4))


LARGEST_ODDS = 50.0
"""Keeps exponentials finite."""

MOST_ERRORS = 0.5
"""Beyond it, nobody knows which of the values are right."""

MIN_P = 1e-300
"""Keeps logarithms finite."""


def benjamini_hochberg(p_values: Floats, level: float, tests: int | None = None) -> float:
    """The largest p-value that is a discovery; −1 if none is.

    Of the discoveries, a share of at most ``level`` is expected to be false. ``tests`` counts all
    tests where only the smallest p-values are given.

    Examples:
        >>> benjamini_hochberg(np.array([0.001, 0.02, 0.2, 0.9]), 0.05)
        0.02
    """
    p = np.sort(p_values[~np.isnan(p_values)])
    count = len(p) if tests is None else tests
    passed = np.flatnonzero(p <= level * np.arange(1, len(p) + 1) / max(count, 1))
    return float(p[passed[-1]]) if len(passed) else -1.0
