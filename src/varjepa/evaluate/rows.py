"""Which rows are used for what."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.datasets.dataset import Split
from varjepa.errors import InputError
from varjepa.evaluate.settings import EvaluateSettings
from varjepa.evaluate.target import Target
from varjepa.tables.quoting import quoted


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
