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
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags, assert_all_finite, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from varjepa.errors import InputError
from varjepa.metrics.confidence import one_minus_margin, one_minus_msp, predictive_entropy

Floats = NDArray[np.float64]
AbstainBy = str | Callable[[Any, Any], ArrayLike]

FROM_PROBABILITIES: dict[str, Callable[[ArrayLike], Floats]] = {
    "confidence": one_minus_msp,
    "margin": one_minus_margin,
    "entropy": predictive_entropy,
}


def check_abstain_by(abstain_by: AbstainBy) -> None:
    """One of the named uncertainties, or a function."""
    if not callable(abstain_by) and abstain_by not in FROM_PROBABILITIES:
        names = ", ".join(FROM_PROBABILITIES)
        raise InputError(f"abstain_by must be one of {names} or a function, not {abstain_by!r}")


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


# --- Guarantees in plain words: what a threshold promises, or why it promises nothing.


def coverage_sentence(
    found: Threshold, coverage: float, interval: tuple[float, float], confidence: float
) -> str:
    """What a threshold for a share of answered rows promises."""
    low, high = (_percent(round(end, 3)) for end in interval)
    return (
        f"A new row is answered with a chance of at least {_percent(coverage)}; with "
        f"{_percent(confidence)} confidence {low} to {high} of rows are, or more where "
        f"uncertainties tie ({found.rows} calibration rows)."
    )


def risk_sentence(found: Threshold, target_risk: float, confidence: float) -> str:
    """What a threshold for an error rate promises, or why there is none."""
    sure, target = _percent(confidence), _percent(target_risk)
    if found.accepted:
        return (
            f"With {sure} confidence at most {target} of the answered rows are wrong "
            f"({found.rows} calibration rows)."
        )
    needed = rows_needed(target_risk, confidence)
    why = (
        f"{found.rows} calibration rows are too few, at least {needed} are needed"
        if found.rows < needed
        else f"{found.rows} calibration rows do not show it for any threshold"
    )
    return (
        f"No row is answered: an error rate of {target} cannot be certified with {sure} "
        f"confidence, since {why}."
    )


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
    abstained from, and ``fit`` warns once. ``varjepa.estimators.selective`` has the proofs.

    ``predict`` answers every row, as scikit-learn expects; ``accepts`` says which answers the
    promise covers; ``predict_or_abstain`` puts ``abstain_label`` in the place of the others.

    Calibration rows are, in this order: ``X_cal, y_cal`` if given to ``fit``; all rows, if the
    estimator is a ``sklearn.frozen.FrozenEstimator`` (fitted before, on other rows); else a random
    ``calibration_share`` of the rows, which the classifier then does not see.

    Args:
        estimator: the classifier; it is cloned, then fitted.
        coverage: share of rows to answer, in (0, 1].
        target_risk: error rate allowed among answered rows, in (0, 1).
        confidence: probability with which the promise about this calibration holds.
        abstain_by: "confidence" (one minus the largest probability), "margin", "entropy", or a
            function of the fitted classifier and X that gives an uncertainty per row, and that was
            not itself fitted on calibration rows.
        calibration_share: share of the rows of ``fit`` kept for calibration.
        abstain_label: what ``predict_or_abstain`` gives for abstained rows; not one of the classes.
        random_state: seed of the random split.

    Attributes:
        estimator_: the fitted classifier.
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
        calibration_share: float = 0.25,
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
        if y_cal is not None:
            X_fit, y_fit, y_held = X, labels, _labels(X_cal, y_cal)
        elif isinstance(self.estimator, FrozenEstimator):
            X_fit, y_fit, X_cal, y_held = X, labels, X, labels
        else:
            X_fit, X_cal, y_fit, y_held = self._split(X, labels)
        estimator = clone(self.estimator).fit(X_fit, y_fit)
        if self.abstain_label is not None and self.abstain_label in estimator.classes_.tolist():
            raise InputError(
                f"abstain_label {self.abstain_label!r} is one of the classes: choose another"
            )
        uncertainty = uncertainty_of(estimator, X_cal, self.abstain_by)
        wrong = np.asarray(estimator.predict(X_cal) != y_held)
        # only now does the object change, so a failed fit leaves it as it was
        self.estimator_ = estimator
        self.classes_ = estimator.classes_
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))
        self._calibrate(uncertainty, wrong)
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
        return uncertainty_of(self.estimator_, X, self.abstain_by)

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

    def _split(self, X: Any, labels: NDArray[Any]) -> Any:
        """A plain random split: one stratified by class would no longer be independent draws."""
        if len(labels) < 2:
            raise InputError("1 sample cannot be split into rows to fit and rows to calibrate on")
        return train_test_split(
            X, labels, test_size=self.calibration_share, random_state=self.random_state
        )

    def _calibrate(self, uncertainty: Floats, wrong: NDArray[np.bool_]) -> None:
        self.coverage_interval_: tuple[float, float] | None = None
        if self.coverage is not None:
            found = coverage_threshold(uncertainty, self.coverage)
            ends = coverage_interval(found.rows, self.coverage, self.confidence)
            self.coverage_interval_ = ends
            self.guarantee_ = coverage_sentence(found, self.coverage, ends, self.confidence)
        else:
            assert self.target_risk is not None
            found = risk_threshold(wrong, uncertainty, self.target_risk, self.confidence)
            self.guarantee_ = risk_sentence(found, self.target_risk, self.confidence)
        self.calibration_ = found
        self.threshold_ = found.value
        accepted = uncertainty <= found.value
        self.calibration_risk_ = float(wrong[accepted].mean()) if accepted.any() else float("nan")
        if not found.accepted:
            warnings.warn(self.guarantee_, UserWarning, stacklevel=3)


def _labels(X: Any, y: ArrayLike) -> NDArray[Any]:
    labels = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_consistent_length(X, labels)
    check_classification_targets(labels)
    return labels
