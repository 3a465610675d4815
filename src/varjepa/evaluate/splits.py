"""What is predicted, and the rows to train, validate and test on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.metrics.target import Task, infer_task
from varjepa.tables import Column, infer_schema
from varjepa.tables.columns import Levels, category_text
from varjepa.tables.messages import quoted, suggestion
from varjepa.tables.values import as_numbers

Index = NDArray[np.int64]

TEST_SHARE = 0.2
"""Section 4.2's 70/10/20"""
VALIDATION_SHARE = 0.1
"""of all rows, not of what is left after the test rows"""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Row numbers that share no row."""

    train: Index
    validation: Index
    test: Index

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if not len(getattr(self, name)):
                raise InputError(f"the {name} part of the split has no rows.")


def split_rows(rows: int, seed: int) -> Split:
    """Sample the test rows first, then the validation rows, regardless of the classes.

    Examples:
        >>> split = split_rows(100, seed=0)
        >>> len(split.train), len(split.validation), len(split.test)
        (70, 10, 20)
    """
    test, validation = round(TEST_SHARE * rows), round(VALIDATION_SHARE * rows)
    if min(test, validation, rows - test - validation) < 1:
        raise InputError(f"{rows} rows are too few to train, validate and test on")
    order = np.random.default_rng(seed).permutation(rows)
    parts = np.split(order, [test, test + validation])
    for_test, for_validation, for_training = (np.sort(part) for part in parts)
    return Split(for_training, for_validation, for_test)


# --- The target

TaskChoice = Literal["auto", "classification", "regression"]

LARGEST = 1e140
"""Numbers beyond this, or that differ by less than its inverse, have no squared error."""
MIN_ROWS = 20
"""Rows with a target that training, validation and test need: 14, 2 and 4."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What is to be predicted, for the rows where it is known."""

    name: str
    task: Task
    values: NDArray[Any]  # (n,) class numbers (int64), or numbers (float64)
    known: Index  # (n,) their rows in the table
    classes: tuple[str, ...]
    """names of the class numbers; empty for numbers"""
    missing: int
    """rows without a target"""

    def describe(self) -> str:
        """e.g. classification, 3 classes"""
        count = f", {len(self.classes):,} classes" if self.classes else ""
        return f"{self.task}{count}"


def read_target(table: pa.Table, name: str, task: TaskChoice) -> Target:
    """The target of every row that has one, or one sentence why it cannot be predicted."""
    if table.num_columns and not table.num_rows:
        raise InputError("the table has no rows")
    if name not in table.column_names:
        close = suggestion(name, table.column_names)
        raise InputError(f"--target {quoted(name)} is not a column of the table{close}")
    data = table[name]
    if data.null_count == len(data):
        raise InputError(f"--target {quoted(name)} has no values")
    column = infer_schema(table.select([name])).columns[0]
    chosen = _task_of(column, data) if task == "auto" else task
    classes: tuple[str, ...] = ()
    if chosen == "classification":
        text = category_text(data, column.type)
        levels = Levels.fit(text)
        values: NDArray[Any] = levels.encode(text) - 1
        is_known, classes = values >= 0, tuple(levels.texts.to_pylist())
    else:
        numbers = as_numbers(data, name)
        values, is_known = numbers.values.astype(np.float64), numbers.valid
    known = np.flatnonzero(is_known)
    missing = len(data) - len(known)
    target = Target(name, chosen, values[known], known, classes, missing)
    _check_target(target)
    if missing:
        warnings.warn(
            f"--target {quoted(name)} is missing in {missing:,} rows, which are neither trained "
            "nor tested on",
            stacklevel=2,
        )
    return target


def _task_of(column: Column, data: pa.ChunkedArray) -> Task:
    if column.kind == "categorical":
        return "classification"
    if column.kind == "datetime":
        raise InputError(
            f"--target {quoted(column.name)} holds dates; say --task classification to take "
            "each for a class"
        )
    numbers = as_numbers(data, column.name)
    return infer_task(numbers.values[numbers.valid]) if column.is_integer else "regression"


def _check_target(target: Target) -> None:
    name, values, rows = quoted(target.name), target.values, len(target.values)
    if rows < MIN_ROWS:
        raise InputError(
            f"--target {name} is known for {rows} rows; {MIN_ROWS} are needed "
            "to train, validate and test on"
        )
    if target.task == "regression":
        if np.ptp(values) == 0:
            raise InputError(f"--target {name} is the number {values[0]:g} in every row")
        largest, spread = np.abs(values).max(), np.ptp(values / 2)
        if largest > LARGEST or spread < 1 / LARGEST:
            raise InputError(
                f"--target {name} holds numbers up to {largest:.1e} that differ by "
                f"{2 * spread:.1e}; their squares are no numbers, so scale it first"
            )
    elif len(target.classes) < 2:
        raise InputError(f"--target {name} has one class only, {quoted(target.classes[0])}")
    elif 2 * len(target.classes) > rows:
        raise InputError(
            f"--target {name} has {len(target.classes):,} classes in {rows:,} rows; choose "
            "another column, or --task regression if it holds numbers"
        )


def check_split(target: Target, split: Split) -> None:
    """Refuse a target without variety in the training rows; warn of classes they do not have."""
    trained = np.unique(target.values[split.train])
    if len(trained) < 2:
        what = "class" if target.classes else "number"
        raise InputError(
            f"--target {quoted(target.name)} has one {what} only in the {len(split.train)} "
            "training rows; choose another --seed, or give more rows"
        )
    unseen = int((~np.isin(target.values[split.test], trained)).sum()) if target.classes else 0
    if unseen:
        warnings.warn(
            f"{unseen:,} of {len(split.test):,} test rows are of classes that no training row "
            "has; they count as errors",
            stacklevel=2,
        )


def hide_test_labels(target: Target, split: Split) -> NDArray[Any]:
    """The values with those of test rows replaced by a training row's: nothing can learn them."""
    visible = target.values.copy()
    visible[split.test] = visible[split.train[0]]
    return visible
