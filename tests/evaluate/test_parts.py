"""Claims: the target's kind is told from its values; the low-label curve has the sizes that fit,
uses training labels only and finds a linear rule; small tables train predictors for more epochs,
large ones as the paper does; gains over raw features come with the standard error they should have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from varjepa.downstream import PREDICTORS, Inputs, RawFeatures, Tokens
from varjepa.errors import InputError
from varjepa.evaluate.cells import Cell, best_on_validation, hide_test_labels
from varjepa.evaluate.few_labels import SIZES, sizes_that_fit
from varjepa.evaluate.scores import low_label_curve, paired_difference
from varjepa.evaluate.settings import LEAST_STEPS, Target, check_split, read_target, training_of
from varjepa.evaluate.splits import Split, split_rows


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
) -> tuple[dict[str, Inputs], Target, Split]:
    """A rule on one column; the embedding knows it too, among 40 other numbers."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, columns))
    signal = x[:, 0]
    if classes:
        edges = np.quantile(signal, np.linspace(0, 1, classes + 1)[1:-1])
        values = np.searchsorted(edges, signal).astype(np.int64)
    else:
        values = 3.0 * signal + 0.1 * rng.normal(size=n)
    tokens = torch.randn(n, 4, 10, generator=torch.Generator().manual_seed(0))
    tokens[:, 0, 0] = torch.as_tensor(signal)
    raw = RawFeatures.from_numeric(x)
    inputs = {
        "raw": Inputs(raw=raw),
        "pca": Inputs(raw=raw),
        "raw+var_t_jepa": Inputs(raw, Tokens(tokens)),
    }
    names = tuple("abcdef"[:classes])
    return inputs, target_of(values, names), split_rows(n, 0)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_the_low_label_curve_learns_a_linear_rule(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("varjepa.evaluate.scores.DRAWS", 4)
    inputs, target, split = linear_world(classes)
    points = low_label_curve(inputs, target, split, seed=0)
    names = ("raw", "raw+var_t_jepa")
    assert [(p.representation, p.labels) for p in points] == [
        (name, size) for name in names for size in (50, 100, 200)
    ]
    by_name = {name: [p for p in points if p.representation == name] for name in names}
    for found in by_name.values():
        assert all(p.standard_error >= 0 for p in found)
        first, *_, last = (p.mean for p in found)
        if classes:
            assert first < last
            assert last > 0.8
        else:
            assert last < 0.5
            assert last < first


def test_the_low_label_curve_sees_training_labels_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varjepa.evaluate.scores.DRAWS", 2)
    inputs, target, split = linear_world(2)
    honest = low_label_curve(inputs, target, split, 0)
    values = target.values.copy()
    values[split.validation] = 1 - values[split.validation]
    changed = replace(target, values=values)
    assert low_label_curve(inputs, changed, split, 0) == honest
    values[split.test] = 1 - values[split.test]
    mirrored = low_label_curve(inputs, changed, split, 0)
    for mine, theirs in zip(mirrored, honest, strict=True):
        assert mine.mean == pytest.approx(1 - theirs.mean)


def test_labels_of_one_class_and_rare_classes_are_no_trouble() -> None:
    inputs, target, split = linear_world(2)
    values = np.zeros_like(target.values)
    values[split.train[:3]] = 1
    points = low_label_curve(inputs, replace(target, values=values), split, 0)
    assert all(0.9 < p.mean <= 1 for p in points)


def test_small_tables_train_longer_and_large_ones_as_the_paper() -> None:
    for name, kind in PREDICTORS.items():
        assert training_of(name, 50_000) == kind.training
        small = training_of(name, 100)
        assert small.batch == 16
        assert small.epochs * 7 >= LEAST_STEPS
        assert small.patience / small.epochs == pytest.approx(16 / kind.training.epochs, rel=0.05)


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
