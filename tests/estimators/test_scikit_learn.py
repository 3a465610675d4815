"""Claims: VarTJEPA is a scikit-learn transformer, with no expected failures."""

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
from sklearn.utils.estimator_checks import parametrize_with_checks

from varjepa.estimators import VarTJEPA

SMALL: dict[str, Any] = {
    "d": 8, "depth": 1, "heads": 2, "ff": 8, "predictor_width": 8, "predictor_depth": 1,
    "imputer_width": 8, "imputer_depth": 1, "imputer_heads": 2, "imputer_ff": 8,
    "predictor_heads": 2, "predictor_ff": 8, "epochs": 2, "check_every": 1,
}  # fmt: skip


@parametrize_with_checks([VarTJEPA(**SMALL)])
def test_scikit_learn_checks(estimator: VarTJEPA, check: Callable[[VarTJEPA], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs on twenty rows do collapse
        check(estimator)


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
        return VarTJEPA(**{**SMALL, "random_state": 0, **more}).fit(X)


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
    pipeline = make_pipeline(VarTJEPA(**SMALL, random_state=0), LogisticRegression())
    search = GridSearchCV(pipeline, {"vartjepa__d": [4, 8]}, cv=2, error_score="raise")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, y)
        alone = GridSearchCV(VarTJEPA(**SMALL), {"depth": [1, 2]}, cv=2, error_score="raise").fit(X)
    assert search.predict(X).shape == (60,)
    assert np.isfinite(alone.best_score_)


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
        by_probe = VarTJEPA(**SMALL).fit(X, X["size"] > 0)
        by_objective = VarTJEPA(**SMALL).fit(X, X["size"])
    assert by_probe.selected_by_ == "filtered accuracy"
    assert by_objective.selected_by_ == "held-out objective"
