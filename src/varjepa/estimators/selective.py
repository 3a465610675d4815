"""SelectiveClassifier: any classifier, answering only where it is likely to be right."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.utils import Tags, _safe_indexing, assert_all_finite, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from varjepa.errors import InputError
from varjepa.metrics.combination import CombinedScore, add_to_confidence
from varjepa.metrics.confidence import one_minus_margin, one_minus_msp, predictive_entropy
from varjepa.metrics.selective import risk_coverage

Floats = NDArray[np.float64]
AbstainBy = Any
"""a name, a function of classifier and X, or a VarTJEPA"""

FROM_PROBABILITIES: dict[str, Callable[[ArrayLike], Floats]] = {
    "confidence": one_minus_msp,
    "margin": one_minus_margin,
    "entropy": predictive_entropy,
}

LATENT = (
    ("unpredictable", "mean"), ("atypical", "mean"), ("ambiguous", "mean"), ("posterior", "mean"),
    ("predictive", "geometric"), ("surprise", "mean"), ("nll", "mean"),
)  # fmt: skip
"""Latent scores that are combined with the confidence."""

FOLDS = 5
FEWEST_ROWS = 50
"""From which on predictions of the classifier's own training rows say anything."""
CALIBRATION_ROWS = 1000
"""Calibration rows for ``target_risk``, where they are no more than half of all."""

FEW_ROWS = 100
"""Tables of fewer rows leave the classifier three quarters: half may lack a whole class."""


def check_abstain_by(abstain_by: AbstainBy) -> None:
    """One of the named uncertainties, a function, or a model with latent uncertainties."""
    if callable(abstain_by) or hasattr(abstain_by, "uncertainties"):
        return
    if not isinstance(abstain_by, str) or abstain_by not in FROM_PROBABILITIES:
        names = ", ".join(FROM_PROBABILITIES)
        raise InputError(
            f"abstain_by must be one of {names}, a function or a VarTJEPA, not {abstain_by!r}"
        )


def uncertainty_of(estimator: Any, X: Any, abstain_by: AbstainBy) -> Floats:
    """One number per row, larger for less certain rows.  # (n,)"""
    if callable(abstain_by):
        return _one_per_row(abstain_by(estimator, X), X)
    if hasattr(estimator, "predict_proba"):
        return FROM_PROBABILITIES[abstain_by](estimator.predict_proba(X))
    if abstain_by == "entropy" or not hasattr(estimator, "decision_function"):
        raise InputError(
            f"abstain_by={abstain_by!r} needs a classifier with predict_proba, which "
            f"{type(estimator).__name__} does not have"
        )
    # without probabilities, the lead of the winning class is the only scale there is
    decisions = np.asarray(estimator.decision_function(X), dtype=np.float64)
    if decisions.ndim == 1:
        return -np.abs(decisions)
    lead = np.sort(decisions, axis=1)
    return lead[:, -2] - lead[:, -1]


def _one_per_row(uncertainty: ArrayLike, X: Any) -> Floats:
    values = np.asarray(uncertainty, dtype=np.float64)
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if values.shape != (rows,):
        raise InputError(
            f"the abstain_by function must give one number for each of {rows} rows, "
            f"not an array of shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise InputError("the abstain_by function gave uncertainties that are not finite")
    return values


# --- How uncertain a row may be and still be answered: thresholds with finite-sample guarantees.
#
# Pure functions of the calibration rows' uncertainties and errors. Calibration rows must be drawn
# independently from the same population as later rows, and neither classifier nor uncertainty may
# have seen them. Nothing else is assumed: not that the uncertainty is any good, not that it has no
# ties, not that risk rises with it.


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
    errors: ArrayLike,
    uncertainty: ArrayLike,
    target_risk: float,
    confidence: float,
    start: float | None = None,
) -> Threshold:
    """Answer as many rows as can be certified to have an error rate of at most ``target_risk``.

    With probability at least ``confidence`` over the n calibration rows, R(τ) ≤ α, where R(t) is
    the error rate of rows with an uncertainty at or below t, τ the threshold returned, and
    α = ``target_risk``. If nothing can be certified, τ = −∞: no row is answered.

    How: walk from certain to uncertain rows. With S_m errors among the m most certain rows, step m
    is passed if p_m = P(Bin(m, α) ≤ S_m) is at most a level; the walk dies at the first step that
    is not. Walks start at J places fixed beforehand, at level δ/J each, where δ = 1 − confidence; a
    living walk that reaches another start adds that start's δ/J to its level. τ is the last value
    passed. The places are n, n/2, n/4, … rows; or, with ``start``, one alone that has all of δ: the
    rows with an uncertainty at or below ``start``. That is less conservative, and just as valid if
    ``start`` was chosen without the calibration rows, as :func:`promising_start` does on others.

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
    A given ``start`` is a threshold itself: if it is bad, the rows at or below it are independent
    with error rate R(start) > α, and all of δ is charged to it.
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
    m = np.arange(1, n + 1)
    p = binom.cdf(np.cumsum(wrong[order]), m, target_risk)  # (n,)
    ends_tie = np.append(scores[1:] > scores[:-1], True)
    if start is None:
        starts = walk_starts(n, target_risk, delta)
        certified = _walk(p * len(starts) / delta, frozenset(starts), ends_tie)
    else:
        first = int(np.searchsorted(scores, start, side="right"))
        certified = _walk_from(first, p <= delta, ends_tie)
    if certified in (0, n):
        return Threshold(math.inf if certified else -math.inf, n, certified)
    value = float(scores[certified - 1])
    # below the start nothing is certified
    return Threshold(value if start is None else max(value, start), n, certified)


def walk_starts(rows: int, target_risk: float, delta: float) -> tuple[int, ...]:
    """Numbers of rows from which a walk starts: n, n/2, … as long as a row without error passes."""
    starts: list[int] = []
    while (m := rows >> len(starts)) and (1 - target_risk) ** m * (len(starts) + 1) <= delta:
        starts.append(m)
    return tuple(starts)


def promising_start(errors: ArrayLike, uncertainty: ArrayLike, target_risk: float) -> float:
    """The uncertainty at which a walk is most likely to pass its first step.

    That is where (α − R(c)) √c, the distance to the target in standard errors, is largest; R is the
    risk at coverage c of rows that the threshold is not calibrated on. Coverages below a twentieth,
    whose risk is hardly known, do not count.

    Examples:
        >>> errors = np.arange(100) >= 60
        >>> promising_start(errors, np.arange(100), target_risk=0.2)
        59.0
    """
    share, _ = _most_promising(errors, uncertainty, target_risk)
    scores = np.sort(np.asarray(uncertainty, dtype=np.float64))
    return float(scores[round(share * len(scores)) - 1])


def _most_promising(
    errors: ArrayLike, uncertainty: ArrayLike, target_risk: float
) -> tuple[float, float]:
    """Coverage and risk there."""
    curve, scores = risk_coverage(errors, uncertainty), np.sort(np.asarray(uncertainty))
    counts = np.append(scores[1:] > scores[:-1], True) & (curve.coverage >= SMALLEST_START)
    gap = (target_risk - curve.risk) * np.sqrt(curve.coverage)
    best = int(np.argmax(np.where(counts, gap, -1.0)))
    return float(curve.coverage[best]), float(curve.risk[best])


SMALLEST_START = 0.05
MOST_ROWS_NEEDED = 10**6


def rows_that_would_do(
    errors: ArrayLike, uncertainty: ArrayLike, target_risk: float, confidence: float
) -> int | None:
    """Calibration rows with which a target could be certified, if risks are those of these rows.

    The number with which a walk from the most promising start passes its first step in four of five
    cases; None where no risk is below the target, or a million rows would not do.
    """
    share, seen = _most_promising(errors, uncertainty, target_risk)
    n = len(np.asarray(errors))
    risk = (seen * share * n + 0.5) / (share * n + 1)  # no error in a few rows is not yet none
    rows = max(n + 1, rows_needed(target_risk, confidence))
    while risk < target_risk and rows <= MOST_ROWS_NEEDED:
        answered = round(share * rows)
        likely_errors = risk * answered + 0.84 * math.sqrt(risk * (1 - risk) * answered)
        if binom.cdf(math.ceil(likely_errors), answered, target_risk) <= 1 - confidence:
            return rows
        rows = math.ceil(1.05 * rows)
    return None


Others = tuple[ArrayLike, ArrayLike] | None
"""Errors and uncertainties of rows that do not calibrate, which choose where a walk starts."""


def start_for(others: Others, target_risk: float) -> float | None:
    """Where the walk for a target starts; None: at all usual places."""
    return None if others is None else promising_start(*others, target_risk)


def reachable_risk(
    errors: ArrayLike, uncertainty: ArrayLike, confidence: float, others: Others
) -> float | None:
    """The smallest error rate, in hundredths, that these rows certify at any threshold."""
    for hundredths in range(1, 100):
        risk = hundredths / 100
        start = start_for(others, risk)
        if risk_threshold(errors, uncertainty, risk, confidence, start).accepted:
            return risk
    return None


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


def _walk_from(first: int, passed: NDArray[np.bool_], ends_tie: NDArray[np.bool_]) -> int:
    """Most rows certified by one walk that starts with the first so many."""
    if not first:
        return 0
    alive = np.logical_and.accumulate(passed[first - 1 :]) & ends_tie[first - 1 :]
    steps = np.flatnonzero(alive)
    return first + int(steps[-1]) if len(steps) else 0


def _conformal_rank(rows: int, coverage: float) -> int:
    return math.ceil(coverage * (rows + 1) - 1e-9)  # .8 · 10 must not become 9 by rounding


# --- Guarantees in plain words: what a threshold promises, or why it promises nothing.


def coverage_sentence(
    threshold: Threshold, coverage: float, interval: tuple[float, float], confidence: float
) -> str:
    low, high = (_percent(round(end, 3)) for end in interval)
    return (
        f"A new row is answered with a chance of at least {_percent(coverage)}; with "
        f"{_percent(confidence)} confidence {low} to {high} of rows are, or more where "
        f"uncertainties tie ({threshold.rows} calibration rows)."
    )


def risk_sentence(threshold: Threshold, target_risk: float, confidence: float) -> str:
    return (
        f"With {_percent(confidence)} confidence at most {_percent(target_risk)} of the answered "
        f"rows are wrong ({threshold.rows} calibration rows)."
        if threshold.accepted
        else f"No row is answered: an error rate of {_percent(target_risk)} cannot be certified "
        f"with {_percent(confidence)} confidence."
    )


def risk_advice(
    errors: ArrayLike, uncertainty: ArrayLike, target_risk: float, confidence: float, others: Others
) -> str:
    """What would help where no row is answered; the figures are estimates, not promises."""
    rows, needed = len(np.asarray(errors)), rows_needed(target_risk, confidence)
    if rows < needed:
        return f"There are {rows} calibration rows; at least {needed} are needed."
    enough = rows_that_would_do(errors, uncertainty, target_risk, confidence)
    reachable = reachable_risk(errors, uncertainty, confidence, others)
    advice = (
        f"More rows would not help: no part of the {rows} calibration rows has a lower error rate."
        if enough is None
        else f"About {enough} calibration rows would be needed, there are {rows}."
    )
    if reachable is not None:
        advice += f" With these, target_risk={reachable:.2g} can be reached."
    return advice


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"


# --- SelectiveClassifier: any scikit-learn classifier, answering only where it can be relied on.


def _inner_has(name: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(getattr(self, "estimator_", self.estimator), name)


class SelectiveClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier that abstains, with a finite-sample guarantee from calibration rows.

    Give one of two promises. Both assume that calibration rows and later rows are independent draws
    from one population; nothing is assumed about the classifier or its uncertainty.

    ``coverage``: a later row is answered with probability at least ``coverage``, on average over
    calibration draws; without ties less than 1 / (n + 1) more, n being the calibration rows.
    ``coverage_interval_`` holds the realised share with probability ``confidence``.

    ``target_risk``: with probability at least ``confidence`` over calibration draws, the error rate
    of answered rows is at most ``target_risk``. If no threshold can be certified, every row is
    abstained from, and ``fit`` warns once, with what would help. Where the classifier is fitted
    here, it is also fitted five times for predictions of its own training rows, which say where the
    search for the threshold starts. ``varjepa.estimators.selective`` has the proofs.

    ``predict`` answers every row, as scikit-learn expects; ``accepts`` says which answers the
    promise covers; ``predict_or_abstain`` puts ``abstain_label`` in the place of the others.
    ``score`` is the accuracy on accepted rows, ``answered_share`` how many there are.

    Calibration rows are, in this order: ``X_cal, y_cal`` if given to ``fit``; all rows, if the
    estimator is a ``sklearn.frozen.FrozenEstimator`` (fitted before, on other rows); else a random
    ``calibration_share`` of the rows, which the classifier then does not see.

    ``abstain_by=VarTJEPA()`` adds the latent uncertainties of a model to the classifier's
    confidence: where, and only where, that foresees errors clearly better than the confidence alone
    (:func:`varjepa.metrics.combination.add_to_confidence`). The weights are learned from errors on
    rows that do not calibrate; of a frozen classifier, all rows but ``calibration_share`` of them.

    Args:
        estimator: the classifier; it is cloned, then fitted.
        coverage: share of rows to answer, in (0, 1].
        target_risk: error rate allowed among answered rows, in (0, 1).
        confidence: probability with which the promise about this calibration holds.
        abstain_by: "confidence" (one minus the largest probability), "margin", "entropy"; a
            function of the fitted classifier and X that gives an uncertainty per row, and that was
            not itself fitted on calibration rows; or a ``VarTJEPA``, which is cloned and fitted to
            the rows that the classifier learns from, or a ``FrozenEstimator`` of one that was
            fitted to other rows.
        calibration_share: share of the rows of ``fit`` kept for calibration. None: a quarter; for
            ``target_risk`` up to a half of 100 rows or more, if that makes no more than 1,000.
        abstain_label: what ``predict_or_abstain`` gives for abstained rows; not one of the classes.
        random_state: seed of the random split.

    Attributes:
        estimator_: the fitted classifier.
        latent_, combined_: where ``abstain_by`` is a ``VarTJEPA``, the fitted one, and how its
            scores count: ``combined_.chosen`` is "linear" where they are added to the confidence,
            "confidence" where that stays alone. Else None.
        threshold_: rows with an uncertainty at or below it are answered.
        calibration_: the threshold with the numbers of calibration rows and of accepted ones.
        calibration_risk_: error rate of the accepted calibration rows; NaN if there are none.
        coverage_interval_: see above; None where the promise is about risk.
        guarantee_: the promise in one sentence.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = SelectiveClassifier(
        ...     GaussianNB(), target_risk=0.1, calibration_share=0.5, random_state=0
        ... )
        >>> print(model.fit(X[:400], y[:400]).guarantee_)
        With 95% confidence at most 10% of the answered rows are wrong (200 calibration rows).
        >>> answered = model.accepts(X[400:])
        >>> bool(np.mean(model.predict(X[400:])[answered] != y[400:][answered]) <= 0.1)
        True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        coverage: float | None = None,
        target_risk: float | None = None,
        confidence: float = 0.95,
        abstain_by: AbstainBy = "confidence",
        calibration_share: float | None = None,
        abstain_label: Any = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.target_risk = target_risk
        self.confidence = confidence
        self.abstain_by = abstain_by
        self.calibration_share = calibration_share
        self.abstain_label = abstain_label
        self.random_state = random_state

    def fit(
        self, X: Any, y: ArrayLike, *, X_cal: Any = None, y_cal: ArrayLike | None = None
    ) -> SelectiveClassifier:
        """Fit the classifier, then find the threshold on rows it has not seen."""
        self._check_parameters()
        if (X_cal is None) != (y_cal is None):
            raise InputError("X_cal and y_cal belong together: give both or neither")
        labels = _labels(X, y)
        is_frozen = isinstance(self.estimator, FrozenEstimator)
        if y_cal is not None:
            X_fit, y_fit, y_held = X, labels, _labels(X_cal, y_cal)
        elif is_frozen and not self._has_latent:
            X_fit, y_fit, X_cal, y_held = X, labels, X, labels
        else:
            X_fit, X_cal, y_fit, y_held = self._split(X, labels)
        estimator = clone(self.estimator).fit(X_fit, y_fit)
        if self.abstain_label is not None and self.abstain_label in estimator.classes_.tolist():
            raise InputError(
                f"abstain_label {self.abstain_label!r} is one of the classes: choose another"
            )
        latent = combined = None
        others: Others = None
        if self._has_latent or (self.target_risk is not None and not is_frozen):
            own_by: AbstainBy = "confidence" if self._has_latent else self.abstain_by
            own, own_wrong = self._out_of_sample(estimator, X_fit, y_fit, own_by)
            if self._has_latent:
                latent = clone(self.abstain_by).fit(X_fit, None)
                parts = _latent_parts(latent, X_fit, own)
                combined = add_to_confidence(parts, own_wrong)
                own = combined(parts)
            others = (own_wrong, own) if len(np.unique(own)) > 1 else None
        uncertainty = self._uncertainty(X_cal, estimator, latent, combined)
        wrong = np.asarray(estimator.predict(X_cal) != y_held)
        # only now does the object change, so a failed fit leaves it as it was
        self.estimator_, self.latent_, self.combined_ = estimator, latent, combined
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))
        self._calibrate(uncertainty, wrong, others)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The classifier's answer for every row, accepted or not.  # (n,)"""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    @available_if(_inner_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """The classifier's probabilities.  # (n, classes)"""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @available_if(_inner_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """The classifier's decision function."""
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    def uncertainty(self, X: Any) -> Floats:
        """What rows are ranked by, larger for less certain rows.  # (n,)"""
        check_is_fitted(self)
        return self._uncertainty(X, self.estimator_, self.latent_, self.combined_)

    def accepts(self, X: Any) -> NDArray[np.bool_]:
        """Which rows are answered under the guarantee.  # (n,)"""
        return self.uncertainty(X) <= self.threshold_

    def predict_or_abstain(self, X: Any) -> NDArray[Any]:
        """Answers for accepted rows, ``abstain_label`` for the others.  # (n,)

        An ``abstain_label`` of the classes' own kind (−1 among integers, "unsure" among strings)
        keeps their dtype; any other, None too, makes the array one of objects.
        """
        accepted = self.accepts(X)
        answers = np.asarray(self.predict(X))
        label = np.asarray(self.abstain_label)
        if label.dtype.kind == answers.dtype.kind != "O":
            return np.where(accepted, answers, label)
        mixed = answers.astype(object)
        mixed[~accepted] = self.abstain_label
        return mixed

    def answered_share(self, X: Any) -> float:
        """Share of rows that are answered: the coverage."""
        return float(self.accepts(X).mean())

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy on the accepted rows; NaN where none is accepted.

        A search by this score (``GridSearchCV``) compares classifiers at different coverages, and
        passes over those that answer nothing. The accuracy on all rows is
        ``accuracy_score(y, model.predict(X))``.
        """
        accepted = self.accepts(X)
        if not accepted.any():
            return float("nan")
        right = np.asarray(self.predict(X) == _labels(X, y))[accepted]
        weights = None if sample_weight is None else np.asarray(sample_weight)[accepted]
        return float(np.average(right, weights=weights))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags  # X goes to the classifier as it comes
        tags.classifier_tags = inner.classifier_tags
        return tags

    def _check_parameters(self) -> None:
        if (self.coverage is None) == (self.target_risk is None):
            raise InputError("give exactly one of coverage and target_risk")
        if self.coverage is not None and not 0 < self.coverage <= 1:
            raise InputError(f"coverage must be in (0, 1], not {self.coverage}")
        for name in ("target_risk", "confidence", "calibration_share"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise InputError(f"{name} must be between 0 and 1, not {value}")
        check_abstain_by(self.abstain_by)

    @property
    def _has_latent(self) -> bool:
        return hasattr(self.abstain_by, "uncertainties")

    def _split(self, X: Any, labels: NDArray[Any]) -> Any:
        """A plain random split: one stratified by class would no longer be independent draws."""
        if len(labels) < 2:
            raise InputError("1 sample cannot be split into rows to fit and rows to calibrate on")
        share = self.calibration_share
        if share is None:
            share = 0.25
            if self.target_risk is not None and len(labels) >= FEW_ROWS:
                share = min(0.5, max(share, CALIBRATION_ROWS / len(labels)))
        return train_test_split(X, labels, test_size=share, random_state=self.random_state)

    def _out_of_sample(
        self, estimator: Any, X: Any, y: NDArray[Any], abstain_by: AbstainBy
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Uncertainty and error of each row, from classifiers that have not seen it.

        A frozen classifier has seen none of them. Zeros where there are too few rows to learn from.
        """
        if isinstance(self.estimator, FrozenEstimator):
            return uncertainty_of(estimator, X, abstain_by), estimator.predict(X) != y
        uncertainty, wrong = np.zeros(len(y)), np.zeros(len(y), dtype=bool)
        counts = np.sort(np.unique(y, return_counts=True)[1])[::-1]
        if len(y) < FEWEST_ROWS or counts[0] < FOLDS or counts[1:2].sum() < 2:
            return uncertainty, wrong
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # classes with fewer rows than folds
            parts = list(folds.split(np.zeros(len(y)), y))
        X = indexable(X)[0]
        for fit, asked in parts:
            one = clone(self.estimator).fit(_safe_indexing(X, fit), y[fit])
            rows = _safe_indexing(X, asked)
            uncertainty[asked] = uncertainty_of(one, rows, abstain_by)
            wrong[asked] = one.predict(rows) != y[asked]
        return uncertainty, wrong

    def _uncertainty(
        self, X: Any, estimator: Any, latent: Any, combined: CombinedScore | None
    ) -> Floats:
        if combined is None:
            return uncertainty_of(estimator, X, self.abstain_by)
        return combined(_latent_parts(latent, X, uncertainty_of(estimator, X, "confidence")))

    def _calibrate(self, uncertainty: Floats, wrong: NDArray[np.bool_], others: Others) -> None:
        self.coverage_interval_: tuple[float, float] | None = None
        if self.coverage is not None:
            threshold = coverage_threshold(uncertainty, self.coverage)
            ends = coverage_interval(threshold.rows, self.coverage, self.confidence)
            self.coverage_interval_ = ends
            self.guarantee_ = coverage_sentence(threshold, self.coverage, ends, self.confidence)
        else:
            assert self.target_risk is not None
            asked = (self.target_risk, self.confidence)
            threshold = risk_threshold(
                wrong, uncertainty, *asked, start_for(others, self.target_risk)
            )
            self.guarantee_ = risk_sentence(threshold, *asked)
            if not threshold.accepted:
                self.guarantee_ += f" {risk_advice(wrong, uncertainty, *asked, others)}"
        self.calibration_ = threshold
        self.threshold_ = threshold.value
        accepted = uncertainty <= threshold.value
        self.calibration_risk_ = float(wrong[accepted].mean()) if accepted.any() else float("nan")
        if not threshold.accepted:
            warnings.warn(self.guarantee_, UserWarning, stacklevel=3)


def _latent_parts(model: Any, X: Any, confidence: Floats) -> Floats:
    """Latent scores and, last, the confidence.  # (n, parts)"""
    return np.column_stack([*model.uncertainties(X, LATENT).values(), confidence])


def _labels(X: Any, y: ArrayLike) -> NDArray[Any]:
    labels = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_consistent_length(X, labels)
    check_classification_targets(labels)
    return labels
