"""Train several seeds of a predictor at once.

How many seeds are worth training as one stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paper.predictors.inputs import BLOCK, Adapter, Batch, EncodedRows, InputShape
from paper.predictors.networks import FrontEnd
from paper.predictors.registry import Body, Task, TrainingSettings
from paper.predictors.stacking import DropoutNoise, GraphedStep, Step, draw_noise, dropout_streams
from varjepa.nn.kernels.tf32 import tf32_products
from varjepa.randomness import generator_for

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


# --- Training R networks as one, each with its own batches, dropout and early stopping.


@dataclass(frozen=True, slots=True)
class Labelled:
    """Some rows with their targets, on the device that trains."""

    rows: EncodedRows
    index: Tensor  # (n,) which rows
    targets: Tensor  # (n,) in the order of the index

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """What early stopping saw. A seed that stopped goes on unheard, so only its part counts."""

    validation_loss: Tensor  # (epochs, R)
    best_epoch: Tensor  # (R,) counted from 0; −1 where no validation loss was finite
    best_loss: Tensor  # (R,)
    epochs: Tensor  # (R,) epochs until the seed stopped


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
    task: Task,
    train: Labelled,
    validation: Labelled | None,
    settings: TrainingSettings,
    graphs: bool = False,
) -> TrainingLog:
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
        losses = task.losses(outputs, train.targets[here])  # (R, B)
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
            if validation is not None and stopping.after_epoch(
                mean_loss(network, task, validation)
            ):
                break
    if validation is not None:
        stopping.restore()
    return stopping.log(settings.epochs)


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


def mean_loss(network: SeedStack, task: Task, data: Labelled) -> Tensor:
    """Mean loss of every seed.  # (R,)"""
    outputs = predict_stack(network, data.rows, data.index)
    return task.losses(outputs, data.targets.expand(len(outputs), -1)).mean(-1)


class Stopping:
    """Plain early stopping, a seed at a time: the paper's "exponential patience of 16"."""

    def __init__(self, network: SeedStack, patience: int) -> None:
        runs = len(network.seeds)
        self.patience = patience
        self.state = [*network.parameters(), *network.buffers()]
        self.best = [part.detach().clone() for part in self.state]
        self.best_loss = torch.full((runs,), torch.inf)
        self.best_epoch = torch.full((runs,), -1)
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

    def log(self, epochs: int) -> TrainingLog:
        losses = torch.stack(self.losses) if self.losses else torch.empty(0, len(self.best_loss))
        ran = self.stopped_after.where(self.stopped_after > 0, torch.tensor(epochs))
        return TrainingLog(losses, self.best_epoch, self.best_loss, ran)


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
