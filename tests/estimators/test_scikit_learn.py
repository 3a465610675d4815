"""Claims: VarTJEPA and TJEPA are scikit-learn transformers, with no expected failures.

1. Every check that ``check_estimator`` runs, and every applicable one that it never runs (TJEPA's
   ordinary ones are in ``test_t_jepa``). That list is complete: of scikit-learn's checks none is
   neither run, nor for another sort of estimator, nor named here with a reason.
2. ``set_output``, pipelines, grid searches, ``clone`` and pickle work.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.small import small
from varjepa.errors import InputError
from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.settings import Architecture, Training

CHECKS = "sklearn.utils.estimator_checks"

SMALL: dict[str, Any] = {
    "d": 8, "depth": 1, "heads": 2, "ff": 8, "predictor_width": 8, "predictor_depth": 1,
    "predictor_heads": 2, "predictor_ff": 8, "epochs": 2, "validate_every": 1,
}  # fmt: skip


@parametrize_with_checks([small(VarTJEPA, **SMALL)])
def test_scikit_learn_checks(estimator: VarTJEPA, check: Callable[[VarTJEPA], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs on twenty rows do collapse
        check(estimator)


NEVER_RUN = (
    estimator_checks.check_estimators_partial_fit_n_features,
    estimator_checks.check_get_feature_names_out_error,
    estimator_checks.check_global_output_transform_pandas,
    estimator_checks.check_global_set_output_transform_polars,
    estimator_checks.check_inplace_ensure_writeable,
    estimator_checks.check_n_features_in_after_fitting,
    estimator_checks.check_param_validation,
    estimator_checks.check_requires_y_none,
    estimator_checks.check_set_output_transform,
    estimator_checks.check_set_output_transform_pandas,
    estimator_checks.check_set_output_transform_polars,
    estimator_checks.check_supervised_y_no_nan,
    estimator_checks.check_transformer_get_feature_names_out,
    estimator_checks.check_transformer_get_feature_names_out_pandas,
    estimator_checks.check_transformer_preserve_dtypes,
)
"""Checks of scikit-learn's own suite that ``check_estimator`` leaves out."""

NOT_OURS = {
    "check_dataframe_column_names_consistency": "we match columns by name, in any order; the same "
    "check spares scikit-learn's ColumnTransformer for that; see the test below",
    "check_estimators_nan_inf": "missing and infinite cells are welcome",
    "check_fit_non_negative": "so are negative numbers",
    "check_nonsquare_error": "rows are not distances",
    "check_transformers_unfitted_stateless": "a fit is needed",
    "check_decision_proba_consistency": "there are no predictions",
    "check_sparsify_coefficients": "there are no coefficients",
    "check_supervised_y_2d": "y is not predicted",
    "check_non_transformer_estimators_n_iter": "it transforms",
    "check_estimators_data_not_an_array": "a helper of check_transformer_data_not_an_array",
    "check_estimator": "runs the others",
}
OTHER_SORTS = ("classif", "cluster", "outlier", "regress", "sample_weight", "array_api")


@pytest.mark.parametrize("check", NEVER_RUN, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "estimator", [small(VarTJEPA, **SMALL), small(TJEPA, **SMALL)], ids=["var", "t"]
)
def test_checks_that_check_estimator_never_runs(
    estimator: Any, check: Callable[[str, Any], None]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(type(estimator).__name__, estimator)


def test_no_check_is_forgotten() -> None:
    run = {check.func.__name__ for _, check in estimator_checks.estimator_checks_generator(
        small(VarTJEPA, **SMALL)
    )}  # fmt: skip
    known = {name for name in vars(estimator_checks) if name.startswith("check_")}
    own = {n for n in known if getattr(vars(estimator_checks)[n], "__module__", "") == CHECKS}
    left = own - run - {check.__name__ for check in NEVER_RUN} - NOT_OURS.keys()
    assert {name for name in left if not any(sort in name for sort in OTHER_SORTS)} == set()


def test_names_of_frames() -> None:
    """What check_dataframe_column_names_consistency asks of an estimator that goes by names."""
    X = frame()
    model = fitted(X)
    assert model.feature_names_in_.dtype == object
    assert model.feature_names_in_.tolist() == list(X.columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in (model.transform, model.score, model.score_samples):
            method(X)
            np.testing.assert_array_equal(method(X[["colour", "size", "count"]]), method(X))
            for wrong in (X.add_prefix("another_"), X[["size"]]):
                with pytest.raises(ValueError, match=r"no column '(size|count)'"):
                    method(wrong)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.transform(X.to_numpy())


@pytest.mark.parametrize(
    "wrong",
    [
        {"d": "8"},
        {"learning_rate": None},
        {"context_share": 0.5},
        {"device": 0},
        {"training": {"epochs": 3}},
    ],
)
def test_parameters_of_wrong_types(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    says = f"(The '{name}' parameter of VarTJEPA|{name}) must be"
    with pytest.raises(InputError, match=says) as caught:
        small(VarTJEPA, **{**SMALL, **wrong}).fit(frame())
    assert "\n" not in str(caught.value)


def frame(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "count": rng.integers(0, 9, n),
            "colour": rng.choice(["red", "green", None], n),
        },
        index=[f"r{i}" for i in range(n)],
    )


def fitted(X: Any, **more: Any) -> VarTJEPA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return small(VarTJEPA, **{**SMALL, "random_state": 0, **more}).fit(X)


@pytest.mark.parametrize(("output", "width"), [("flat", 24), ("mean", 8), ("cls", 8)])
def test_names_match_columns(output: str, width: int) -> None:
    model = fitted(frame(), output=output)
    assert model.transform(frame()).shape == (60, width)
    names = model.get_feature_names_out()
    assert len(set(names)) == width


def test_set_output() -> None:
    X = frame()
    as_pandas = fitted(X).set_output(transform="pandas").transform(X)
    assert list(as_pandas.index) == list(X.index)
    assert as_pandas.columns[0] == "size_0"
    as_polars = fitted(X).set_output(transform="polars").transform(X)
    assert isinstance(as_polars, pl.DataFrame)
    np.testing.assert_array_equal(as_pandas.to_numpy(), as_polars.to_numpy())


def test_pipeline_and_grid_search() -> None:
    X = frame()
    y = (X["size"] > 0).astype(int)
    pipeline = make_pipeline(small(VarTJEPA, **SMALL, random_state=0), LogisticRegression())
    search = GridSearchCV(
        pipeline, {"vartjepa__architecture__d": [4, 8]}, cv=2, error_score="raise"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, y)
        alone = GridSearchCV(
            small(VarTJEPA, **SMALL),
            {"training__learning_rate": [1e-3, 1e-2]},
            cv=2,
            error_score="raise",
        ).fit(X)
    assert search.predict(X).shape == (60,)
    assert np.isfinite(alone.best_score_)
    best = alone.best_params_["training__learning_rate"]
    assert alone.best_estimator_.training.learning_rate == best


def test_settings_show_what_differs_from_the_defaults() -> None:
    assert repr(Training()) == "Training()"
    assert repr(Architecture(d=8, depth=2)) == "Architecture(d=8, depth=2)"
    model = VarTJEPA(Architecture(d=8), training=Training(time_limit=60.0))
    shown = " ".join(repr(model).split())
    assert shown == "VarTJEPA(architecture=Architecture(d=8), training=Training(time_limit=60.0))"


def test_nested_parameters_replace_the_frozen_settings() -> None:
    training = Training(epochs=3)
    model = VarTJEPA(training=training)
    assert model.get_params()["training__epochs"] == 3
    assert model.get_params()["architecture__d"] == Architecture().d
    assert model.get_params(deep=False)["architecture"] is None
    model.set_params(training__learning_rate=0.5, architecture__d=8, output="mean")
    assert model.training == Training(epochs=3, learning_rate=0.5)
    assert training == Training(epochs=3)
    assert (model.architecture, model.output) == (Architecture(d=8), "mean")
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(ValueError, match="Invalid parameter 'speed' for training"):
        model.set_params(training__speed=3)
    with pytest.raises(ValueError, match="Invalid parameter 'epochs'"):
        model.set_params(epochs=3)
    assert len(VarTJEPA().get_params(deep=False)) <= 20


def test_clone_and_pickle() -> None:
    model = fitted(frame())
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "model_")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(frame()), model.transform(frame()))


def test_labels_pick_the_checkpoint_only_if_they_are_classes() -> None:
    X = frame()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_probe = small(VarTJEPA, **SMALL).fit(X, X["size"] > 0)
        by_cells = small(VarTJEPA, **SMALL).fit(X, X["size"])
    assert by_probe.selected_by_ == "filtered accuracy"
    assert by_cells.selected_by_ == "held-out cells"
