"""Train several seeds of a predictor as one network, or trees; the predictors by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paper.predictors.inputs import (
    BLOCK,
    DEFAULT_ADAPTER,
    Adapter,
    Batch,
    EncodedRows,
    InputEncoder,
    Inputs,
    InputShape,
    RawForm,
    row_index,
)
from paper.predictors.networks import (
    MLP,
    AutoInt,
    DCNv2,
    DropoutNoise,
    FrontEnd,
    LinearProbe,
    build_ft_transformer,
    build_resnet,
    draw_noise,
    dropout_streams,
    require,
)
from varjepa.errors import InputError
from varjepa.evaluate.splits import Index
from varjepa.randomness import generator_for

Floats = NDArray[np.float32]

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


# --- Training R networks as one, each with its own batches, dropout and early stopping.


@dataclass(frozen=True, slots=True)
class Labelled:
    """Some rows with their targets, on the device that trains."""

    rows: EncodedRows
    index: Tensor  # (n,) which rows
    targets: Tensor  # (n,) in the order of the index

    def __len__(self) -> int:
        return len(self.index)


class SeedStack(nn.Module):
    """An adapter and a predictor's body for R seeds.

    Every parameter and buffer has a leading axis R, and no seed's depends on another's.
    """

    def __init__(
        self, seeds: Sequence[int], body: Body, adapter: Adapter, shape: InputShape, outputs: int
    ) -> None:
        super().__init__()
        self.seeds = tuple(seeds)
        self.front = FrontEnd(seeds, adapter, shape)
        self.body = body(seeds, self.front.shape, outputs)

    def forward(self, batch: Batch, noise: DropoutNoise | None = None) -> Tensor:
        """Outputs of every seed on its own rows; without noise nothing is dropped."""
        return self.body(self.front(batch), noise)  # (R, B, outputs)


def train_stack(
    network: SeedStack,
    train: Labelled,
    validation: Labelled | None,
    settings: TrainingSettings,
    graphs: bool = False,
) -> Stopping:
    """Train until every seed has stopped, and leave each with the weights of its best epoch.

    Without validation rows every seed trains all epochs and keeps its last weights. With
    ``graphs`` the step is a CUDA graph, for which all rows must be on the GPU.
    """
    device = train.index.device
    optimiser = torch.optim.AdamW(
        network.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=True,
        capturable=graphs,
    )

    def step(here: Tensor, noise: DropoutNoise) -> None:
        outputs = network(train.rows.take(train.index[here]), noise)
        losses = row_losses(outputs, train.targets[here])  # (R, B)
        optimiser.zero_grad()
        losses.mean(-1).sum().backward()  # a sum over runs: runs do not share a gradient
        optimiser.step()

    run_step: Step = GraphedStep(step) if graphs else step
    orders = [generator_for(seed, "downstream order") for seed in network.seeds]
    dropouts = dropout_streams(network.seeds, device)
    per_row = dropout_numbers(network, train)
    stopping = Stopping(network, settings.patience)
    with tf32_products(device):
        for _ in range(settings.epochs):
            network.train()
            for here in _batches(orders, len(train), settings.batch, device):  # (R, B)
                run_step(here, draw_noise(dropouts, per_row * here.shape[1]))
            if validation is not None and stopping.after_epoch(mean_loss(network, validation)):
                break
    if validation is not None:
        stopping.restore()
    return stopping


@contextmanager
def tf32_products(device: torch.device) -> Iterator[None]:
    """On a GPU, products of float32 keep 10 bits of each factor's mantissa, several times faster.

    For what is trained by noisy gradients anyway. A CPU computes as ever.
    """
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@torch.no_grad()
def predict_stack(
    network: SeedStack, rows: EncodedRows, index: Tensor, noise: Sequence[torch.Generator] = ()
) -> Tensor:
    """Outputs of every seed on the same rows.  # (R, n, outputs)

    With one stream of noise per seed dropout stays active: one pass of Monte Carlo dropout.
    """
    network.eval()
    runs = len(network.seeds)
    per_row = dropout_numbers(network, Labelled(rows, index, index)) if noise else 0
    return torch.cat(
        [
            network(
                rows.take(block[None]).expand(runs),
                draw_noise(noise, per_row * len(block)) if noise else None,
            )
            for block in index.split(BLOCK)
        ],
        dim=1,
    )


def mean_loss(network: SeedStack, data: Labelled) -> Tensor:  # (R,)
    outputs = predict_stack(network, data.rows, data.index)
    return row_losses(outputs, data.targets.expand(len(outputs), -1)).mean(-1)


def row_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of every row.  # (R, B, classes), (R, B) → (R, B)"""
    flat = nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
    return flat.view(targets.shape)


class Stopping:
    """Plain early stopping, a seed at a time: the paper's "exponential patience of 16"."""

    def __init__(self, network: SeedStack, patience: int) -> None:
        runs = len(network.seeds)
        self.patience = patience
        self.state = [*network.parameters(), *network.buffers()]
        self.best = [part.detach().clone() for part in self.state]
        self.best_loss = torch.full((runs,), torch.inf)
        self.best_epoch = torch.full((runs,), -1)  # where no validation loss was finite
        self.stopped_after = torch.zeros(runs, dtype=torch.long)
        self.losses: list[Tensor] = []

    def after_epoch(self, loss: Tensor) -> bool:
        """Keep the weights of seeds that improved and still run; say whether all have stopped."""
        loss = loss.cpu()
        epoch = len(self.losses)
        self.losses.append(loss)
        running = self.stopped_after == 0
        improved = running & (loss < self.best_loss)  # never for NaN
        self.best_loss[improved] = loss[improved]
        self.best_epoch[improved] = epoch
        for run in improved.nonzero().flatten().tolist():
            for best, part in zip(self.best, self.state, strict=True):
                best[run].copy_(part.detach()[run])
        out_of_patience = epoch - self.best_epoch >= self.patience
        self.stopped_after[running & out_of_patience] = epoch + 1
        return bool((self.stopped_after > 0).all())

    @torch.no_grad()
    def restore(self) -> None:
        """Put every seed's best weights back."""
        for best, part in zip(self.best, self.state, strict=True):
            part.copy_(best)

    def epochs(self, most: int) -> Tensor:
        """Epochs until each seed stopped; a seed that stopped goes on unheard.  # (R,)"""
        return self.stopped_after.where(self.stopped_after > 0, torch.tensor(most))


@torch.no_grad()
def dropout_numbers(network: SeedStack, data: Labelled) -> int:
    """How many numbers the dropout layers of one seed use for a row."""
    mode = network.training
    network.eval()  # so that counting does not move batch statistics
    counter = DropoutNoise(None, len(network.seeds))
    network(data.rows.take(data.index[None, :1]).expand(len(network.seeds)), counter)
    network.train(mode)
    return counter.used


def _batches(
    orders: Sequence[torch.Generator], rows: int, batch: int, device: torch.device
) -> Iterator[Tensor]:
    """One epoch's positions for every seed, (R, B) at a time.

    A single left-over row is left out: batch statistics of one row do not exist.
    """
    order = torch.stack([torch.randperm(rows, generator=g) for g in orders]).to(device)
    for here in order.split(batch, dim=1):
        if here.shape[1] > 1 or rows == 1 or batch == 1:
            yield here


# --- A training step as one CUDA graph: small networks wait for launches, not for arithmetic.

Step = Callable[[Tensor, DropoutNoise], None]
"""Takes positions (R, B) and dropout numbers, and changes weights in place."""

WARM_UP = 3
"""Steps before the capture, so that library and optimiser state exists; they train too."""


class GraphedStep:
    """The same step. Batches of the first one's shape are replayed, others (an epoch's last batch)
    run as they are.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.here: Tensor | None = None
        self.uniform: Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0
        self.side = torch.cuda.Stream()

    def __call__(self, here: Tensor, noise: DropoutNoise) -> None:
        if self.here is None:
            self.here = torch.empty_like(here)
            self.uniform = None if noise.uniform is None else torch.empty_like(noise.uniform)
        if here.shape != self.here.shape:
            self.step(here, noise)
            return
        if self.calls < WARM_UP:
            self.calls += 1
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                self.step(here, noise)
            torch.cuda.current_stream().wait_stream(self.side)
            return
        self.here.copy_(here)
        if self.uniform is not None and noise.uniform is not None:
            self.uniform.copy_(noise.uniform)
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):  # records, does not run
                self.step(self.here, DropoutNoise(self.uniform, noise.runs))
        self.graph.replay()


# --- How many seeds are worth training as one stack.

CPU_BUDGET = 128 * 2**20
"""Bytes a stack may take on a CPU: one that outgrows the caches is no faster than a loop."""
GPU_SHARE = 0.5
"""Share of the free memory a stack may take on a GPU."""
COPIES = 5
"""Of the weights: themselves, gradients, two moments, the best so far."""


def seeds_at_once(one: SeedStack, rows: EncodedRows, index: torch.Tensor, batch: int) -> int:
    """From what a stack of one seed keeps for the backward pass of one row; at least 1.

    A seed's result does not depend on its neighbours, so this changes time and memory alone.
    """
    device = index.device
    budget = float(CPU_BUDGET)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        budget = GPU_SHARE * (free + cached)
    weights = sum(p.nbytes for p in one.parameters())
    return max(1, int(budget // (COPIES * weights + 2 * batch * kept_per_row(one, rows, index))))


def kept_per_row(one: SeedStack, rows: EncodedRows, index: torch.Tensor) -> int:
    """Bytes that autograd keeps of one row, weights not counted."""
    known = {p.untyped_storage().data_ptr() for p in [*one.parameters(), *one.buffers()]}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    batch = rows.take(index[None, :1])
    counter = DropoutNoise(None)
    one.eval()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        outputs = one(batch, counter)
    del outputs
    return sum(kept.values()) + 5 * counter.used  # a number and a mask bit for every dropout


# --- Gradient-boosted trees from the package ``xgboost``.


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
    rows: EncodedRows, index: Tensor, targets: Tensor, classes: int, settings: XGBoostSettings
) -> Any:
    """A booster; rows are handed over a block at a time and kept quantised."""
    xgboost = require("xgboost", "xgboost")
    data = xgboost.QuantileDMatrix(_iterator(xgboost, rows, index, targets), max_bin=256)
    options: dict[str, Any] = {
        "tree_method": "hist",
        "max_depth": settings.depth,
        "learning_rate": settings.learning_rate,
        "objective": "binary:logistic",
        "seed": 0,
        "verbosity": 1,
    }
    if classes > 2:
        options |= {"objective": "multi:softprob", "num_class": classes}
    return xgboost.train(options, data, num_boost_round=settings.trees)


def predict_trees(booster: Any, rows: EncodedRows, index: Tensor) -> Floats:  # (n, classes)
    parts = [booster.inplace_predict(block) for block in _blocks(rows, index)]
    values: Floats = np.concatenate(parts)
    return np.stack([1.0 - values, values], 1) if values.ndim == 1 else values


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


@dataclass(frozen=True, slots=True)
class FitOptions:
    """What can be chosen for any predictor."""

    adapter: Adapter | None = None
    """how embeddings enter; None takes the predictor's default"""
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
    classes: NDArray[Any]
    """labels of the columns of a prediction"""
    seeds: tuple[int, ...]
    device: str
    stacks: tuple[SeedStack, ...]
    """networks of all seeds, in groups; empty for trees"""
    booster: Any
    """trees, the same for every seed; None for networks"""
    logs: tuple[Stopping, ...]
    """what early stopping saw, one for each stack"""

    def predict(self, inputs: Inputs, index: Index) -> Floats:
        """Probabilities of some rows.  # (R, n, classes)"""
        rows, where = self._encode(inputs, index)
        if self.booster is not None:
            values = predict_trees(self.booster, rows, where)
            return np.broadcast_to(values, (len(self.seeds), *values.shape)).copy()
        parts = [predict_stack(stack, rows, where) for stack in self.stacks]
        return torch.cat(parts).softmax(-1).cpu().numpy()

    def predict_with_dropout(self, inputs: Inputs, passes: int, index: Index) -> Floats:
        """Monte Carlo dropout: a pass's masks depend on the seed and the pass alone.

        Shape: ``(passes, R, n, classes)``.
        """
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
            drawn.append(torch.cat(parts).softmax(-1).cpu().numpy())
        return np.stack(drawn)

    def _encode(self, inputs: Inputs, index: Index) -> tuple[EncodedRows, Tensor]:
        rows = self.encoder.transform(inputs).to(self.device)
        return rows, row_index(index, self.device)


def fit_models(
    predictor: str | PredictorKind,
    train: LabelledInputs,
    validation: LabelledInputs | None,
    classes: NDArray[Any],
    seeds: Sequence[int],
    options: FitOptions,
) -> SeedModels:
    """Fit encoders on the training rows and the predictor for every seed.

    ``classes`` are sorted, and a rare one keeps its column even if no training row has it.
    """
    kind = predictor if isinstance(predictor, PredictorKind) else PREDICTORS[predictor]
    if len(np.unique(train.labels)) < 2:
        raise InputError("the target has one class only in the training rows.")
    adapter = options.adapter or DEFAULT_ADAPTER[kind.name]
    device = options.device if kind.body is not None else "cpu"
    encoder = InputEncoder(kind.raw_form, adapter).fit(train.inputs, train.index)
    rows = encoder.transform(train.inputs).to(device)
    shape = encoder.shape(rows)
    own = _labelled(rows, train, classes, device)
    if kind.body is None:
        booster = fit_trees(own.rows, own.index, own.targets, len(classes), options.trees)
        return SeedModels(encoder, classes, tuple(seeds), device, (), booster, ())
    held_out = None
    if validation is not None:
        same = validation.inputs is train.inputs
        held_out_rows = rows if same else encoder.transform(validation.inputs).to(device)
        held_out = _labelled(held_out_rows, validation, classes, device)
    settings = options.training or kind.training

    def build(some: Sequence[int]) -> SeedStack:
        assert kind.body is not None
        return SeedStack(some, kind.body, adapter, shape, len(classes)).to(device)

    at_once = options.at_once or min(
        len(seeds), seeds_at_once(build(seeds[:1]), rows, own.index, settings.batch)
    )
    graphs = options.graphs and own.index.is_cuda and rows.is_on(own.index.device)
    stacks, logs = [], []
    for first in range(0, len(seeds), at_once):
        stack = build(seeds[first : first + at_once])
        logs.append(train_stack(stack, own, held_out, settings, graphs))
        stacks.append(stack)
    return SeedModels(encoder, classes, tuple(seeds), device, tuple(stacks), None, tuple(logs))


def _labelled(
    rows: EncodedRows, data: LabelledInputs, classes: NDArray[Any], device: str
) -> Labelled:
    places = np.searchsorted(classes, data.labels)
    return Labelled(rows, row_index(data.index, device), row_index(places, device))
