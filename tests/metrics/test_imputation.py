"""Claims about errors of filled cells.

1. Cells are removed at the given share, the same for the same seed, and only where reported.
2. A perfect filling has no error; the mean and the mode give the baseline's own figures.
3. Errors are in units of a column's standard deviation, and columns weigh the same.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from varjepa.metrics.imputation import imputation_errors, remove_cells

RNG = np.random.default_rng(0)
TABLE = pa.table(
    {
        "x": RNG.normal(size=4000) * 1000,
        "n": pa.array(RNG.integers(0, 9, 4000)),
        "c": pa.array(RNG.choice(["a", "b", "b", "b"], 4000)).dictionary_encode(),
    }
)


def test_removed_cells_are_where_reported() -> None:
    with_missing, removed = remove_cells(TABLE, 0.1, seed=3)
    assert removed.mean() == pytest.approx(0.1, abs=0.01)
    assert with_missing.schema == TABLE.schema
    for j, name in enumerate(TABLE.column_names):
        assert np.array_equal(with_missing[name].is_null().to_numpy(), removed[:, j])
        kept = pa.array(~removed[:, j])
        assert with_missing[name].filter(kept).to_pylist() == TABLE[name].filter(kept).to_pylist()
    assert np.array_equal(remove_cells(TABLE, 0.1, seed=3)[1], removed)


def test_a_perfect_filling_has_no_error() -> None:
    _, removed = remove_cells(TABLE, 0.1, seed=0)
    errors = imputation_errors(TABLE, TABLE, removed, TABLE)
    assert (errors.rmse, errors.accuracy) == (0.0, 1.0)
    assert errors.mean_rmse == pytest.approx(1.0, abs=0.05)
    assert errors.mode_accuracy == pytest.approx(0.75, abs=0.05)


def test_mean_and_mode_are_the_baseline() -> None:
    _, removed = remove_cells(TABLE, 0.2, seed=1)
    x, n = TABLE["x"].to_numpy(), TABLE["n"].to_numpy()
    plain = pa.table(
        {
            "x": np.full(4000, x.mean()),
            "n": np.full(4000, n.mean()).round().astype(np.int64),
            "c": ["b"] * 4000,
        }
    )
    errors = imputation_errors(TABLE, plain, removed, TABLE)
    assert errors.rmse == pytest.approx(errors.mean_rmse, rel=0.01)
    assert errors.accuracy == errors.mode_accuracy


def test_columns_weigh_the_same() -> None:
    _, removed = remove_cells(TABLE, 0.2, seed=1)
    off = TABLE.set_column(0, "x", pa.array(TABLE["x"].to_numpy() + 1000))
    errors = imputation_errors(TABLE, off, removed, TABLE)
    assert errors.rmse == pytest.approx(np.sqrt(0.5), rel=0.05)  # one std off in one of two columns


def test_unknown_cells_and_missing_kinds_are_left_out() -> None:
    table = pa.table({"x": pa.array([1.0, None, 3.0, 4.0])})
    removed = np.array([[True], [True], [False], [False]])
    filled = pa.table({"x": [1.0, 99.0, 3.0, 4.0]})
    errors = imputation_errors(table, filled, removed, table)
    assert errors.rmse == 0.0
    assert np.isnan(errors.accuracy)
