"""Cells of the comparison: one predictor on one representation, all its trainings.

A test row's label is replaced before anything is trained: predictors, early stopping and every
choice see the labels of training and validation rows only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varjepa.datasets.dataset import Split
from varjepa.downstream import DEFAULT_ADAPTER, FitOptions, Inputs, fit_seeds
from varjepa.downstream import Split as PredictorSplit
from varjepa.estimators.parameters import pick_device
from varjepa.evaluate.kept import SECONDS, Arrays, Kept
from varjepa.evaluate.settings import EvaluateSettings, training_of
from varjepa.evaluate.target import Target

Floats = NDArray[np.float64]

SCALE = "scale"
"""mean and standard deviation of a target of numbers, over the training rows"""


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Predictions of R trainings."""

    representation: str
    predictor: str
    validation: NDArray[Any]  # (R, n_validation, C) float32 probabilities, or (R, n_validation)
    test: NDArray[Any]  # (R, n_test, C), or (R, n_test) float64 numbers
    classes: NDArray[np.int64] | None  # (C,) class numbers of the columns; None for numbers
    seconds: float
    """all trainings together"""

    @property
    def adapter(self) -> str | None:
        """How embeddings entered the predictor."""
        return None if self.representation in ("raw", "pca") else DEFAULT_ADAPTER[self.predictor]

    @property
    def is_deterministic(self) -> bool:
        """Whether all trainings are one and the same."""
        return bool((self.test == self.test[:1]).all())

    def guesses(self, part: NDArray[Any]) -> NDArray[Any]:
        """Class numbers or numbers.  # (R, n)"""
        return part if self.classes is None else self.classes[part.argmax(-1)]


def fit_cell(
    representation: str,
    predictor: str,
    inputs: Inputs,
    target: Target,
    split: Split,
    settings: EvaluateSettings,
    kept: Kept,
) -> Cell:
    """Train where it has not been done, and predict validation and test rows."""
    both = np.concatenate([split.validation, split.test])

    def compute() -> Arrays:
        labels = hide_test_labels(target, split)
        scale: Arrays = {}
        if target.task == "regression":
            # predictors answer in float32, which could not tell 2^60 + 1 from 2^60 + 9
            here = labels[split.train]
            mean, std = here.mean(), here.std() or 1.0
            scale = {SCALE: np.array([mean, std])}
            labels = (labels - mean) / std
        found = fit_seeds(
            predictor,
            inputs,
            labels,
            PredictorSplit(split.train, split.validation, both),
            settings.seeds,
            FitOptions(
                task=target.task,
                training=training_of(predictor, len(split.train)),
                device=str(pick_device(settings.device)),
            ),
        )
        values: Arrays = {"values": found.values, **scale}
        return values if found.classes is None else values | {"classes": found.classes}

    arrays = kept.arrays(f"{representation}-{predictor}-{settings.runs}", compute)
    values, cut = arrays["values"], len(split.validation)
    if SCALE in arrays:
        mean, std = arrays[SCALE]
        values = values.astype(np.float64) * std + mean
    return Cell(
        representation,
        predictor,
        values[:, :cut],
        values[:, cut:],
        arrays.get("classes"),
        float(arrays[SECONDS][0]),
    )


def hide_test_labels(target: Target, split: Split) -> NDArray[Any]:
    """The labels with those of test rows replaced by a training row's."""
    visible = target.values.copy()
    visible[split.test] = visible[split.train[0]]
    return visible


def losses(cell: Cell, part: NDArray[Any], truth: NDArray[Any]) -> Floats:
    """Errors (0 or 1), or squared errors.  # (R, n)"""
    guesses = cell.guesses(part)
    if cell.classes is None:
        return (guesses.astype(np.float64) - truth) ** 2
    return (guesses != truth).astype(np.float64)


def best_on_validation(cells: list[Cell], truth: NDArray[Any]) -> Cell:
    """The cell with the least mean loss on the validation rows."""
    return min(cells, key=lambda cell: float(losses(cell, cell.validation, truth).mean()))
