"""One optimiser step: random numbers, losses, gradients, a guard against bad steps.

Masks and noise are drawn in one place for the whole batch, so that a process which holds a slice of
the batch draws the same numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from varjepa.models.masking import draw_mask_sizes, draw_masks
from varjepa.nn.row_threads import RowThreads, one_thread, slices_of
from varjepa.randomness import generator_for
from varjepa.settings import Training
from varjepa.tables.codec import EncodedTable
from varjepa.training.losses import Draw, ElboRows, Loss
from varjepa.training.optimiser import AveragedModel, MapWork, Optimiser
from varjepa.training.processes import ALONE, World

# --- the rows of an epoch

SAMPLE = 1024
"""Rows that the collapse alarm reads."""


class RowSource:
    """The rows of every epoch: all rows of a table in memory, unless a subclass reads others."""

    def __init__(
        self,
        rows: EncodedTable,
        row_numbers: Tensor | None = None,
        sample: EncodedTable | None = None,
    ) -> None:
        self.rows = rows
        """those of the current epoch: always the same tensors, which CUDA graphs refer to"""
        self.row_numbers = row_numbers  # (N,) their places in the user's table
        self.sample = rows.take(slice(0, SAMPLE)) if sample is None else sample
        """a few rows of the table, always the same"""

    def begin_epoch(self, epoch: int) -> None:
        """Load the rows of epoch 0, 1, …, in any order."""

    def places(self, index: Tensor) -> Tensor:
        """Row numbers in the user's table of some of the epoch's rows."""
        return index if self.row_numbers is None else self.row_numbers.cpu()[index]

    def close(self) -> None:
        """Stop reading: there is no further epoch."""


def as_source(rows: EncodedTable | RowSource) -> RowSource:
    """Rows as a source; a source as it is."""
    return RowSource(rows) if isinstance(rows, EncodedTable) else rows


@dataclass(frozen=True, slots=True)
class Streams:
    """Generators of one training. Sizes decide shapes, so they are drawn on the CPU."""

    order: torch.Generator
    sizes: torch.Generator
    numbers: torch.Generator

    @classmethod
    def of(cls, seed: int, device: torch.device) -> Streams:
        """Independent streams of one seed; masks and noise are drawn where they are used."""
        numbers = torch.Generator(device)
        numbers.manual_seed(generator_for(seed, "masks and noise").initial_seed())
        return cls(generator_for(seed, "row order"), generator_for(seed, "mask sizes"), numbers)


def draw_step(
    loss: Loss,
    rows: int,
    observed: Tensor | None,
    sizes: tuple[int, int] | tuple[Tensor, Tensor],
    targets: int,
    numbers: torch.Generator,
    bucket: tuple[int, int] | None = None,
    shares: Tensor | None = None,
) -> Draw:
    """Draw one step's masks and noise; for ``bucket`` see :func:`draw_masks`.

    ``shares (B,)`` are the rows' shares of the batch's mean, by default equal ones.
    """
    masks = draw_masks(rows, loss.shape.features, observed, sizes, targets, numbers, bucket)
    noise = loss.draw_noise(rows, masks.context.shape[1], numbers)
    if shares is None:
        shares = equal_shares(rows, numbers.device)
    return Draw(masks, noise, ElboRows.of_batch(loss.elbo_every, shares))


# --- Steps that are skipped: the loss or gradient is not finite, or far out of proportion. Adam
# squares gradients and remembers them for thousands of steps. One batch of absurd values with a
# gradient of 10¹¹ would leave every later step too small to learn anything, without a single NaN.

OUT_OF_PROPORTION = 1000.0
"""A gradient is refused if its norm is this many times the usual norm. Trainings on heavy-tailed
tables stayed below 25."""

LARGEST = 1e15
"""No norm above this is usual: its square is far from overflowing in Adam's second moment."""

FIRST = 1000.0
"""The usual norm before the first step; far above any first norm observed, 1 to 200."""


class StepGuard:
    """Tracks the usual norm of a gradient, on the device: CUDA graphs include it."""

    def __init__(self, device: torch.device) -> None:
        self.usual = torch.full((), FIRST, device=device)

    def refuses(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Whether to skip a step; every refused finite gradient doubles the usual norm.

        So a training whose gradients have grown for good continues after a few steps.
        """
        finite = (loss + norm).isfinite()
        large = norm > (OUT_OF_PROPORTION * self.usual).clamp_max(LARGEST)
        raised = torch.where(finite, 2.0 * self.usual, self.usual)
        bad = ~finite | large
        self.usual.copy_(torch.where(bad, raised, self.usual.lerp(norm, 0.1)).clamp_max(LARGEST))
        return bad


# --- The step. Nothing is read back from the device: what an epoch needs (row order, mask sizes,
# schedules) is decided on the host beforehand. On a CPU the rows of a batch are computed in slices,
# a core each.


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Inputs of one step, decided on the host or read from tables on the device."""

    index: Tensor  # (B,) rows of the batch
    share: Tensor | None  # (B,) 0 for rows that only fill the batch up; None: every row counts
    sizes: tuple[int, int] | tuple[Tensor, Tensor]
    bucket: tuple[int, int] | None
    rate: float | Tensor
    ramps: Tensor  # (3,)
    progress: float | Tensor


MAX_BAD_STEPS = 20
"""Consecutive skipped steps after which training stops."""


class Tally:
    """Running sums of an epoch, on the device."""

    def __init__(self, names: tuple[str, ...], device: torch.device) -> None:
        self.names = names
        self.sums = torch.zeros(len(names), device=device)
        self.steps = torch.zeros((), device=device)
        self.skipped = torch.zeros((), device=device)
        self.bad_in_a_row = torch.zeros((), device=device)

    def add(self, means: Tensor, bad: Tensor) -> None:
        self.sums += torch.where(bad, 0.0, means)
        self.steps += 1.0 - bad.float()
        self.skipped += bad
        self.bad_in_a_row.copy_(torch.where(bad, self.bad_in_a_row + 1, 0))

    def tensors(self) -> dict[str, Tensor]:
        """Its state."""
        return {
            "sums": self.sums,
            "steps": self.steps,
            "skipped": self.skipped,
            "bad_in_a_row": self.bad_in_a_row,
        }

    def read(self) -> dict[str, float]:
        """Means over the steps since the last reading, and the number of skipped ones."""
        means = (self.sums / self.steps.clamp_min(1)).tolist()
        record = dict(zip(self.names, means, strict=True)) if self.steps else {}
        record["skipped_steps"] = int(self.skipped)
        for counter in (self.sums, self.steps, self.skipped):
            counter.zero_()
        return record


class Stepper:
    """The state of a training between two steps, and the step itself."""

    def __init__(
        self,
        loss: Loss,
        rows: EncodedTable | RowSource,
        settings: Training,
        seed: int,
        world: World = ALONE,
    ) -> None:
        self.loss, self.settings, self.world = loss, settings, world
        self.source = as_source(rows)
        self.rows = self.source.rows
        self.device = self.rows.num.device
        self.parameters = list(loss.model.parameters())
        self.optimiser = Optimiser(loss.model, settings, self.device)
        self.average = AveragedModel(loss.model) if settings.schedule == "average" else None
        self.evaluated = copy(loss)
        """the loss with the weights that count: averages, where there are some"""
        if self.average is not None:
            self.evaluated.model = self.average.model  # type: ignore[assignment]
        self.streams = Streams.of(seed, self.device)
        self.tally = Tally(("loss", *loss.names), self.device)
        self.guard = StepGuard(self.device)
        assert isinstance(settings.batch_size, int)
        assert isinstance(settings.epochs, int)
        self.batch = min(settings.batch_size, len(self.rows))
        self.steps_per_epoch = -(-len(self.rows) // self.batch)
        self.total = settings.epochs * self.steps_per_epoch
        if settings.max_steps is not None:
            self.total = min(self.total, settings.max_steps)
        self.done = 0
        # of the latest step, always the same tensor: CUDA graphs write to it
        self.row_loss = torch.zeros(self.batch, device=self.device)  # (B,)
        self.threads = RowThreads() if self.device.type == "cpu" else None
        self.get_ready()

    def get_ready(self) -> None:
        """Further preparations of a subclass."""

    def begin_epoch(self) -> None:
        """Decide the order of the rows, the mask sizes and the schedule of the next epoch."""
        # for a checkpoint inside the epoch, which begins it again
        self.begun_from = self.streams.order.get_state(), self.streams.sizes.get_state()
        self.source.begin_epoch(self.done // self.steps_per_epoch)
        order = torch.randperm(len(self.rows), generator=self.streams.order)
        self.order = order.to(self.device)
        steps = range(self.steps_per_epoch)
        self.sizes = [
            draw_mask_sizes(self.loss.shape.features, self.loss.masks, self.streams.sizes)
            for _ in steps
        ]
        self.schedule = [self.rates_at(self.done + i) for i in steps]
        self.ramps = torch.tensor([ramps for _, ramps in self.schedule], device=self.device)
        self.place = 0

    def rates_at(self, step: int) -> tuple[float, tuple[float, float, float]]:
        """Learning rate and KL factors of a step."""
        o, per_epoch = self.settings, self.steps_per_epoch
        epochs = o.length(len(self.rows))
        warm_up = o.warm_up_share * epochs * per_epoch
        rate = o.learning_rate * (
            warm_up_cosine(step, warm_up, self.total)
            if o.schedule == "cosine"
            else warm_up_falling(step, warm_up)
        )
        sx, z, sy = (share * epochs * per_epoch for share in o.anneal_share)
        return rate, kl_factors(step, (sx, z, sy))

    def step(self) -> None:
        """Take the epoch's next step."""
        i, self.place, self.done = self.place, self.place + 1, self.done + 1
        self.descend(
            StepInputs(
                index=self.batch_index(i),
                share=None,
                sizes=self.sizes[i],
                bucket=None,
                rate=self.schedule[i][0],
                ramps=self.ramps[i],
                progress=(self.done - 1) / self.total,
            )
        )

    def seconds_per_step(self) -> float:
        """About how long a step takes on a CPU, from one row; nothing of the training changes.

        For rows of many features: of few, a row costs mostly what torch's calls cost.
        """
        assert self.threads is not None
        loss, row = self.loss, self.rows.take(torch.arange(1))
        sizes = draw_mask_sizes(loss.shape.features, loss.masks, generator_for(0, "forecast"))
        with one_thread():
            begun = time.perf_counter()
            draw = draw_step(
                loss, 1, row.observed, sizes, loss.masks.targets, generator_for(0, "forecast")
            )
            losses = loss.losses(row, draw, torch.ones(3))
            torch.autograd.grad(losses.descended.sum(), self.parameters, allow_unused=True)
            seconds = time.perf_counter() - begun
        return seconds * self.batch / self.threads.cores

    @property
    def epochs(self) -> int:
        """Epochs until all steps are taken."""
        return -(-self.total // self.steps_per_epoch)

    @property
    def epoch_is_over(self) -> bool:
        """Whether the epoch has no further step; the last one may end early."""
        return self.place == self.steps_per_epoch or self.done == self.total

    def batch_index(self, place: int) -> Tensor:
        """Rows of the epoch's batch number ``place``.  # (B,), fewer at the end"""
        return self.order[place * self.batch : (place + 1) * self.batch]

    def descend(self, inputs: StepInputs) -> None:
        """Algorithm 1's step; it changes no weight if the guard refuses its loss or gradient."""
        with one_thread() if self.threads is not None else nullcontext():
            self._descend(inputs)

    def _descend(self, inputs: StepInputs) -> None:
        loss = self.loss
        batch = self.rows.take(inputs.index)
        shares = batch_shares(inputs)
        mine, share = own_rows(shares, self.world)
        draw = draw_step(
            loss, len(batch), batch.observed, inputs.sizes, loss.masks.targets,
            self.streams.numbers, inputs.bucket, shares,
        ).rows(mine)  # fmt: skip
        w = batch.take(mine)

        def work(here: slice) -> tuple[Tensor, Tensor]:
            """The loss of some rows, as their part of the batch's mean, and what is recorded."""
            # autocast belongs to a thread
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.in_bfloat16):
                losses = loss.losses(w.take(here), draw.rows(here), inputs.ramps)
            recorded = torch.stack([losses.loss, *losses.recorded]).detach()  # (T, rows)
            return (losses.descended * share[here]).sum(), recorded

        self.optimiser.zero_grad()
        over_cores: MapWork | None = None
        if self.threads is None:
            total, recorded = work(slice(0, len(w)))
            total.backward()
        else:
            slices = slices_of(len(w), loss.shape.features)
            recorded = torch.cat(self.threads.backward(work, slices, self.parameters), dim=-1)
            if len(slices) > 1:  # a smaller step would mostly wait for the other threads
                over_cores = self.threads.map
        self.row_loss.zero_()[mine] = recorded[0]
        means = (recorded * share).sum(-1)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        self.world.sum_tensors([*gradients, means, self.row_loss])
        norm = torch.nn.utils.get_total_norm(gradients)
        bad = self.guard.refuses(means[0], norm)
        if self.settings.max_norm is not None:  # so that no batch with outliers rules the moments
            torch._foreach_mul_(gradients, (self.settings.max_norm / (norm + 1e-6)).clamp_max(1.0))
        self.optimiser.step(inputs.rate, bad, over_cores)
        if self.average is not None:
            self.average.add()
        loss.after_step(inputs.progress)
        self.tally.add(means, bad)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that later steps depend on, besides settings and rows."""
        order, sizes = self.begun_from
        averages = {} if self.average is None else self.average.tensors()
        return {
            "done": torch.tensor(self.done),
            "generator.order": order,
            "generator.sizes": sizes,
            "generator.numbers": self.streams.numbers.get_state(),
            "usual_norm": self.guard.usual,
            **{f"tally.{name}": value for name, value in self.tally.tensors().items()},
            **{f"model.{name}": w for name, w in self.loss.model.state_dict().items()},
            **{f"moment.{name}": moment for name, moment in self.optimiser.tensors().items()},
            **{f"average.{name}": value for name, value in averages.items()},
        }

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Continue from ``saved``: begin its epoch again and go to its step."""
        model, done = self.loss.model, int(saved["done"])
        if not 0 < done <= self.total:
            raise ValueError(f"step {done} is not one of {self.total}")
        model.load_state_dict(_below("model.", saved))
        self.optimiser.restore(_below("moment.", saved))
        if self.average is not None:
            kept = _below("average.", saved)
            for name, value in self.average.tensors().items():
                value.copy_(kept[name])
        for name, value in self.tally.tensors().items():
            value.copy_(saved[f"tally.{name}"])
        self.guard.usual.copy_(saved["usual_norm"])
        self.streams.order.set_state(saved["generator.order"])
        self.streams.sizes.set_state(saved["generator.sizes"])
        place = (done - 1) % self.steps_per_epoch + 1
        self.done = done - place
        self.begin_epoch()
        self.place, self.done = place, done
        self.streams.numbers.set_state(saved["generator.numbers"])

    def close(self) -> None:
        """End the threads and drop the last step's gradients."""
        self.source.close()
        self.optimiser.zero_grad()
        if self.threads is not None:
            self.threads.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def in_bfloat16(self) -> bool:
        """Whether networks compute in bfloat16; latents and losses are always float32."""
        if self.settings.precision == "auto":
            return self.device.type == "cuda"
        return self.settings.precision == "bfloat16"

    def has_failed(self) -> bool:
        """Whether too many consecutive steps were skipped. On a GPU it is checked now and then."""
        limit = MAX_BAD_STEPS
        if self.device.type == "cuda" and self.done % limit:
            return False
        return bool(self.tally.bad_in_a_row >= limit)


def own_rows(shares: Tensor, world: World) -> tuple[slice, Tensor]:
    """Rows of the batch that this process computes, and their shares of the batch's mean.

    If there are fewer rows than processes, it may be the last row with a share of 0: every process
    needs gradients.
    """
    mine = world.own_slice(len(shares))
    if mine.start == mine.stop:
        return slice(len(shares) - 1, len(shares)), torch.zeros_like(shares[-1:])
    return mine, shares[mine]


def batch_shares(inputs: StepInputs) -> Tensor:
    """Each row's share of the batch's mean.  # (B,)"""
    if inputs.share is None:
        return equal_shares(len(inputs.index), inputs.index.device)
    return inputs.share / inputs.share.sum()


def equal_shares(rows: int, device: torch.device) -> Tensor:
    """Every row's share of their mean.  # (rows,)"""
    return torch.full((rows,), 1.0 / rows, device=device)


def _below(prefix: str, saved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in saved.items() if name.startswith(prefix)}


def make_stepper(
    loss: Loss,
    rows: EncodedTable | RowSource,
    settings: Training,
    seed: int,
    world: World = ALONE,
    capture: bool = True,
) -> Stepper:
    """Steps recorded as CUDA graphs on a GPU, unless that is turned off."""
    source = as_source(rows)
    if source.rows.num.device.type == "cuda" and capture:
        from varjepa.training.cuda_graphs import CapturedStepper

        return CapturedStepper(loss, source, settings, seed, world)
    return Stepper(loss, source, settings, seed, world)


# --- Schedules.


def kl_factors(step: int, durations: tuple[float, float, float]) -> tuple[float, float, float]:
    """Factors min(t / T, 1) on the final weights of kl_sx, kl_z and kl_sy.

    ``durations`` are their T in optimiser steps; 0: full weight from the start. t = ``step`` + 1
    counts the current step, so that no weight is ever exactly 0: an objective of KL terms alone has
    a gradient from the start.
    """
    sx, z, sy = (1.0 if t <= 0 else min((step + 1) / t, 1.0) for t in durations)
    return sx, z, sy


FALL_FROM = 60
"""Steps from which the rate of the schedule "average" falls."""


def warm_up_falling(step: int, warm_up: float) -> float:
    """Factor on the learning rate: linear over the warm-up, later as 1 / √step, without an end."""
    rising = min(1.0, (step + 1) / (warm_up + 1))
    return min(rising, math.sqrt(FALL_FROM / (step + 1)))


def warm_up_cosine(step: int, warm_up: float, total: int) -> float:
    """Factor on the learning rate: linear to 1 over the warm-up, then a half cosine to 0."""
    if step < warm_up:
        return (step + 1) / (warm_up + 1)
    done = (step - warm_up) / max(1.0, total - warm_up)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
