"""Algorithm 1's loop for any loss: train, validate, return the best weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from varjepa.errors import InputError
from varjepa.settings import Training
from varjepa.tables.encoded import EncodedTable
from varjepa.training.checkpoints import (
    Checkpoint,
    Checkpoints,
    Record,
    TrainingState,
    checkpointed,
    snapshot,
)
from varjepa.training.losses import Loss
from varjepa.training.processes import ALONE, World
from varjepa.training.row_source import RowSource, as_source
from varjepa.training.step import Stepper, make_stepper
from varjepa.training.validation import CollapseReport, Selection, check_collapse


@dataclass(slots=True)
class TrainingResult:
    """The model itself holds the weights of ``best_epoch``."""

    best_epoch: int
    best_score: float
    history: list[Record]
    collapse: CollapseReport
    skipped_steps: int


def train(
    objective: Loss,
    rows: EncodedTable | RowSource,
    settings: Training,
    selection: Selection,
    seed: int,
    on_epoch: Callable[[Record], None] = lambda record: None,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    row_numbers: Tensor | None = None,
    checkpoints: Checkpoints | None = None,
    past: Checkpoint | None = None,
    world: World = ALONE,
    capture: bool = True,
) -> TrainingResult:
    """Train in place; the model ends with the weights of its best validation.

    ``row_numbers`` are the rows' places in the user's table, for messages that name them. A
    training that resumes from ``past`` ends as if it had not been interrupted, to the last bit. All
    processes of a ``world`` call this with the same arguments and end with the same weights.
    """
    model = objective.model
    source = as_source(rows, row_numbers)
    state = TrainingState(best=snapshot(model))
    with (
        make_stepper(objective, source, settings, seed, world, capture) as stepper,
        checkpointed(checkpoints, past, stepper, state, world) as checkpointer,
    ):
        for record in state.history:  # of the epochs before the checkpoint
            on_epoch(record)
        while not state.is_over(stepper.epochs, settings.patience):
            model.train()
            if stepper.done == len(state.history) * stepper.steps_per_epoch:
                state.clock = time.perf_counter()
                stepper.begin_epoch()
            while not stepper.epoch_is_over:
                stepper.step()
                if stepper.has_failed():
                    raise InputError(_not_finite(stepper))
                on_step(stepper.done, stepper.total)
                checkpointer.after_step()

            validation: Record = {}
            if state.epoch % settings.validate_every == 0 or stepper.done == stepper.total:
                model.eval()
                with checkpointer.validating():
                    score = world.broadcast_number(selection.score(objective))
                    active = check_collapse(objective, source.sample, world).active_units
                validation = {
                    selection.name: score if math.isfinite(score) else None,
                    "active_units": active,
                }
                state.compare(score, model, selection.noise(score))
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
        check_collapse(objective, source.sample, world),
        skipped,
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
