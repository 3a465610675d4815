"""A perceptron and trees on few labels; no other label is read.

The perceptron stops by a fifth of the labels. Scaling needs no labels, so all training rows serve
it. Embeddings enter flattened, except for trees, which see the mean over the tokens: flattened,
MNIST alone would take hours. (The learned Linear(D·d → D) of the other tables overfits 40 rows.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from varjepa.downstream import (
    PREDICTORS,
    FitOptions,
    Inputs,
    Tokens,
    TrainingSettings,
)
from varjepa.downstream.batches import token_moments
from varjepa.downstream.models import LabelledInputs, fit_models
from varjepa.downstream.task import Classification
from varjepa.experiments.few_labels import Index, longer_training
from varjepa.experiments.pretraining import Scale

LOGISTIC, PERCEPTRON, TREES = LABEL_PREDICTORS = ("logistic", "mlp", "xgboost")

STEPS = 1000
"""that a perceptron may take at least"""
HELD_OUT = 5
"""one in so many labels decides when it stops"""

Moments = tuple[Tensor, Tensor]
"""mean and scale of tokens, (D, d) each"""


def adapter_of(predictor: str) -> str:
    """How embeddings enter a model."""
    return "mean" if predictor == TREES else "flat"


def training_of(scale: Scale, labels: int) -> TrainingSettings:
    """The perceptron's training on so many labels, less those it stops by."""
    kind = PREDICTORS[PERCEPTRON]
    if scale.predictor_epochs is not None:
        return replace(kind.training, epochs=min(kind.training.epochs, scale.predictor_epochs))
    return longer_training(kind.training, labels - labels // HELD_OUT, STEPS)


@dataclass(frozen=True, slots=True, eq=False)
class FewLabels:
    """The rows that may have a label, in their order, and after them the test rows."""

    inputs: Inputs
    labels: NDArray[np.int64]  # (n,)
    most: int
    """rows before the test rows"""

    def guess(
        self, predictor: str, size: int, seed: int, scale: Scale, device: str
    ) -> NDArray[np.int64]:
        """What a model of the first labels says of the test rows.  # (n_test,)"""
        held_out = size // HELD_OUT if predictor == PERCEPTRON else 0
        rows, test = np.arange(size), np.arange(self.most, len(self.labels))
        train = rows[held_out:]
        if np.ptp(self.labels[train]) == 0:  # all of one class: nothing to learn
            return np.full(len(test), self.labels[train[0]])
        visible = self.labels.copy()
        visible[size:] = visible[train[0]]  # labels of other rows cannot be read
        classes = np.unique(self.labels)
        found = fit_models(
            predictor,
            LabelledInputs(self.inputs, train, visible[train]),
            LabelledInputs(self.inputs, rows[:held_out], visible[:held_out]) if held_out else None,
            Classification(classes),
            [seed],
            FitOptions(
                adapter=adapter_of(predictor),
                training=training_of(scale, size) if predictor == PERCEPTRON else None,
                device=device,
            ),
        )
        chances = found.predict(self.inputs, test)[0]  # (n_test, classes)
        guesses: NDArray[np.int64] = classes[chances.argmax(-1)]
        return guesses


def standardised(inputs: Inputs, train: Index) -> tuple[Inputs, Moments | None]:
    """Inputs with the moments of their tokens over all training rows."""
    if inputs.tokens is None:
        return inputs, None
    return inputs, token_moments(inputs.tokens.values, torch.from_numpy(train))


def take(standard: tuple[Inputs, Moments | None], rows: Index) -> Inputs:
    """Some rows, their tokens standardised: few labelled rows could not say by what."""
    inputs, moments = standard
    raw = None if inputs.raw is None else inputs.raw.rows(rows)
    if inputs.tokens is None or moments is None:
        return Inputs(raw=raw)
    values = inputs.tokens.values[torch.from_numpy(rows)].float()
    return Inputs(raw, Tokens((values - moments[0]) / moments[1]))
