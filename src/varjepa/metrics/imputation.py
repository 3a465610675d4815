"""Errors of filled cells: remove known cells, fill them, compare with the column's mean or mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ImputationErrors:
    """Errors on the removed cells; NaN where a table has no column of that kind."""

    rmse: float
    """of numbers, each column in units of its own standard deviation, columns weighing the same"""
    mean_rmse: float
    """the same, filling with the column's mean"""
    accuracy: float
    """share of categories that are right, columns weighing the same"""
    mode_accuracy: float
    """the same, filling with the column's most frequent level"""


def remove_cells(table: pa.Table, share: float, seed: int) -> tuple[pa.Table, Bools]:
    """Remove a share of all cells at random; returns which ones, too.  # (N, columns)

    Examples:
        >>> table, removed = remove_cells(pa.table({"x": [1.0, 2.0, 3.0, 4.0]}), 0.5, seed=0)
        >>> removed[:, 0].tolist(), table["x"].null_count
        ([False, True, True, True], 3)
    """
    removed = np.random.default_rng(seed).random((table.num_rows, table.num_columns)) < share
    columns = [
        pc.if_else(pa.array(removed[:, j]), pa.scalar(None, column.type), column)
        for j, column in enumerate(table.columns)
    ]
    return pa.table(columns, schema=table.schema), removed


def imputation_errors(
    truth: pa.Table, filled: pa.Table, removed: Bools, reference: pa.Table
) -> ImputationErrors:
    """Errors of the removed cells whose value is known.

    Means, modes and standard deviations come from ``reference``, e.g. the training rows.
    """
    squared: list[list[Any]] = []  # of ours and of the column's mean or mode
    right: list[list[Any]] = []
    for j, field in enumerate(truth.schema):
        known = removed[:, j] & ~truth[field.name].is_null().to_numpy(zero_copy_only=False)
        if not known.any():
            continue
        mask = pa.array(known)
        value = truth[field.name].filter(mask)
        guess = filled[field.name].cast(field.type).filter(mask)
        past = reference[field.name].drop_null()
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            numbers, filled_in, known_numbers = map(_floats, (value, guess, past))
            scale, mean = known_numbers.std() or 1.0, known_numbers.mean()
            squared.append([np.mean(((x - numbers) / scale) ** 2) for x in (filled_in, mean)])
        else:
            texts, filled_texts, known_texts = map(_texts, (value, guess, past))
            levels, counts = np.unique(known_texts, return_counts=True)
            right.append([np.mean(x == texts) for x in (filled_texts, levels[counts.argmax()])])
    ours, means = np.sqrt(_means(squared))
    accuracy, mode = _means(right)
    return ImputationErrors(float(ours), float(means), float(accuracy), float(mode))


def _means(pairs: list[list[Any]]) -> NDArray[np.float64]:
    return np.mean(pairs, axis=0) if pairs else np.full(2, np.nan)


def _floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    return column.to_numpy().astype(np.float64)


def _texts(column: pa.ChunkedArray) -> NDArray[np.str_]:
    return np.array(column.cast(pa.string()).to_pylist(), dtype=np.str_)
