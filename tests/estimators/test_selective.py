"""Claims about SelectiveClassifier.

- It is a scikit-learn classifier: its checks pass; clone, pipelines, grid search and pickle work.
- Which rows are calibration rows: the given ones, all for a frozen classifier, else a random share
  that the classifier never sees.
- ``predict`` answers all rows; ``accepts`` and ``predict_or_abstain`` follow the threshold;
  ``score`` is the accuracy on accepted rows, NaN where there is none.
- The promised risk is kept on a real classifier, over many draws; and 1,000 rows are much more
  often enough for an error rate of a fifth than with the bound of before.
- A target that cannot be certified abstains from every row and warns once; the rows and the risk
  that the warning names do certify something.
- Latent scores lower the AURC where they know more than the confidence, and do no harm where they
  do not; they are learned without the calibration rows. With few errors the confidence stays
  alone, and a new fit without them forgets them.
- Wrong options are one sentence that names them.
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.small import small
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.estimators.selective import SelectiveClassifier, risk_threshold
from varjepa.metrics.confidence import one_minus_msp
from varjepa.metrics.selective import aurc


@parametrize_with_checks(
    [
        SelectiveClassifier(LogisticRegression(), coverage=0.8),
        SelectiveClassifier(LogisticRegression(), target_risk=0.2),
    ]
)
def test_scikit_learn_checks(
    estimator: SelectiveClassifier, check: Callable[[SelectiveClassifier], None]
) -> None:
    with warnings.catch_warnings():
        # five calibration rows certify nothing, and say so
        warnings.filterwarnings("ignore", message="No row is answered")
        check(estimator)


def rows(n: int, seed: int = 0, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping Gaussian classes: rows between the centres cannot be told apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return rng.normal(size=(n, 3)) + 1.5 * np.eye(classes, 3)[y], y


def test_predictions_are_the_classifiers_own() -> None:
    X, y = rows(400)
    model = SelectiveClassifier(GaussianNB(), coverage=0.7, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), model.estimator_.predict(X))
    np.testing.assert_array_equal(model.predict_proba(X), model.estimator_.predict_proba(X))
    assert not hasattr(model, "decision_function")
    np.testing.assert_array_equal(model.accepts(X), model.uncertainty(X) <= model.threshold_)
    assert 0.6 < model.accepts(X).mean() < 0.8
    assert model.calibration_.rows == 100
    assert model.coverage_interval_ is not None
    assert model.coverage_interval_[0] < 0.7 < model.coverage_interval_[1]
    assert "at least 70%" in model.guarantee_
    answered = model.accepts(X)
    assert model.answered_share(X) == answered.mean()
    assert model.score(X, y) == np.mean(model.predict(X)[answered] == y[answered])
    assert model.score(X, y) > np.mean(model.predict(X) == y)


def test_calibration_rows_are_not_fitted() -> None:
    X, y = rows(200)

    class Recorder(GaussianNB):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> Recorder:
            self.seen_ = X
            return super().fit(X, y)  # type: ignore[no-any-return]

    asked: list[np.ndarray] = []

    def by(_: Any, X: Any) -> np.ndarray:
        asked.append(X)
        return X[:, 0]

    model = SelectiveClassifier(Recorder(), coverage=0.5, abstain_by=by, calibration_share=0.3)
    fitted = model.fit(X, y).estimator_.seen_
    assert len(fitted) == 140
    assert len(asked[0]) == 60
    together = np.vstack([fitted, asked[0]])
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(X, axis=0))

    X_cal, y_cal = rows(80, seed=1)
    given = clone(model).fit(X, y, X_cal=X_cal, y_cal=y_cal)
    np.testing.assert_array_equal(given.estimator_.seen_, X)
    np.testing.assert_array_equal(asked[-1], X_cal)
    assert given.calibration_.rows == 80

    frozen = FrozenEstimator(GaussianNB().fit(X, y))
    prefit = SelectiveClassifier(frozen, coverage=0.5).fit(X_cal, y_cal)
    assert prefit.calibration_.rows == 80
    np.testing.assert_array_equal(prefit.predict_proba(X), frozen.predict_proba(X))
    clone(prefit).fit(X_cal, y_cal)


def test_the_seed_decides_the_split() -> None:
    X, y = rows(200)
    one, same, other = (
        SelectiveClassifier(GaussianNB(), coverage=0.5, random_state=seed).fit(X, y)
        for seed in (0, 0, 1)
    )
    assert one.threshold_ == same.threshold_ != other.threshold_


@pytest.mark.parametrize(
    ("names", "label", "kind"),
    [([0, 1], -1, "i"), (["no", "yes"], "cannot say", "U"), ([0, 1], None, "O"),
     ([0, 1], "unsure", "O"), ([False, True], None, "O"), (["no", "yes"], None, "O")],
)  # fmt: skip
def test_abstained_rows_have_the_label(names: list[Any], label: Any, kind: str) -> None:
    X, y = rows(200)
    labels = np.array(names)[y]
    model = SelectiveClassifier(GaussianNB(), coverage=0.5, abstain_label=label, random_state=0)
    answers = model.fit(X, labels).predict_or_abstain(X)
    accepted = model.accepts(X)
    assert answers.dtype.kind == kind
    assert answers[accepted].tolist() == model.predict(X)[accepted].tolist()
    assert all(answer == label for answer in answers[~accepted].tolist())
    assert 0 < accepted.sum() < 200


def test_promised_risk_on_a_real_classifier() -> None:
    X, y = rows(300)
    classifier = FrozenEstimator(LogisticRegression().fit(X, y))
    X_new, y_new = rows(100_000, seed=1)
    wrong, p = classifier.predict(X_new) != y_new, classifier.predict_proba(X_new).max(1)
    certified, kept = 0, []
    for seed in range(500):
        X_cal, y_cal = rows(300, seed=2 + seed)
        model = SelectiveClassifier(classifier, target_risk=0.1, confidence=0.9)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="No row is answered")
            model.fit(X_cal, y_cal)
        answered = 1 - p <= model.threshold_
        certified += answered.any() and wrong[answered].mean() > 0.1
        kept.append(answered.mean())
    assert certified <= 0.1 * 500 + 3 * (500 * 0.1 * 0.9) ** 0.5
    assert wrong.mean() > 0.13  # the target is not met without abstaining
    assert np.mean(kept) > 0.4


def test_what_cannot_be_certified_is_abstained_from() -> None:
    X, _ = rows(400)
    noise = np.random.default_rng(1).integers(0, 2, 400)
    model = SelectiveClassifier(GaussianNB(), target_risk=0.1, abstain_label=-1, random_state=0)
    with pytest.warns(UserWarning, match="More rows would not help: no part of the 200") as told:
        model.fit(X, noise)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert not model.accepts(X).any()
    assert (model.predict_or_abstain(X) == -1).all()
    assert np.isnan(model.calibration_risk_)
    assert model.guarantee_.startswith("No row is answered")
    assert np.isnan(model.score(X, noise))
    assert model.answered_share(X) == 0.0
    with pytest.warns(UserWarning, match="10 calibration rows; at least 29 are needed"):
        model.fit(X[:40], noise[:40])


def hard_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes of which the best classifier confuses a quarter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (rng.random(n) < 1 / (1 + np.exp(-1.4 * X[:, 0]))).astype(int)


def test_a_risk_of_a_fifth_is_certified_on_a_thousand_rows() -> None:
    X_new, y_new = hard_rows(50_000, seed=10_000)
    nothing, exceeded, splits = {"before": 0, "now": 0}, 0, 60
    for seed in range(splits):
        X, y = hard_rows(1000, seed)
        model = SelectiveClassifier(LogisticRegression(), target_risk=0.2, random_state=seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="No row is answered")
            model.fit(X, y)
        nothing["now"] += not model.calibration_.accepted
        exceeded += model.score(X_new, y_new) < 0.8  # NaN is not
        # a quarter of the rows, and no start that is known to promise much
        fitted = LogisticRegression().fit(X[250:], y[250:])
        before = risk_threshold(
            fitted.predict(X[:250]) != y[:250], 1 - fitted.predict_proba(X[:250]).max(1), 0.2, 0.95
        )
        nothing["before"] += not before.accepted
    assert exceeded <= 0.05 * splits + 3 * (splits * 0.05 * 0.95) ** 0.5
    assert nothing["before"] > splits / 3
    assert nothing["now"] < nothing["before"] / 2


def test_the_warning_says_what_would_help() -> None:
    X, y = hard_rows(300, seed=3)
    model = SelectiveClassifier(LogisticRegression(), target_risk=0.1, random_state=0)
    with pytest.warns(UserWarning, match="No row is answered") as told:
        model.fit(X, y)
    text = str(told[0].message)
    rows = int(re.findall(r"About (\d+) calibration rows would be needed, there are 150", text)[0])
    risk = float(re.findall(r"target_risk=(\S+) can be reached", text)[0])
    more = SelectiveClassifier(LogisticRegression(), target_risk=0.1, random_state=0)
    assert more.fit(*hard_rows(4 * rows, seed=4)).calibration_.accepted
    assert model.set_params(target_risk=risk).fit(X, y).calibration_.accepted


# --- latent scores added to the confidence


class Latent(BaseEstimator):  # type: ignore[misc]
    """A model whose uncertainties are columns of X."""

    def __init__(self, column: int = 1) -> None:
        self.column = column

    def fit(self, X: Any, y: Any = None) -> Latent:
        self.rows_ = len(X)
        return self

    def uncertainties(self, X: Any, measures: Any) -> dict[str, np.ndarray]:
        return {str(m): X[:, self.column] * (1 if i == 0 else 0) for i, m in enumerate(measures)}


def noisy_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels are wrong where the second column is large, which no label says."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    flipped = rng.random(n) < np.where(X[:, 1] > 0.5, 0.45, 0.02)
    return X, ((X[:, 0] > 0) ^ flipped).astype(int)


@pytest.mark.parametrize("frozen", [False, True])
def test_latent_scores_are_added_where_they_help(frozen: bool) -> None:
    X, y = noisy_rows(2000, 0)
    X_new, y_new = noisy_rows(20_000, 1)
    classifier = LogisticRegression()
    if frozen:
        classifier = FrozenEstimator(classifier.fit(*noisy_rows(500, 2)))
    areas = {}
    for by in ("confidence", Latent(1), Latent(2)):
        model = SelectiveClassifier(classifier, coverage=0.7, abstain_by=by, random_state=0)
        model.fit(X, y)
        assert model.answered_share(X_new) == pytest.approx(0.7, abs=0.05)
        areas[str(by)] = aurc(model.predict(X_new) != y_new, model.uncertainty(X_new))
        if by == "confidence":
            assert model.calibration_.rows == (2000 if frozen else 500)
        else:  # the model of the rows has not seen those that calibrate
            assert model.calibration_.rows == 500
            assert model.latent_.rows_ == 1500
    alone, helpful, useless = areas.values()
    assert helpful < 0.8 * alone
    assert useless < 1.03 * alone


def test_a_real_model_adds_its_scores() -> None:
    X, y = rows(150)
    latent = small(VarTJEPA, d=8, depth=1, heads=2, ff=8, epochs=2)
    model = SelectiveClassifier(GaussianNB(), coverage=0.8, abstain_by=latent, random_state=0)
    frame = pd.DataFrame(X, columns=list("abc"))
    model.fit(frame, y)
    assert model.combined_.parts == 8
    frozen = FrozenEstimator(model.latent_)
    again = clone(model.set_params(abstain_by=frozen)).fit(frame, y)
    np.testing.assert_array_equal(again.uncertainty(frame), model.uncertainty(frame))


def test_few_errors_leave_the_confidence_alone() -> None:
    X, _ = noisy_rows(2000, 0)
    y = (X[:, 0] > 0).astype(int)
    classifier = LogisticRegression().fit(X, y)
    classifier.coef_[:], classifier.intercept_[:] = [1.0, 0.0, 0.0], 0.0
    y[:9], X[:9, 1] = 1 - y[:9], 10.0  # nine errors, which the second column would foresee
    model = SelectiveClassifier(
        FrozenEstimator(classifier), coverage=0.7, abstain_by=Latent(1), random_state=0
    ).fit(X, y)
    assert np.sum(model.predict(X) != y) == 9
    assert model.combined_ is not None
    assert model.combined_.chosen == "confidence"
    np.testing.assert_array_equal(model.uncertainty(X), one_minus_msp(model.predict_proba(X)))


def test_a_new_fit_forgets_latent_scores() -> None:
    X, y = noisy_rows(2000, 0)
    model = SelectiveClassifier(
        LogisticRegression(), coverage=0.7, abstain_by=Latent(1), random_state=0
    ).fit(X, y)
    own = one_minus_msp(model.predict_proba(X))
    assert not np.array_equal(model.uncertainty(X), own)
    model.set_params(abstain_by="confidence").fit(X, y)
    assert model.combined_ is model.latent_ is None
    np.testing.assert_array_equal(model.uncertainty(X), own)


@pytest.mark.parametrize("by", ["confidence", "margin", "entropy"])
@pytest.mark.parametrize("classes", [2, 3])
def test_named_uncertainties_find_errors(by: str, classes: int) -> None:
    X, y = rows(2000, classes=classes)
    model = SelectiveClassifier(GaussianNB(), coverage=0.5, abstain_by=by, random_state=0)
    answered = model.fit(X, y).accepts(X)
    wrong = model.predict(X) != y
    assert wrong[answered].mean() < 0.7 * wrong.mean()


@pytest.mark.parametrize("classes", [2, 3])
def test_classifiers_without_probabilities(classes: int) -> None:
    X, y = rows(2000, classes=classes)
    model = SelectiveClassifier(RidgeClassifier(), coverage=0.5, random_state=0).fit(X, y)
    assert not hasattr(model, "predict_proba")
    answered, wrong = model.accepts(X), model.predict(X) != y
    assert wrong[answered].mean() < 0.7 * wrong.mean()
    with pytest.raises(InputError, match="'entropy' needs a classifier with predict_proba"):
        clone(model).set_params(abstain_by="entropy").fit(X, y)


def test_a_class_missing_from_the_fitted_rows_counts_as_an_error() -> None:
    X, y = rows(200)
    X_cal, y_cal = rows(100, seed=1)
    model = SelectiveClassifier(GaussianNB(), coverage=1.0)
    model.fit(X, y, X_cal=X_cal, y_cal=np.full(100, 2))
    assert model.calibration_risk_ == 1
    assert len(y_cal) == model.calibration_.accepted


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_reach_the_classifier_as_they_are(frame: Any) -> None:
    X, y = rows(200)
    table = frame(dict(zip("abc", X.T, strict=True)))
    seen: list[type] = []

    def by(_: Any, X: Any) -> np.ndarray:
        seen.append(type(X))
        return np.asarray(X["a"])

    model = SelectiveClassifier(LogisticRegression(), coverage=0.5, abstain_by=by).fit(table, y)
    assert model.accepts(table).shape == (200,)
    assert seen == [frame, frame]
    assert list(model.feature_names_in_) == ["a", "b", "c"]


def test_clone_pipeline_grid_search_and_pickle() -> None:
    X, y = rows(200)
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    model = SelectiveClassifier(inner, coverage=0.8, random_state=0)
    assert clone(model).get_params()["estimator__logisticregression__C"] == 1.0
    outer = make_pipeline(StandardScaler(), SelectiveClassifier(GaussianNB(), coverage=0.8))
    assert outer.fit(X, y).predict(X).shape == (200,)
    search = GridSearchCV(
        model,
        {"estimator__logisticregression__C": [0.1, 1], "coverage": [0.5, 0.9]},
        cv=2,
        error_score="raise",
    ).fit(X, y)
    assert search.best_estimator_.accepts(X).any()
    again = pickle.loads(pickle.dumps(model.fit(X, y)))
    np.testing.assert_array_equal(again.accepts(X), model.accepts(X))


def test_a_failed_fit_leaves_the_model_as_it_was() -> None:
    X, y = rows(200)
    model = SelectiveClassifier(GaussianNB(), coverage=0.5, random_state=0).fit(X, y)
    before = model.accepts(X)
    model.set_params(abstain_by=lambda _, X: np.full(len(X), np.nan))
    with pytest.raises(InputError, match="not finite"):
        model.fit(-X, y)
    model.set_params(abstain_by="confidence")
    np.testing.assert_array_equal(model.accepts(X), before)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "give exactly one of coverage and target_risk"),
        ({"coverage": 0.5, "target_risk": 0.1}, "give exactly one of coverage and target_risk"),
        ({"coverage": 0.0}, r"coverage must be in \(0, 1\], not 0.0"),
        ({"target_risk": 1.0}, "target_risk must be between 0 and 1, not 1.0"),
        ({"coverage": 0.5, "confidence": 95}, "confidence must be between 0 and 1, not 95"),
        ({"coverage": 0.5, "calibration_share": 1.0}, "calibration_share must be between"),
        ({"coverage": 0.5, "abstain_by": "luck"}, "abstain_by must be one of confidence, margin"),
        ({"coverage": 0.5, "abstain_by": lambda _, X: X}, r"one number for each of \d+ rows"),
        ({"coverage": 0.5, "abstain_label": 1}, "abstain_label 1 is one of the classes"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], sentence: str) -> None:
    X, y = rows(100)
    with pytest.raises(InputError, match=sentence):
        SelectiveClassifier(GaussianNB(), **options).fit(X, y)


def test_calibration_rows_come_in_pairs() -> None:
    X, y = rows(100)
    with pytest.raises(InputError, match="X_cal and y_cal belong together"):
        SelectiveClassifier(DummyClassifier(), coverage=0.5).fit(X, y, X_cal=X)
