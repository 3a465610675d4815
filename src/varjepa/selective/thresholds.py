"""How uncertain a row may be and still be answered: thresholds with finite-sample guarantees.

Pure functions of the calibration rows' uncertainties and errors. Calibration rows must be drawn
independently from the same population as later rows, and neither classifier nor uncertainty may
have seen them. Nothing else is assumed: not that the uncertainty is any good, not that it has no
ties, not that risk rises with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom


@dataclass(frozen=True, slots=True)
class Threshold:
    """Rows with an uncertainty at or below ``value`` are answered."""

    value: float
    """∞ answers every row, −∞ none"""
    rows: int
    """calibration rows"""
    accepted: int
    """how many of them are answered"""


def coverage_threshold(uncertainty: ArrayLike, coverage: float) -> Threshold:
    """Answer at least this share of rows, in expectation (the split-conformal quantile).

    The threshold is the k-th smallest of n uncertainties, k = ⌈coverage · (n + 1)⌉, or ∞ if k > n.
    A new row is exchangeable with the n, so its rank among all n + 1 is at most k with probability
    at least k / (n + 1) ≥ coverage; without ties it is exactly that, less than 1 / (n + 1) above
    what was asked for. ``coverage_interval`` says how far a single calibration can be off.

    Examples:
        >>> coverage_threshold([0.1, 0.2, 0.3, 0.4], coverage=0.6)
        Threshold(value=0.3, rows=4, accepted=3)
    """
    scores = np.sort(np.asarray(uncertainty, dtype=np.float64))
    n = len(scores)
    k = _conformal_rank(n, coverage)
    value = float(scores[k - 1]) if k <= n else math.inf
    return Threshold(value, n, int(np.searchsorted(scores, value, side="right")))


def coverage_interval(rows: int, coverage: float, confidence: float) -> tuple[float, float]:
    """Where the share of answered rows lies, with this probability over calibration draws.

    Without ties the share is Beta(k, n + 1 − k); the interval has equal tails. Ties at the
    threshold are all answered and can only raise the share: the lower end holds always.

    Examples:
        >>> [round(end, 3) for end in coverage_interval(1000, 0.8, confidence=0.95)]
        [0.775, 0.824]
    """
    k = _conformal_rank(rows, coverage)
    if k > rows:
        return 1.0, 1.0
    tail = (1 - confidence) / 2
    low, high = beta.ppf((tail, 1 - tail), k, rows + 1 - k)
    return float(low), float(high)


def risk_threshold(
    errors: ArrayLike, uncertainty: ArrayLike, target_risk: float, confidence: float
) -> Threshold:
    """Answer as many rows as can be certified to have an error rate of at most ``target_risk``.

    With probability at least ``confidence`` over the n calibration rows, R(τ) ≤ α, where R(t) is
    the error rate of rows with an uncertainty at or below t, τ the threshold returned, and
    α = ``target_risk``. If nothing can be certified, τ = −∞: no row is answered.

    How: walk from certain to uncertain rows. With S_m errors among the m most certain rows, step m
    is passed if p_m = P(Bin(m, α) ≤ S_m) is at most a level; the walk dies at the first step that
    is not. Walks start at J places fixed beforehand (n, n/2, n/4, … rows), at level δ/J each, where
    δ = 1 − confidence; a living walk that reaches another start adds that start's δ/J to its level.
    τ is the last value passed.

    Why it holds: break ties at random for the argument, so that R is continuous; call the open
    intervals of thresholds with R > α bad (only those that reach α + ε, which are finitely many; in
    the end ε → 0), and the closed intervals between them good. At a good interval's ends R = α.
    A start of k − 1 rows begins just below s, the k-th smallest uncertainty. A bad threshold can
    only be passed in two ways. (1) The first walk to do so began in a bad interval: given s, the
    k − 1 rows below it are independent with error rate R(s) > α, so this has probability at most
    δ/J. (2) It began in a good one and passed its right end r, at a level of δ/J for each start in
    this interval at most. Since R = α at both ends, rows below the left end and rows inside both
    have error rate α. So given how many there are of either, which also fixes the number of starts
    inside, S is Bin(m, α), and p_m is at or below the level with at most that probability. Each
    start is charged its δ/J once, wherever it falls; the sum is δ.
    Real ties: errors are put first within a tie, which makes every p_m at least as large as any
    random order would, and τ is only taken at the end of a tie. So row order does not matter.

    Examples:
        >>> errors = np.arange(1000) % 10 == 9
        >>> risk_threshold(errors, np.where(errors, 0.9, 0.1), target_risk=0.05, confidence=0.95)
        Threshold(value=0.1, rows=1000, accepted=900)
    """
    wrong = np.asarray(errors, dtype=np.int64)
    scores = np.asarray(uncertainty, dtype=np.float64)
    order = np.lexsort((-wrong, scores))  # errors first within a tie
    scores = scores[order]
    n, delta = len(scores), 1 - confidence
    starts = walk_starts(n, target_risk, delta)
    if not starts:
        return Threshold(-math.inf, n, 0)
    m = np.arange(1, n + 1)
    p = binom.cdf(np.cumsum(wrong[order]), m, target_risk)  # (n,)
    ends_tie = np.append(scores[1:] > scores[:-1], True)
    certified = _walk(p * len(starts) / delta, frozenset(starts), ends_tie)
    value = math.inf if certified == n else float(scores[certified - 1]) if certified else -math.inf
    return Threshold(value, n, certified)


def walk_starts(rows: int, target_risk: float, delta: float) -> tuple[int, ...]:
    """Numbers of rows from which a walk starts: n, n/2, … as long as a row without error passes."""
    starts: list[int] = []
    while (m := rows >> len(starts)) and (1 - target_risk) ** m * (len(starts) + 1) <= delta:
        starts.append(m)
    return tuple(starts)


def rows_needed(target_risk: float, confidence: float) -> int:
    """Fewest calibration rows with which a target can be certified, if none of them is an error.

    Examples:
        >>> rows_needed(target_risk=0.05, confidence=0.95)
        59
    """
    return max(1, math.ceil(math.log(1 - confidence) / math.log1p(-target_risk)))


def _walk(p: NDArray[np.float64], starts: frozenset[int], ends_tie: NDArray[np.bool_]) -> int:
    """Most rows certified; p in units of one start's level."""
    n, certified, level = len(p), 0, 0
    for m in range(1, n + 1):
        begins = m in starts
        allowed = level or int(begins)
        if not allowed or p[m - 1] > allowed:
            level = 0
            continue
        # the first step of a walk only certifies what lies just below the next row, so it waits
        # for the second; from n there is no next row
        if ends_tie[m - 1] and (level or m == n):
            certified = m
        level += begins
    return certified


def _conformal_rank(rows: int, coverage: float) -> int:
    return math.ceil(coverage * (rows + 1) - 1e-9)  # .8 · 10 must not become 9 by rounding
