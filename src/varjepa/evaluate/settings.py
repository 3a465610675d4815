"""What to evaluate: the task, the target, the rows.

What an evaluation compares and how, checked before any work is done.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.downstream import PREDICTORS, TrainingSettings
from varjepa.downstream.networks import require
from varjepa.downstream.registry import TaskName, predictor_kind
from varjepa.errors import InputError
from varjepa.estimators.parameters import pick_device
from varjepa.evaluate.few_labels import longer_training
from varjepa.evaluate.splits import Split
from varjepa.tables import Column, infer_schema
from varjepa.tables import Kind as ColumnKind
from varjepa.tables.features import Levels, category_text
from varjepa.tables.messages import quoted
from varjepa.tables.values import as_numbers

Task = Literal["auto", "classification", "regression"]
TASKS: tuple[Task, ...] = ("auto", "classification", "regression")

REPRESENTATIONS = {
    "raw": "raw",
    "pca": "PCA of raw",
    "t_jepa": "T-JEPA",
    "var_t_jepa": "Var-T-JEPA",
    "raw+var_t_jepa": "raw + Var-T-JEPA",
}
"""Names on the command line, and in tables."""

NEED_VAR_T_JEPA = ("var_t_jepa", "raw+var_t_jepa")

_PACKAGES = {
    "xgboost": "xgboost",
    "resnet": "rtdl_revisiting_models",
    "ft_transformer": "rtdl_revisiting_models",
}

LEAST_STEPS = 4000
"""Training steps that every neural predictor may take. Fifty epochs, the paper's, are plenty for
its datasets; on a table of a hundred rows they would leave a predictor of few inputs half trained,
and raw features would lose for that reason alone."""


def default_predictors() -> tuple[str, ...]:
    """A linear one, a network, and trees where they are installed: the cheap ones."""
    trees = ("xgboost",) if importlib.util.find_spec("xgboost") else ()
    return ("linear_probe", "mlp", *trees)


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """One comparison."""

    target: str
    """column to predict"""
    task: Task = "auto"
    """auto: numbers with many values are regressed, everything else is classified"""
    representations: tuple[str, ...] = tuple(REPRESENTATIONS)
    """which to compare"""
    predictors: tuple[str, ...] = ()
    """which to train on each; empty: :func:`default_predictors`"""
    runs: int = 3
    """trainings of each predictor, on one split and one fitted representation, as in the paper"""
    epochs: int | None = None
    """of T-JEPA and Var-T-JEPA; None: as many as the estimators take by themselves"""
    transductive: bool = False
    """fit representations on all rows, the paper's protocol; labels of test rows are never used"""
    labels_pick_checkpoint: bool = False
    """training labels pick the moment at which T-JEPA and Var-T-JEPA are kept"""
    kinds: tuple[tuple[str, ColumnKind], ...] = ()
    """columns that are not what they look like"""
    rows: int | None = None
    """evaluate on this many rows, drawn at random; None: on all"""
    device: str = "auto"
    """auto, cpu or cuda"""
    seed: int = 0
    """of the split, the representations and the first training of a predictor"""

    @property
    def seeds(self) -> list[int]:
        """One for each training of a predictor."""
        return [self.seed + run for run in range(self.runs)]


def check_settings(settings: EvaluateSettings) -> EvaluateSettings:
    """Refuse what cannot be done; the names in the order of their tables, defaults filled in."""
    for name in settings.representations:
        if name not in REPRESENTATIONS:
            raise InputError(
                f"--representations {name!r} is not one of {', '.join(REPRESENTATIONS)}"
            )
    for name in settings.predictors:
        if name not in PREDICTORS:
            raise InputError(f"--predictors {name!r} is not one of {', '.join(PREDICTORS)}")
        if name in _PACKAGES:
            require(_PACKAGES[name], name)
    if settings.task not in TASKS:
        raise InputError(f"--task {settings.task!r} is not one of {', '.join(TASKS)}")
    if settings.labels_pick_checkpoint and settings.transductive:
        raise InputError(
            "--labels-pick-checkpoint needs labels of all rows that a representation is fitted on, "
            "so it does not go with --transductive"
        )
    pick_device(settings.device)
    predictors = settings.predictors or default_predictors()
    return replace(
        settings,
        representations=_in_order(settings.representations, tuple(REPRESENTATIONS)),
        predictors=_in_order(predictors, tuple(PREDICTORS)),
    )


def training_of(predictor: str, rows: int) -> TrainingSettings:
    """The predictor's own settings; on few rows with smaller batches and more epochs."""
    return longer_training(predictor_kind(predictor).training, rows, LEAST_STEPS)


def _in_order(chosen: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in known if name in chosen)


# --- The target column: classes or numbers, and which rows have one.

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


# --- Which rows are used for what.


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of an evaluation."""

    labelled: pa.Table
    """features of the rows that have a target, (n, columns)"""
    split: Split
    """numbers of labelled rows"""
    unlabelled: pa.Table
    """features of every row that a representation may be fitted on"""
    fit_labels: NDArray[Any] | None
    """labels of exactly these rows where they may pick the checkpoint, else None"""


def choose_rows(table: pa.Table, settings: EvaluateSettings) -> pa.Table:
    """All rows, or as many as were asked for, in the table's order."""
    if settings.rows is None or settings.rows >= table.num_rows:
        return table
    order = np.random.default_rng(settings.seed).permutation(table.num_rows)
    return table.take(np.sort(order[: settings.rows]))


def choose_fit_rows(
    features: pa.Table, target: Target, split: Split, settings: EvaluateSettings
) -> Rows:
    """What representations are fitted on: training rows, or all there are."""
    labelled = features if not target.missing else features.take(target.known)
    if settings.transductive:
        return Rows(labelled, split, features, None)
    labels = target.values[split.train] if settings.labels_pick_checkpoint else None
    return Rows(labelled, split, labelled.take(split.train), labels)


def check_split(target: Target, split: Split) -> None:
    """Refuse a target without variety in the training rows; tell of classes they do not have."""
    trained = np.unique(target.values[split.train])
    if len(trained) < 2:
        what = "class" if target.classes else "number"
        raise InputError(
            f"--target {quoted(target.name)} has one {what} only in the {len(split.train)} "
            "training rows; choose another --seed, or give more rows"
        )
    if target.task == "regression":
        return
    known = np.unique(np.concatenate([trained, target.values[split.validation]]))
    strangers = int((~np.isin(target.values[split.test], known)).sum())
    if strangers:
        warnings.warn(
            f"{strangers:,} of {len(split.test):,} test rows are of classes that no training or "
            "validation row has; they count as errors",
            stacklevel=2,
        )
