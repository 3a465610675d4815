"""The target column: classes or numbers, and which rows have one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.downstream.task import TaskName
from varjepa.errors import InputError
from varjepa.evaluate.settings import Task
from varjepa.tables import Column, infer_schema
from varjepa.tables.levels import Levels, category_text
from varjepa.tables.quoting import quoted
from varjepa.tables.values import as_numbers

MOST_INTEGERS = 20
"""Whole numbers with at most this many different values are taken for classes."""

LARGEST = 1e140
"""Numbers beyond this, or that differ by less than its inverse, have no squared error."""

LEAST_ROWS = 20
"""Rows with a target that training, validation and test need: 14, 2 and 4."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What is to be predicted, for the rows where it is known."""

    name: str
    task: TaskName
    values: NDArray[Any]  # (n,) class numbers (int64), or numbers (float64)
    known: NDArray[np.int64]  # (n,) their rows in the table
    classes: tuple[str, ...]
    """names of the class numbers; empty for numbers"""
    missing: int
    """rows without a target"""

    def describe(self) -> str:
        """e.g. classification, 3 classes"""
        count = f", {len(self.classes):,} classes" if self.classes else ""
        return f"{self.task}{count}"


def read_target(table: pa.Table, name: str, task: Task) -> Target:
    """The target of every row that has one, or one sentence why it cannot be predicted."""
    if table.num_columns and not table.num_rows:
        raise InputError("the table has no rows")
    if name not in table.column_names:
        raise InputError(f"--target {quoted(name)} is not a column of the table")
    data = table[name]
    if data.null_count == len(data):
        raise InputError(f"--target {quoted(name)} has no values")
    column = infer_schema(table.select([name])).columns[0]
    found = infer_task(column, data) if task == "auto" else task
    values, valid, classes = (
        _read_classes(data, column) if found == "classification" else _read_numbers(data, name)
    )
    known = np.flatnonzero(valid)
    values = values[known]
    if len(known) < LEAST_ROWS:
        raise InputError(
            f"--target {quoted(name)} is known for {len(known)} rows; {LEAST_ROWS} are needed "
            "to train, validate and test on"
        )
    if found == "regression" and np.ptp(values) == 0:
        raise InputError(f"--target {quoted(name)} is the number {values[0]:g} in every row")
    if found == "regression":
        _refuse_extremes(values, name)
    if found == "classification" and len(classes) < 2:
        raise InputError(f"--target {quoted(name)} has one class only, {quoted(classes[0])}")
    if found == "classification" and 2 * len(classes) > len(known):
        raise InputError(
            f"--target {quoted(name)} has {len(classes):,} classes in {len(known):,} rows; choose "
            "another column, or --task regression if it holds numbers"
        )
    missing = len(data) - len(known)
    if missing:
        warnings.warn(
            f"--target {quoted(name)} is missing in {missing:,} rows, which are neither trained "
            "nor tested on",
            stacklevel=2,
        )
    return Target(name, found, values, known, classes, missing)


def infer_task(column: Column, data: pa.ChunkedArray) -> TaskName:
    """Text, booleans, categories and few whole numbers are classes; other numbers are numbers."""
    if column.kind == "categorical":
        return "classification"
    if column.kind == "datetime":
        raise InputError(
            f"--target {quoted(column.name)} holds dates; say --task classification to take "
            "each for a class"
        )
    numbers = as_numbers(data, column.name)
    distinct = len(np.unique(numbers.values[numbers.valid]))
    few = distinct <= min(MOST_INTEGERS, int(numbers.valid.sum()) // 2)
    return "classification" if column.is_integer and few else "regression"


def _refuse_extremes(values: NDArray[np.float64], name: str) -> None:
    largest, spread = np.abs(values).max(), np.ptp(values / 2)
    if largest > LARGEST or spread < 1 / LARGEST:
        raise InputError(
            f"--target {quoted(name)} holds numbers up to {largest:.1e} that differ by "
            f"{2 * spread:.1e}; their squares are no numbers, so scale it first"
        )


def _read_classes(
    data: pa.ChunkedArray, column: Column
) -> tuple[NDArray[Any], NDArray[np.bool_], tuple[str, ...]]:
    text = category_text(data, column.type)
    levels = Levels.fit(text)
    codes = levels.encode(text) - 1
    return codes, codes >= 0, tuple(levels.texts.to_pylist())


def _read_numbers(
    data: pa.ChunkedArray, name: str
) -> tuple[NDArray[Any], NDArray[np.bool_], tuple[str, ...]]:
    numbers = as_numbers(data, name)
    return numbers.values.astype(np.float64), numbers.valid, ()
