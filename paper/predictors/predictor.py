"""The predictors by name: fit, predict, seeds.

Gradient-boosted trees from the package ``xgboost``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from paper.predictors.inputs import (
    BLOCK,
    EncodedRows,
    InputEncoder,
    Inputs,
    RawFeatures,
    RawScaling,
    Tokens,
    as_inputs,
    check_adapter,
    row_index,
)
from paper.predictors.networks import require
from paper.predictors.registry import (
    Classification,
    PredictorKind,
    Regression,
    TrainingSettings,
    predictor_kind,
    task_for,
)
from paper.predictors.stacking import dropout_streams
from paper.predictors.training import (
    Labelled,
    SeedStack,
    TrainingLog,
    predict_stack,
    seeds_at_once,
    train_stack,
)
from varjepa.errors import InputError
from varjepa.evaluate.splits import Index, Split


@dataclass(frozen=True, slots=True)
class XGBoostSettings:
    """Appendix D.6.4. Nothing in it is random, so all seeds share one model."""

    trees: int = 100
    """boosting rounds (of one tree per class)"""
    depth: int = 3
    """of a tree, at most"""
    learning_rate: float = 0.1
    """weight of a tree"""


def fit_trees(
    rows: EncodedRows,
    index: Tensor,
    targets: Tensor,
    task: Classification | Regression,
    settings: XGBoostSettings,
) -> Any:
    """A booster; rows are handed over a block at a time and kept quantised."""
    xgboost = require("xgboost", "xgboost")
    data = xgboost.QuantileDMatrix(_iterator(xgboost, rows, index, targets), max_bin=256)
    options: dict[str, Any] = {
        "tree_method": "hist",
        "max_depth": settings.depth,
        "learning_rate": settings.learning_rate,
        "objective": "reg:squarederror",
        "seed": 0,
        "verbosity": 1,
    }
    if isinstance(task, Classification) and task.outputs == 2:
        options["objective"] = "binary:logistic"
    elif isinstance(task, Classification):
        options |= {"objective": "multi:softprob", "num_class": task.outputs}
    return xgboost.train(options, data, num_boost_round=settings.trees)


def predict_trees(
    booster: Any, rows: EncodedRows, index: Tensor, task: Classification | Regression
) -> NDArray[np.float32]:
    """Probabilities (n, classes), or numbers (n,)."""
    parts = [booster.inplace_predict(block) for block in _blocks(rows, index)]
    values: NDArray[np.float32] = np.concatenate(parts)
    if isinstance(task, Regression):
        return (values * task.scale + task.mean).astype(np.float32)
    return np.stack([1.0 - values, values], 1) if task.outputs == 2 else values


def _blocks(rows: EncodedRows, index: Tensor) -> Iterator[NDArray[np.float32]]:
    for block in index.split(BLOCK):
        batch = rows.take(block[None])
        parts = [batch.numeric[0]]
        if batch.tokens is not None:
            parts.append(batch.tokens[0].flatten(1))
        yield torch.cat(parts, 1).numpy()


def _iterator(xgboost: Any, rows: EncodedRows, index: Tensor, targets: Tensor) -> Any:
    class Blocks(xgboost.DataIter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.reset()

        def reset(self) -> None:
            self.blocks = zip(_blocks(rows, index), targets.split(BLOCK), strict=True)

        def next(self, input_data: Callable[..., None]) -> bool:
            for block, labels in self.blocks:
                input_data(data=block, label=labels.numpy())
                return True
            return False

    return Blocks()


# --- The models of several seeds, fitted together, and what they predict.

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
    trees: XGBoostSettings = XGBoostSettings()
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
    options: FitOptions = FitOptions(),
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


# --- One predictor of one seed, with the interface scikit-learn users know.


class Predictor:
    """A predictor of the paper by name: mlp, dcn_v2, resnet, autoint, ft_transformer, xgboost,
    linear_probe.

    Shape: inputs are a matrix (n, F), RawFeatures, Tokens (n, D, d), or Inputs with both.

    Examples:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(200, 3))
        >>> y = np.where(x[:, 0] > 0, "yes", "no")
        >>> model = Predictor("linear_probe").fit(x[:150], y[:150], validation=(x[150:], y[150:]))
        >>> model.predict([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]).tolist()
        ['yes', 'no']
    """

    def __init__(
        self, name: str = "mlp", *, seed: int = 0, options: FitOptions | None = None
    ) -> None:
        self.name = name
        self.seed = seed
        self.options = options

    def fit(
        self, X: AnyInputs, y: ArrayLike, validation: tuple[AnyInputs, ArrayLike] | None = None
    ) -> Predictor:
        """Early stopping and the choice of the best epoch need validation rows; without them
        a network trains all epochs.
        """
        options = self.options or FitOptions()
        inputs, labels = as_inputs(X), np.asarray(y)
        if labels.shape != (len(inputs),):
            raise InputError(f"the target has {len(labels)} values for {len(inputs)} rows.")
        held_out = None
        if validation is not None:
            others = as_inputs(validation[0])
            held_out = LabelledInputs(others, np.arange(len(others)), np.asarray(validation[1]))
        index = np.arange(len(inputs))
        task = task_for(options.task, labels, index)
        self.models_ = fit_models(
            self.name, LabelledInputs(inputs, index, labels), held_out, task, [self.seed], options
        )
        self.classes_ = None if isinstance(task, Regression) else task.classes
        return self

    def predict_proba(self, X: AnyInputs) -> Floats:
        """Probabilities of ``classes_``.  # (n, classes)"""
        if self.classes_ is None:
            raise InputError("a numeric target has no probabilities; use predict.")
        return self.models_.predict(X)[0]

    def predict(self, X: AnyInputs) -> NDArray[Any]:
        """Most likely classes, or numbers.  # (n,)"""
        values = self.models_.predict(X)[0]
        return values if self.classes_ is None else self.classes_[values.argmax(-1)]
