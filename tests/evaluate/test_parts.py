"""Claims: the target's kind is told from its values; the low-label curve has the sizes that fit,
uses training labels only and learns a linear rule; every predictor learns classes and numbers, with
missing values and rare classes, and says what to install where its package is missing; small tables
train the perceptron for more epochs; gains over raw features have the right standard error.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from varjepa.errors import InputError
from varjepa.evaluate import EvaluateSettings, predictors
from varjepa.evaluate.predictors import (
    PREDICTORS,
    SIZES,
    default_predictors,
    fit_predictor,
    perceptron,
    sizes_that_fit,
)
from varjepa.evaluate.run import Blocks, check_settings, encode_columns
from varjepa.evaluate.scores import Cell, best_on_validation, low_label_curve, paired_difference
from varjepa.evaluate.splits import (
    Split,
    Target,
    check_split,
    hide_test_labels,
    read_target,
    split_rows,
)
from varjepa.tables import TableCodec


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b"] * 20, "classification"),
        ([True, False] * 20, "classification"),
        ([0, 1, 2, 3] * 10, "classification"),
        ([0.0, 1.0, 2.0, 3.0] * 10, "classification"),
        (["1", "2"] * 20, "classification"),
        (list(range(40)), "regression"),
        (list(range(25)) * 4, "regression"),
        ([0.5, 1.5] * 20, "regression"),
        (np.linspace(0, 1, 40).tolist(), "regression"),
        (pa.array([1, 2] * 20).dictionary_encode(), "classification"),
    ],
)
def test_the_task_is_told_from_the_values(values: Any, task: str) -> None:
    assert read_target(pa.table({"y": values}), "y", "auto").task == task


def test_classes_are_texts_and_missing_ones_are_counted() -> None:
    table = pa.table({"y": [1.0, None, 2.0, float("nan")] * 12})
    with pytest.warns(UserWarning, match="missing in 24 rows"):
        target = read_target(table, "y", "auto")
    assert target.classes == ("1", "2")
    assert target.missing == 24
    np.testing.assert_array_equal(target.known[:4], [0, 2, 4, 6])
    np.testing.assert_array_equal(target.values[:4], [0, 1, 0, 1])


def test_infinite_numbers_are_missing() -> None:
    table = pa.table({"y": [*np.linspace(0, 1, 30).tolist(), float("inf")]})
    with pytest.warns(UserWarning, match="missing in 1 rows"):
        assert read_target(table, "y", "regression").missing == 1


def test_the_task_can_be_said() -> None:
    table = pa.table({"y": [1, 2, 3] * 10, "t": ["a", "b", "c"] * 10})
    assert read_target(table, "y", "regression").values.dtype == np.float64
    with pytest.raises(InputError, match="'t' holds 'a'"):
        read_target(table, "t", "regression")


def test_training_rows_of_one_class_are_refused() -> None:
    split = split_rows(40, 0)
    values = np.zeros(40, dtype=np.int64)
    values[split.test] = 1
    with pytest.raises(InputError, match="one class only in the 28 training rows"):
        check_split(target_of(values, ("a", "b")), split)


def target_of(values: Any, classes: tuple[str, ...] = ()) -> Target:
    task: Any = "classification" if classes else "regression"
    return Target("y", task, values, np.arange(len(values)), classes, 0)


@pytest.mark.parametrize(
    ("train", "sizes"), [(49, ()), (50, (50,)), (999, SIZES[:-1]), (70_000, SIZES)]
)
def test_sizes_that_fit(train: int, sizes: tuple[int, ...]) -> None:
    assert sizes_that_fit(train) == sizes


def linear_world(
    classes: int, n: int = 600, columns: int = 5
) -> tuple[dict[str, Any], Target, Split]:
    """A rule on one column; the embedding knows it too, among 40 other numbers."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, columns))
    signal = x[:, 0]
    if classes:
        edges = np.quantile(signal, np.linspace(0, 1, classes + 1)[1:-1])
        values = np.searchsorted(edges, signal).astype(np.int64)
    else:
        values = 3.0 * signal + 0.1 * rng.normal(size=n)
    embedding = rng.normal(size=(n, 40))
    embedding[:, 0] = signal
    raw = Blocks((x.astype(np.float32),))
    both = Blocks((*raw.parts, embedding.astype(np.float32)))
    inputs = {"raw": raw.balanced, "pca": raw.balanced, "raw+var_t_jepa": both.balanced}
    names = tuple("abcdef"[:classes])
    return inputs, target_of(values, names), split_rows(n, 0)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_the_low_label_curve_learns_a_linear_rule(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("varjepa.evaluate.scores.REPEATS", 4)
    inputs, target, split = linear_world(classes)
    points = low_label_curve(inputs, target, split, seed=0)
    names = ("raw", "raw+var_t_jepa")
    assert [(p["representation"], p["labels"]) for p in points] == [
        (name, size) for name in names for size in (50, 100, 200)
    ]
    by_name = {name: [p for p in points if p["representation"] == name] for name in names}
    for rows in by_name.values():
        assert all(p["standard_error"] >= 0 for p in rows)
        first, *_, last = (p["mean"] for p in rows)
        if classes:
            assert first < last
            assert last > 0.8
        else:
            assert last < 0.5
            assert last < first


def test_the_low_label_curve_sees_training_labels_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varjepa.evaluate.scores.REPEATS", 2)
    inputs, target, split = linear_world(2)
    honest = low_label_curve(inputs, target, split, 0)
    values = target.values.copy()
    values[split.validation] = 1 - values[split.validation]
    changed = replace(target, values=values)
    assert low_label_curve(inputs, changed, split, 0) == honest
    values[split.test] = 1 - values[split.test]
    mirrored = low_label_curve(inputs, changed, split, 0)
    for mine, theirs in zip(mirrored, honest, strict=True):
        assert mine["mean"] == pytest.approx(1 - theirs["mean"])


def test_labels_of_one_class_and_rare_classes_are_no_trouble() -> None:
    inputs, target, split = linear_world(2)
    values = np.zeros_like(target.values)
    values[split.train[:3]] = 1
    points = low_label_curve(inputs, replace(target, values=values), split, 0)
    assert all(0.9 < p["mean"] <= 1 for p in points)


def test_small_tables_train_longer_and_large_ones_as_the_paper() -> None:
    def settings(rows: int) -> tuple[int, int, int]:
        (model,) = perceptron("classification", np.arange(rows) % 2, seed=0)
        mlp = model[-1]
        assert mlp.early_stopping
        return mlp.batch_size, mlp.max_iter, mlp.n_iter_no_change

    assert settings(50_000) == (128, 50, 16)
    batch, epochs, patience = settings(100)
    assert batch == 16
    assert epochs * 7 >= predictors.MIN_STEPS
    assert patience / epochs == pytest.approx(16 / 50, rel=0.05)


def noisy_line(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """One number that tells the target, a column with missing values, and one that says nothing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    signal = x[:, 0].astype(np.float64)
    x[::7, 1] = np.nan
    return x, signal


@pytest.mark.parametrize("name", PREDICTORS)
def test_every_predictor_learns_classes_and_numbers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictors, "MIN_STEPS", 400)
    x, signal = noisy_line()
    classes = np.where(signal > 0, 7, 3)  # numbers with a gap
    train, validation = slice(0, 120), slice(120, 150)
    fitted = fit_predictor(
        name, "classification", (x[train], classes[train]), (x[validation], classes[validation]), 0
    )
    assert fitted.classes is not None and fitted.classes.tolist() == [3, 7]
    probabilities = fitted.predict(x[150:])
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-5)
    assert (fitted.classes[probabilities.argmax(1)] == classes[150:]).mean() > 0.8
    numbers = 1e6 + 100.0 * signal
    fitted = fit_predictor(
        name, "regression", (x[train], numbers[train]), (x[validation], numbers[validation]), 0
    )
    assert np.sqrt(np.mean((fitted.predict(x[150:]) - numbers[150:]) ** 2)) < 70.0


def test_rare_classes_are_no_trouble_for_any_predictor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictors, "MIN_STEPS", 20)
    x, signal = noisy_line(40)
    y = np.where(signal > 0, 1, 0)
    y[3], y[-1] = 5, 6  # one row to train on; none
    for name in PREDICTORS:
        fitted = fit_predictor(name, "classification", (x[:30], y[:30]), (x[30:], y[30:]), 0)
        assert fitted.predict(x).shape == (40, 3)


def test_a_predictor_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(InputError, match="xgboost needs the package xgboost: pip install xgboost"):
        check_settings(EvaluateSettings("y", predictors=("xgboost",)))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert default_predictors() == ("linear", "mlp", "boosted_trees")
    assert check_settings(EvaluateSettings("y")).predictors == default_predictors()


def test_columns_are_scaled_by_the_rows_they_are_fitted_on() -> None:
    fit_rows = pa.table({"a": [1.0, 3.0, None], "b": ["x", "y", None], "c": [5.0, 6.0, 7.0]})
    other = pa.table({"a": [2.0, None, 2.5], "b": ["y", None, "x"], "c": [5.0, 5.0, 5.0]})
    codec = TableCodec.fit(fit_rows)
    raw, components = encode_columns(codec.encode(fit_rows), codec.encode(other))
    np.testing.assert_allclose(raw[:, 0], [0.0, np.nan, 0.5], atol=1e-5)
    np.testing.assert_array_equal(raw[:, -3:].sum(1), 1.0)  # a missing level is a level
    assert np.isfinite(components).all()


def numbers_cell(test: np.ndarray, name: str = "raw", validation: Any = None) -> Cell:
    return Cell(name, "mlp", test if validation is None else validation, test, None, 0.0)


def test_the_gain_in_rmse_has_the_error_of_a_bootstrap() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=2000)
    shared = rng.normal(size=2000)
    raw = truth + 0.5 * shared + 0.2 * rng.normal(size=2000)
    mine = truth + 0.4 * shared + 0.2 * rng.normal(size=2000)
    cells = [numbers_cell(v.astype(np.float32)[None]) for v in (mine, raw)]
    gain, error = paired_difference(*cells, truth)
    drawn = rng.integers(0, 2000, (500, 2000))
    rmse = [np.sqrt(((v - truth) ** 2)[drawn].mean(1)) for v in (raw, mine)]
    assert gain == pytest.approx((rmse[0] - rmse[1]).mean(), rel=0.05)
    assert error == pytest.approx((rmse[0] - rmse[1]).std(), rel=0.15)


def test_the_gain_in_accuracy() -> None:
    truth = np.array([0, 1, 0, 1])
    right = np.eye(2, dtype=np.float32)[truth][None]
    wrong = right.copy()
    wrong[0, 0] = [0, 1]
    cells = [Cell("raw", "mlp", v, v, np.array([0, 1]), 0.0) for v in (right, wrong)]
    gain, error = paired_difference(*cells, truth)
    assert gain == 0.25
    assert error == pytest.approx(np.std([1, 0, 0, 0], ddof=1) / 2)


def test_the_cell_that_is_shown_is_best_on_validation_rows() -> None:
    truth = np.zeros(4)
    good, bad = (np.full((1, 4), v, dtype=np.float32) for v in (0.1, 0.9))
    cells = [numbers_cell(good, validation=bad), numbers_cell(bad, validation=good)]
    assert best_on_validation(cells, truth) is cells[1]


def test_test_labels_are_replaced_before_anything_is_fitted() -> None:
    split = split_rows(50, 3)
    target = target_of(np.arange(50.0))
    visible = hide_test_labels(target, split)
    assert set(visible[split.test]) == {float(split.train[0])}
    others = np.concatenate([split.train, split.validation])
    np.testing.assert_array_equal(visible[others], target.values[others])
