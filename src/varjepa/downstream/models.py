"""The models of several seeds, fitted together, and what they predict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from varjepa.downstream.adapters import check_adapter
from varjepa.downstream.batches import EncodedRows, InputEncoder, row_index
from varjepa.downstream.encoding import RawScaling
from varjepa.downstream.inputs import Index, Inputs, RawFeatures, Split, Tokens, as_inputs
from varjepa.downstream.memory import seeds_at_once
from varjepa.downstream.noise import dropout_streams
from varjepa.downstream.registry import PredictorKind, TrainingSettings, predictor_kind
from varjepa.downstream.task import Classification, Regression, task_for
from varjepa.downstream.training import (
    Labelled,
    SeedStack,
    TrainingLog,
    predict_stack,
    train_stack,
)
from varjepa.downstream.xgboost import XGBoostSettings, fit_trees, predict_trees
from varjepa.errors import InputError

AnyInputs = Inputs | RawFeatures | Tokens | ArrayLike
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class FitOptions:
    """What can be chosen for any predictor."""

    task: str = "classification"
    """or regression"""
    adapter: str | None = None
    """how embeddings enter (see adapters.py); None takes the predictor's default"""
    scaling: RawScaling = "standard"
    """of raw numbers, for neural predictors"""
    training: TrainingSettings | None = None
    """None takes the predictor's own; trees have none"""
    trees: XGBoostSettings = XGBoostSettings()  # noqa: RUF009 - frozen
    """of the predictor that is made of them"""
    device: str = "cpu"
    """where networks train; trees use the CPU"""
    at_once: int | None = None
    """seeds in one stack; None takes as many as are worth it"""
    graphs: bool = True
    """on a GPU, replay the training step as a CUDA graph where all rows fit there"""


@dataclass(frozen=True, slots=True)
class LabelledInputs:
    """Rows of inputs with the labels of exactly these rows."""

    inputs: Inputs
    index: Index  # (n,)
    labels: NDArray[Any]  # (n,)


@dataclass(frozen=True, slots=True)
class SeedModels:
    """Fitted models of R seeds."""

    encoder: InputEncoder
    task: Classification | Regression
    seeds: tuple[int, ...]
    device: str
    stacks: tuple[SeedStack, ...]
    """networks of all seeds, in groups; empty for trees"""
    booster: Any
    """trees, the same for every seed; None for networks"""
    logs: tuple[TrainingLog, ...]
    """one for each stack"""

    def predict(self, inputs: AnyInputs, index: Index | None = None) -> Floats:
        """Probabilities (R, n, classes), or numbers (R, n)."""
        rows, where = self._encode(inputs, index)
        if self.booster is not None:
            values = predict_trees(self.booster, rows, where, self.task)
            return np.broadcast_to(values, (len(self.seeds), *values.shape)).copy()
        parts = [predict_stack(stack, rows, where) for stack in self.stacks]
        return self.task.predictions(torch.cat(parts)).cpu().numpy()

    def predict_with_dropout(
        self, inputs: AnyInputs, passes: int, index: Index | None = None
    ) -> Floats:
        """Monte Carlo dropout: a pass's masks depend on the seed and the pass alone.

        Shape: ``(passes, R, n, classes)``, or ``(passes, R, n)`` for numbers.
        """
        if self.booster is not None:
            raise InputError("xgboost has no dropout to leave on.")
        rows, where = self._encode(inputs, index)
        drawn = []
        for number in range(passes):
            purpose = f"downstream dropout pass {number}"
            parts = [
                predict_stack(
                    stack, rows, where, dropout_streams(stack.seeds, self.device, purpose)
                )
                for stack in self.stacks
            ]
            drawn.append(self.task.predictions(torch.cat(parts)).cpu().numpy())
        return np.stack(drawn)

    def _encode(self, inputs: AnyInputs, index: Index | None) -> tuple[EncodedRows, Tensor]:
        rows = self.encoder.transform(as_inputs(inputs)).to(self.device)
        where = np.arange(len(rows)) if index is None else index
        return rows, row_index(where, self.device)


@dataclass(frozen=True, slots=True)
class SeedPredictions:
    """What R seeds say about the test rows, and how their training went."""

    values: Floats  # (R, n_test, classes) probabilities, or (R, n_test) numbers
    classes: NDArray[Any] | None  # (classes,) labels of the columns
    best_epoch: NDArray[np.int64]  # (R,), −1 for trees
    epochs: NDArray[np.int64]  # (R,) epochs run until early stopping, 0 for trees
    validation_loss: Floats  # (R,) at the best epoch: cross-entropy, or the RMSE; NaN for trees
    seconds: float
    """fitting and predicting, all seeds together"""

    def labels(self) -> NDArray[Any]:
        """Most likely class or predicted number.  # (R, n_test)"""
        return self.values if self.classes is None else self.classes[self.values.argmax(-1)]


def fit_seeds(
    predictor: str | PredictorKind,
    inputs: AnyInputs,
    labels: ArrayLike,
    split: Split,
    seeds: Sequence[int],
    options: FitOptions = FitOptions(),  # noqa: B008 - frozen
) -> SeedPredictions:
    """Train all seeds together on the split and predict its test rows."""
    start = time.perf_counter()
    data, values = as_inputs(inputs), np.asarray(labels)
    if values.shape != (len(data),):
        raise InputError(f"the target has {len(values)} values for {len(data)} rows.")
    task = task_for(options.task, values, split.train)
    models = fit_models(
        predictor,
        LabelledInputs(data, split.train, values[split.train]),
        LabelledInputs(data, split.validation, values[split.validation]),
        task,
        seeds,
        options,
    )
    predicted = models.predict(data, split.test)
    log = _joined(models.logs, len(seeds), task)
    classes = task.classes if isinstance(task, Classification) else None
    return SeedPredictions(predicted, classes, *log, time.perf_counter() - start)


def fit_models(
    predictor: str | PredictorKind,
    train: LabelledInputs,
    validation: LabelledInputs | None,
    task: Classification | Regression,
    seeds: Sequence[int],
    options: FitOptions,
) -> SeedModels:
    """Fit encoders on the training rows and the predictor for every seed."""
    kind = predictor if isinstance(predictor, PredictorKind) else predictor_kind(predictor)
    if not seeds:
        raise ValueError("no seeds")
    if len(train.index) < 2:
        raise InputError(f"predictor {kind.name} needs at least two training rows.")
    adapter = check_adapter(kind.name, options.adapter)
    device = options.device if kind.body is not None else "cpu"
    encoder = InputEncoder(kind.raw_form, adapter, options.scaling).fit(train.inputs, train.index)
    rows = encoder.transform(train.inputs).to(device)
    shape = encoder.shape(rows)
    own = _labelled(rows, train, task, device)
    if kind.body is None:
        booster = fit_trees(own.rows, own.index, own.targets, task, options.trees)
        return SeedModels(encoder, task, tuple(seeds), device, (), booster, ())
    held_out = None
    if validation is not None:
        same = validation.inputs is train.inputs
        held_out_rows = rows if same else encoder.transform(validation.inputs).to(device)
        held_out = _labelled(held_out_rows, validation, task, device)
    settings = options.training or kind.training

    def build(some: Sequence[int]) -> SeedStack:
        assert kind.body is not None
        return SeedStack(some, kind.body, adapter, shape, task.outputs).to(device)

    at_once = options.at_once or min(
        len(seeds), seeds_at_once(build(seeds[:1]), rows, own.index, settings.batch)
    )
    graphs = options.graphs and own.index.is_cuda and rows.is_on(own.index.device)
    stacks, logs = [], []
    for first in range(0, len(seeds), at_once):
        stack = build(seeds[first : first + at_once])
        logs.append(train_stack(stack, task, own, held_out, settings, graphs))
        stacks.append(stack)
    return SeedModels(encoder, task, tuple(seeds), device, tuple(stacks), None, tuple(logs))


def _labelled(
    rows: EncodedRows, data: LabelledInputs, task: Classification | Regression, device: str
) -> Labelled:
    return Labelled(rows, row_index(data.index, device), task.targets(data.labels).to(device))


def _joined(
    logs: Sequence[TrainingLog], runs: int, task: Classification | Regression
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Best epoch, epochs run and validation loss of all seeds."""
    if not logs:
        nothing = np.zeros(runs, dtype=np.int64)
        return nothing - 1, nothing, np.full(runs, np.nan, dtype=np.float32)
    loss = torch.cat([log.best_loss for log in logs]).numpy()
    if isinstance(task, Regression):
        loss = np.sqrt(loss) * np.float32(task.scale)
    return (
        torch.cat([log.best_epoch for log in logs]).numpy(),
        torch.cat([log.epochs for log in logs]).numpy(),
        loss,
    )
