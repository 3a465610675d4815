"""The predictors by name, and the tasks they are fitted to.

What is predicted: one of several classes, or a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from paper.predictors.inputs import InputShape, RawForm
from paper.predictors.networks import (
    MLP,
    AutoInt,
    DCNv2,
    LinearProbe,
    build_ft_transformer,
    build_resnet,
)
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


# --- The table of predictors: what each takes, how it is built and how it is trained.


class Body(Protocol):
    """Builds the networks of all seeds; they map a Batch and DropoutNoise to (R, B, outputs)."""

    def __call__(self, seeds: Sequence[int], shape: InputShape, outputs: int) -> nn.Module: ...


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Common to the neural predictors (Appendix D.6.4)."""

    epochs: int = 50
    """passes over the training rows, at most"""
    batch: int = 128
    """rows per step"""
    learning_rate: float = 1e-3
    """AdamW"""
    weight_decay: float = 0.01
    """AdamW"""
    patience: int = 16
    """epochs without a lower validation loss after which a seed stops"""


@dataclass(frozen=True, slots=True)
class PredictorKind:
    """One row of the table."""

    name: str
    raw_form: RawForm
    """how raw columns are encoded for it"""
    body: Body | None
    """builds the networks; None for trees"""
    training: TrainingSettings = TrainingSettings()


PROBE = TrainingSettings(weight_decay=2e-5)
"""The linear probe of the appendix."""

FIGURE_PROBE = TrainingSettings(epochs=20, batch=8192, learning_rate=1e-2, weight_decay=2e-5)
"""The probe of the risk–coverage figure, on standardised embeddings."""

PREDICTORS: dict[str, PredictorKind] = {
    kind.name: kind
    for kind in (
        PredictorKind("linear_probe", "one-hot", LinearProbe, PROBE),
        PredictorKind("mlp", "one-hot", MLP),
        PredictorKind("dcn_v2", "one-hot", DCNv2),
        PredictorKind("resnet", "one-hot", build_resnet),
        PredictorKind("autoint", "codes", AutoInt),
        PredictorKind("ft_transformer", "codes", build_ft_transformer),
        PredictorKind("xgboost", "trees", None),
    )
}


def predictor_kind(name: str) -> PredictorKind:
    """The table's row, or one sentence with the names there are."""
    try:
        return PREDICTORS[name]
    except KeyError:
        raise InputError(
            f"predictor '{name}' is unknown; choose one of {', '.join(PREDICTORS)}."
        ) from None
