"""Algorithm 1's loop for any loss: train, validate, return the best weights.

A validation gives a score that picks the best epoch, higher is better, and runs the collapse alarm.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from varjepa.errors import InputError
from varjepa.models.inference import Measure, embed_and_measure
from varjepa.models.masking import draw_cells, draw_mask_sizes
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.nn.row_threads import RowThreads
from varjepa.randomness import generator_for
from varjepa.settings import Training
from varjepa.tables.codec import EncodedTable
from varjepa.training.checkpoints import Checkpoint, Checkpoints, checkpointed, seconds_before
from varjepa.training.losses import Loss
from varjepa.training.processes import ALONE, World
from varjepa.training.progress import in_words
from varjepa.training.step import (
    SAMPLE,
    RowSource,
    Stepper,
    Streams,
    as_source,
    draw_step,
    make_stepper,
)
from varjepa.variational.diagnostics import ACTIVE_VARIANCE

# --- State of a training besides that of its stepper: finished epochs and the best validation.

Record = dict[str, Any]
"""One epoch of the history; JSON-able."""


@dataclass(slots=True)
class TrainingState:
    """Finished epochs, and the best validation among them."""

    best: dict[str, Tensor]
    """weights of the best validation"""
    best_epoch: int = 0
    """0: none yet"""
    best_score: float = -math.inf
    """the highest so far: that of ``best_epoch``, or one that ``best_epoch`` equals within noise"""
    validations_without_gain: int = 0
    """since ``best_epoch``"""
    history: list[Record] = field(default_factory=list)
    """a record per finished epoch"""
    clock: float = 0.0
    """when the current epoch began; time between checkpoint and resume does not count"""

    @property
    def epoch(self) -> int:
        """The current epoch: 1, 2, …"""
        return len(self.history) + 1

    def is_over(self, epochs: int, patience: int) -> bool:
        """Whether training has ended: all epochs done, or patience exhausted."""
        return self.epoch > epochs or self.validations_without_gain >= patience

    def compare(self, score: float, model: nn.Module, noise: float = 0.0) -> None:
        """Store the weights unless an earlier validation was better by ``noise`` or more."""
        if score > self.best_score - noise:
            self.best_epoch, self.best = self.epoch, snapshot(model)
            self.best_score = max(score, self.best_score)
            self.validations_without_gain = 0
        else:
            self.validations_without_gain += 1

    def facts(self) -> dict[str, Any]:
        """All but the weights, for JSON."""
        return {
            "best_epoch": self.best_epoch,
            "best_score": self.best_score if self.best_epoch else None,
            "validations_without_gain": self.validations_without_gain,
            "history": self.history,
            "seconds": time.perf_counter() - self.clock,
        }

    def restore(self, facts: Mapping[str, Any], best: Mapping[str, Tensor]) -> None:
        """Set the state from ``facts`` and the best weights."""
        for name, weight in self.best.items():
            if best[name].shape != weight.shape:
                raise ValueError(f"{name} has another shape")
            weight.copy_(best[name])
        self.best_epoch = facts["best_epoch"]
        self.best_score = facts["best_score"] if self.best_epoch else -math.inf
        self.validations_without_gain = facts["validations_without_gain"]
        self.history = list(facts["history"])
        self.clock = time.perf_counter() - facts["seconds"]


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


class NoCheckpointer:
    """For a training without checkpoints."""

    def save(self, finished: bool = False) -> None:
        pass

    def after_step(self) -> None:
        pass

    def validating(self) -> AbstractContextManager[None]:
        return nullcontext()


# --- The loop.


@dataclass(slots=True)
class TrainingResult:
    """The model itself holds the weights of ``best_epoch``."""

    best_epoch: int
    best_score: float
    history: list[Record]
    collapse: CollapseReport
    skipped_steps: int


def train(
    loss: Loss,
    rows: EncodedTable | RowSource,
    settings: Training,
    selection: Selection,
    seed: int,
    on_epoch: Callable[[Record], None] = lambda record: None,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    checkpoints: Checkpoints | None = None,
    past: Checkpoint | None = None,
    world: World = ALONE,
    capture: bool = True,
) -> TrainingResult:
    """Train in place; the model ends with the weights of its best validation.

    A training that resumes from ``past`` ends as if it had not been interrupted, to the last bit.
    All processes of a ``world`` call this with the same arguments and end with the same weights.
    """
    model, every = loss.model, settings.validate_every
    assert isinstance(every, int)
    source = as_source(rows)
    state = TrainingState(best=snapshot(model))
    with (
        make_stepper(loss, source, settings, seed, world, capture) as stepper,
        nullcontext(NoCheckpointer())
        if checkpoints is None
        else checkpointed(checkpoints, past, stepper, state, world) as checkpointer,
    ):
        for record in state.history:  # of the epochs before the checkpoint
            on_epoch(record)
        deadline = Deadline(settings.time_limit, past, world)
        forecast = Forecast(stepper.done, is_wanted=world.is_main and settings.time_limit is None)
        if stepper.threads is not None and loss.shape.features >= WIDE:
            forecast.expect(stepper.seconds_per_step() * (stepper.total - stepper.done))
        while not (deadline.is_over or state.is_over(stepper.epochs, settings.patience)):
            model.train()
            if stepper.done == len(state.history) * stepper.steps_per_epoch:
                state.clock = time.perf_counter()
                stepper.begin_epoch()
            while not (stepper.epoch_is_over or deadline.is_over):
                stepper.step()
                if stepper.has_failed():
                    raise InputError(_not_finite(stepper))
                on_step(*deadline.progress(stepper.done, stepper.total))
                forecast.check(stepper.done, stepper.total)
                checkpointer.after_step()
                deadline.check()

            validation: Record = {}
            is_due = state.epoch % every == 0 or stepper.done == stepper.total
            if is_due or deadline.is_over:
                evaluated = stepper.evaluated
                evaluated.model.eval()
                with checkpointer.validating():
                    score = world.broadcast_number(selection.score(evaluated))
                    active = check_collapse(evaluated, source.sample, world).active_units
                validation = {
                    selection.name: score if math.isfinite(score) else None,
                    "active_units": active,
                }
                state.compare(score, evaluated.model, selection.noise(score))
            record = {"epoch": state.epoch, **stepper.tally.read(), **validation}
            record["seconds"] = round(time.perf_counter() - state.clock, 3)
            state.history.append(record)
            on_epoch(record)
        checkpointer.save(finished=True)

    if not state.best_epoch:
        raise InputError(
            "no validation gave a finite score; lower learning_rate, or look for extreme values"
        )
    model.load_state_dict(state.best)
    model.eval()
    skipped = sum(record["skipped_steps"] for record in state.history)
    return TrainingResult(
        state.best_epoch,
        state.best_score,
        state.history,
        check_collapse(loss, source.sample, world),
        skipped,
    )


class Deadline:
    """Whether a training's time is over: all processes hear it from the main one, after a step.

    A training that continues has the time that was left; one that was finished has none.
    """

    def __init__(self, limit: float | None, past: Checkpoint | None, world: World) -> None:
        self.limit, self.world = limit, world
        self.is_over = past is not None and bool(past.facts["finished"])
        self.passed = 0.0 if past is None else seconds_before(past.facts)
        self.begun = time.perf_counter() - self.passed

    def progress(self, done: int, total: int) -> tuple[int, int]:
        """Work done and all work: steps or, where the limit will come first, time."""
        if self.limit is None:
            return done, total
        share = max(done / total, self.passed / self.limit)
        return round(1e6 * min(share, 1.0)), 10**6

    def check(self) -> None:
        """Read the clock, where there is a limit."""
        if self.limit is not None:
            self.passed = time.perf_counter() - self.begun
            is_late = self.passed > self.limit
            self.is_over = bool(self.world.broadcast_number(float(is_late)))


LONG_TRAINING = 1200.0
"""Seconds from which a training without a time limit is called long."""

FORECAST_AFTER = 30.0
"""Seconds of steps that a forecast is made from: on a GPU the first ones compile and record."""


WIDE = 256
"""Features from which one row is timed before the first step, which may take minutes."""


class Forecast:
    """Warns once, early on, that a training may take long, and says how to shorten it."""

    def __init__(self, done: int, is_wanted: bool) -> None:
        self.first, self.is_wanted = done, is_wanted
        self.begun = time.perf_counter()

    def check(self, done: int, total: int) -> None:
        """Read the clock, until there has been enough time to tell."""
        seconds = time.perf_counter() - self.begun
        if self.is_wanted and seconds >= FORECAST_AFTER:
            self.expect(seconds / (done - self.first) * (total - done))
            self.is_wanted = False

    def expect(self, seconds: float) -> None:
        """Warn if so many seconds are left and nothing was said before."""
        if self.is_wanted and seconds > LONG_TRAINING:
            self.is_wanted = False
            warnings.warn(
                f"training may take another {in_words(seconds)}: to end it earlier with its best "
                f"checkpoint, set time_limit, in seconds; of a wide table, leave columns out: the "
                f"time grows faster than their number",
                stacklevel=3,
            )


def _not_finite(stepper: Stepper) -> str:
    """Why training gave up, with the latest batch's rows whose loss is not finite."""
    places = stepper.source.places(stepper.batch_index(stepper.place - 1).cpu())
    bad = places[~stepper.row_loss.cpu().isfinite()[: len(places)]]
    named = ", ".join(str(int(i)) for i in bad[:10]) or "none by itself: the gradient overflowed"
    more = f" and {len(bad) - 10} more" if len(bad) > 10 else ""
    return (
        f"training gave up after {int(stepper.tally.bad_in_a_row)} steps in a row without a finite "
        f"loss; rows {named}{more}"
    )


# --- Validation. The online probe is a linear classifier on frozen embeddings, fitted to
# convergence. Its loss is convex, so a few dozen L-BFGS iterations on all rows reach what
# thousands of small AdamW steps would, at a fraction of their time, and nothing about it is
# random.


@dataclass(frozen=True, slots=True)
class LinearProbeSettings:
    """How the online probe is fitted."""

    rows: int = 8192
    """maximum number of training rows: a validation must cost little compared with an epoch"""
    iterations: int = 40
    """maximum number of L-BFGS iterations"""
    weight_decay: float = 1e-4
    """on the squared weights of standardised features, per row"""


@dataclass(frozen=True, slots=True)
class LinearProbe:
    """Logits that are linear in the features."""

    centre: Tensor  # (F,)
    scale: Tensor  # (F,)
    weight: Tensor  # (F, classes)
    bias: Tensor  # (classes,)

    def __call__(self, features: Tensor) -> Tensor:
        """Shape: ``(N, F)`` → ``(N, classes)``."""
        return torch.addmm(self.bias, (features - self.centre) / self.scale, self.weight)


def fit_linear_probe(
    features: Tensor, labels: Tensor, classes: int, settings: LinearProbeSettings
) -> LinearProbe:
    """Multinomial logistic regression.

    Shape: ``features (N, F)``, ``labels (N,)`` class numbers.
    """
    centre = features.mean(0)
    scale = features.std(0, unbiased=False)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))  # a constant feature says nothing
    standard = (features - centre) / scale
    weight = standard.new_zeros(standard.shape[1], classes, requires_grad=True)
    bias = standard.new_zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weight, bias], max_iter=settings.iterations, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        logits = torch.addmm(bias, standard, weight)
        value = nn.functional.cross_entropy(logits, labels)
        value = value + settings.weight_decay * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    return LinearProbe(centre, scale, weight.detach(), bias.detach())


# --- Scores of a validation. With labels, the paper's: accuracy of an online linear probe, for
# Var-T-JEPA after discarding the most uncertain 20 % of the validation rows. Without labels, the
# held-out objective with masks and noise fixed once, so that two epochs are compared on the same
# masks.


class Selection(Protocol):
    """A way to score a model; it has a name for the history."""

    @property
    def name(self) -> str: ...

    def score(self, loss: Loss) -> float: ...

    def noise(self, score: float) -> float:
        """How far below the best score a later epoch may be and still replace it."""
        return 0.0


@dataclass(frozen=True, slots=True)
class HeldOutLoss(Selection):
    """Minus the training objective on validation rows, KL terms at their final weight.

    For a T-JEPA this is a weak criterion: its targets move with the training, so two epochs
    are scored on different targets, and the closer those are to each other, the better the score.
    """

    rows: EncodedTable
    seed: int
    batch: int = 1024
    name: str = "held-out objective"
    world: World = ALONE

    @torch.no_grad()
    def score(self, loss: Loss) -> float:
        streams = Streams.of(self.seed, self.rows.num.device)
        total = 0.0
        for part in self.rows.split(self.batch):
            sizes = draw_mask_sizes(loss.shape.features, loss.masks, streams.sizes)
            draw = draw_step(
                loss, len(part), part.observed, sizes, loss.masks.targets, streams.numbers
            )
            final = torch.ones(3, device=part.num.device)
            mine = self.world.own_slice(len(part))
            if mine.start < mine.stop:
                draw, w = draw.rows(mine), part.take(mine)
                total += float(loss.losses(w, draw, final).loss.sum())
        return -self.world.sum_number(total) / len(self.rows)


ASKED_SHARE = 0.25
"""Share of a validation row's known cells that :class:`HeldOutCells` asks for at a time."""

MAX_ASKED = 1 << 13
"""Cells that it asks for, about: a validation must cost little compared with the steps between."""


MAX_REPEATS = 8
"""How often the same rows are asked at most."""

HELD_OUT_CELLS = "held-out cells"
"""Name of the score that :class:`HeldOutCells` gives."""


@dataclass(frozen=True, slots=True)
class HeldOutCells(Selection):
    """Mean log-likelihood of known cells of validation rows given the others.

    The cells are drawn once, so that two epochs are compared on the same; few rows are asked
    several times.
    """

    rows: EncodedTable
    seed: int
    batch: int = 256
    name: str = HELD_OUT_CELLS
    world: World = ALONE

    @torch.no_grad()
    def score(self, loss: Loss) -> float:
        model = loss.model
        assert isinstance(model, VarTJepa)
        generator = torch.Generator(self.rows.num.device)
        generator.manual_seed(generator_for(self.seed, "held-out cells").initial_seed())
        features = model.shape.features
        most = max(1, int(MAX_ASKED / (ASKED_SHARE * features)))
        rows = self.rows
        if len(rows) > most:  # some of any place: a user's own validation rows may be sorted
            order = torch.randperm(len(rows), generator=generator_for(self.seed, "cells' rows"))
            rows = rows.take(order[:most].to(rows.num.device))
        repeats = min(MAX_REPEATS, max(1, most // len(rows)))
        parts = []
        for part in rows.split(self.batch):
            for _ in range(repeats):
                asked = draw_cells(part, features, ASKED_SHARE, generator)
                mine = self.world.own_slice(len(part))
                if asked[mine].any():
                    parts.append((part.take(mine), asked[mine]))

        @torch.no_grad()  # of the thread that computes the part
        def nll(part: tuple[EncodedTable, Tensor]) -> tuple[float, float]:
            w, asked = part
            cells = torch.where(asked, model.nll_of_cells(w, asked), 0.0)
            return float(cells.sum()), float(asked.sum())

        with RowThreads(None if rows.num.device.type == "cpu" else 1) as threads:
            sums = list(threads.map(nll, parts))
        total, count = sum(one for one, _ in sums), sum(one for _, one in sums)
        return -self.world.sum_number(total) / max(1.0, self.world.sum_number(count))


@dataclass(frozen=True, slots=True)
class FilteredProbe(Selection):
    """Accuracy of a linear probe on the validation rows whose latents are most certain.

    With ``discard`` 0 on all of them, which needs no uncertainty.
    """

    train: EncodedTable
    train_labels: Tensor  # (N,) class numbers
    validation: EncodedTable
    validation_labels: Tensor  # (M,)
    classes: int
    probe: LinearProbeSettings
    seed: int
    discard: float = 0.2
    """share of the most uncertain validation rows that does not count"""
    standard_errors: float = 0.0
    """of the accuracy, by which a later epoch may be below the best; 0: the paper's rule"""
    world: World = ALONE
    ranked_by: Measure = ("posterior", "mean")
    """how uncertain a validation row is"""

    @property
    def name(self) -> str:
        return "filtered accuracy" if self.discard else "accuracy"

    def score(self, loss: Loss) -> float:
        some = self._rows_to_learn_from()
        (features,) = self.world.map_rows(
            lambda rows: (loss.embed(rows).flatten(1),), self.train.take(some)
        )
        held_out, *uncertainty = self.world.map_rows(
            lambda rows: self._features_and_uncertainty(loss, rows), self.validation
        )
        if not (features.isfinite().all() and held_out.isfinite().all()):
            return math.nan
        probe = fit_linear_probe(features, self.train_labels[some], self.classes, self.probe)
        right = (probe(held_out).argmax(-1) == self.validation_labels).float()
        if uncertainty:
            right = right[uncertainty[0].argsort(stable=True)[: self.rows_that_count]]
        return float(right.mean())

    def _rows_to_learn_from(self) -> Tensor:
        """The same at every validation.  # (n,) row numbers"""
        generator = generator_for(self.seed, "probe")
        order = torch.randperm(len(self.train_labels), generator=generator)
        return order[: self.probe.rows].to(self.train_labels.device)

    def _features_and_uncertainty(self, loss: Loss, rows: EncodedTable) -> tuple[Tensor, ...]:
        """Tokens side by side (n, D · d) and, to discard rows by it, their measure (n,)."""
        if not self.discard:
            return (loss.embed(rows).flatten(1),)
        model = loss.model
        if not isinstance(model, VarTJepa):
            raise ValueError("a model without uncertainty cannot be filtered by it")
        tokens, uncertainty = embed_and_measure(model, rows, self.ranked_by, self.seed)
        return tokens.flatten(1), uncertainty

    @property
    def rows_that_count(self) -> int:
        """Validation rows that count."""
        return max(1, round(len(self.validation_labels) * (1 - self.discard)))

    def noise(self, score: float) -> float:
        return self.standard_errors * math.sqrt(score * (1 - score) / self.rows_that_count)


# --- The collapse alarm. A latent dimension is active if it varies across a sample of rows. A
# healthy model has active dimensions in the token of every feature with more than one value; a
# collapsed one has almost none.


MIN_ACTIVE_SHARE = 0.02
"""Fewer active units than this share of all (features that vary × d) is a collapse."""


@dataclass(frozen=True, slots=True)
class CollapseReport:
    """Active dimensions of a training's embeddings."""

    active_units: float
    """mean number of active dimensions per token of a varying feature"""
    active_share: float
    """the same as a share of d"""
    silent_features: tuple[int, ...]
    """varying features without a single active dimension"""
    collapsed: bool
    """whether almost nothing is active, or most varying features are silent"""


def inspect_latents(
    means: Tensor, varies: Tensor, active_variance: float = ACTIVE_VARIANCE
) -> CollapseReport:
    """A dimension is active if its variance across rows exceeds ``active_variance``.

    Shape: ``means (N, D, d)``, a vector per feature; ``varies (D,)`` bool, whether the feature has
    more than one value among these rows (a constant column varies nowhere, and rightly so).
    """
    variance = means.var(0, correction=min(1, len(means) - 1))  # (D, d); one row varies nowhere
    active = (variance > active_variance) & varies.unsqueeze(-1)  # (D, d)
    per_feature = active.sum(-1)  # (D,)
    candidates = int(varies.sum())
    share = float(active.sum()) / max(1, candidates * means.shape[-1])
    silent = tuple(int(j) for j in (varies & (per_feature == 0)).nonzero().flatten())
    return CollapseReport(
        active_units=share * means.shape[-1],
        active_share=share,
        silent_features=silent,
        collapsed=candidates > 0 and (share < MIN_ACTIVE_SHARE or 2 * len(silent) > candidates),
    )


def check_collapse(loss: Loss, rows: EncodedTable, world: World = ALONE) -> CollapseReport:
    """Inspect the embeddings of the first rows."""
    few = rows.take(slice(0, SAMPLE))
    cells = torch.cat([few.num, few.cat.to(few.num.dtype)], dim=1)
    missing = ~few.known
    highest = cells.masked_fill(missing, -math.inf).amax(0)
    lowest = cells.masked_fill(missing, math.inf).amin(0)
    (means,) = world.map_rows(lambda some: (loss.embed(some),), few)
    return inspect_latents(means, highest > lowest, loss.active_variance)
