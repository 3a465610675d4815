"""SelectiveClassifier: any scikit-learn classifier, answering only where it can be relied on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags, assert_all_finite, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from varjepa.errors import InputError
from varjepa.selective.ranking import AbstainBy, check_abstain_by, uncertainty_of
from varjepa.selective.sentences import coverage_sentence, risk_sentence
from varjepa.selective.thresholds import (
    coverage_interval,
    coverage_threshold,
    risk_threshold,
)

Floats = NDArray[np.float64]


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
    abstained from, and ``fit`` warns once. ``varjepa.selective.thresholds`` has the proofs.

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
