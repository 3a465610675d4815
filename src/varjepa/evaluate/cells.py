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


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Predictions of R trainings."""

    representation: str
    predictor: str
    validation: NDArray[np.float32]  # (R, n_validation, C) probabilities, or (R, n_validation)
    test: NDArray[np.float32]  # (R, n_test, C), or (R, n_test)
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

    def guesses(self, part: NDArray[np.float32]) -> NDArray[Any]:
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
        found = fit_seeds(
            predictor,
            inputs,
            hide_test_labels(target, split),
            PredictorSplit(split.train, split.validation, both),
            settings.seeds,
            FitOptions(
                task=target.task,
                training=training_of(predictor, len(split.train)),
                device=str(pick_device(settings.device)),
            ),
        )
        values: Arrays = {"values": found.values}
        return values if found.classes is None else values | {"classes": found.classes}

    arrays = kept.arrays(f"{representation}-{predictor}-{settings.runs}", compute)
    values, cut = arrays["values"], len(split.validation)
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


def losses(cell: Cell, part: NDArray[np.float32], truth: NDArray[Any]) -> Floats:
    """Errors (0 or 1), or squared errors.  # (R, n)"""
    guesses = cell.guesses(part)
    if cell.classes is None:
        return (guesses.astype(np.float64) - truth) ** 2
    return (guesses != truth).astype(np.float64)


def best_on_validation(cells: list[Cell], truth: NDArray[Any]) -> Cell:
    """The cell with the least mean loss on the validation rows."""
    return min(cells, key=lambda cell: float(losses(cell, cell.validation, truth).mean()))
