"""What is predicted: one of several classes, or a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from varjepa.errors import InputError

TaskName = Literal["classification", "regression"]


class Task(Protocol):
    """Labels to targets, outputs to losses and predictions."""

    @property
    def outputs(self) -> int:
        """Outputs of a network."""

    def targets(self, labels: ArrayLike) -> Tensor:
        """What a network is trained on.  # (n,)"""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of every row.  # (R, B, outputs), (R, B) → (R, B)"""

    def predictions(self, outputs: Tensor) -> Tensor:
        """Probabilities (R, n, classes), or numbers (R, n)."""


@dataclass(frozen=True, slots=True)
class Classification:
    """Cross-entropy over sorted classes."""

    classes: NDArray[Any]

    @property
    def outputs(self) -> int:
        return len(self.classes)

    def targets(self, labels: ArrayLike) -> Tensor:
        values = np.asarray(labels)
        index = np.searchsorted(self.classes, values).clip(max=len(self.classes) - 1)
        unknown = values[self.classes[index] != values]
        if len(unknown):
            raise InputError(f"class {unknown[0]!s} does not occur in the training rows.")
        return torch.from_numpy(index.astype(np.int64))

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        flat = nn.functional.cross_entropy(
            outputs.flatten(0, 1), targets.flatten(), reduction="none"
        )
        return flat.view(targets.shape)

    def predictions(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(-1)


@dataclass(frozen=True, slots=True)
class Regression:
    """Squared error of a standardised target: the weights with the least of it have the least
    RMSE.
    """

    mean: float
    scale: float

    @property
    def outputs(self) -> int:
        return 1

    def targets(self, labels: ArrayLike) -> Tensor:
        values = (np.asarray(labels, dtype=np.float64) - self.mean) / self.scale
        return torch.from_numpy(values.astype(np.float32))

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.squeeze(-1) - targets).square()

    def predictions(self, outputs: Tensor) -> Tensor:
        return outputs.squeeze(-1) * self.scale + self.mean


def task_for(name: str, labels: ArrayLike, train: NDArray[np.int64]) -> Classification | Regression:
    """Classes are those of all labels, so that a rare one keeps its column; a number's mean and
    scale are those of the training rows.
    """
    values = np.asarray(labels)
    if name == "classification":
        classes = np.unique(values)
        if len(np.unique(values[train])) < 2:
            raise InputError("the target has one class only in the training rows.")
        return Classification(classes)
    if name != "regression":
        raise InputError(f"task '{name}' is unknown; choose classification or regression.")
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise InputError("the target has missing or infinite numbers.")
    here = numbers[train]
    return Regression(float(here.mean()), float(here.std()) or 1.0)
