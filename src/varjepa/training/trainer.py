"""Algorithm 1's loop for any objective: train, keep the best moment."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from varjepa.errors import InputError
from varjepa.models.rows import Rows, take_rows
from varjepa.training.alarm import CollapseReport, inspect_latents
from varjepa.training.capture import make_stepper
from varjepa.training.objectives import Objective
from varjepa.training.selection import Selection
from varjepa.training.settings import TrainingSettings
from varjepa.training.steps import Stepper

Record = dict[str, Any]
"""One epoch of the history; JSON-able."""


@dataclass(slots=True)
class TrainingResult:
    """What happened. The model itself holds the weights of ``best_epoch``."""

    best_epoch: int
    best_score: float
    history: list[Record]
    collapse: CollapseReport
    skipped_steps: int


def train(
    objective: Objective,
    rows: Rows,
    settings: TrainingSettings,
    selection: Selection,
    seed: int,
    on_epoch: Callable[[Record], None] = lambda record: None,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    row_numbers: Tensor | None = None,
) -> TrainingResult:
    """Train in place; the model ends with the weights of its best look at the validation rows.

    ``row_numbers`` are the rows' places in the user's table, for messages that name them.
    """
    model = objective.model
    best_epoch, best_score, best = 0, -math.inf, snapshot(model)
    history: list[Record] = []
    looks_without_gain = 0

    with make_stepper(objective, rows, settings, seed) as stepper:
        for epoch in range(1, settings.epochs + 1):
            start = time.perf_counter()
            model.train()
            stepper.begin_epoch()
            for _ in range(stepper.steps_per_epoch):
                stepper.step()
                if stepper.looks_bad():
                    raise InputError(_not_finite(stepper, row_numbers))
                on_step(stepper.done, stepper.total)

            record: Record = {"epoch": epoch, **stepper.tally.read()}
            if epoch % settings.check_every == 0 or epoch == settings.epochs:
                model.eval()
                score = selection.score(objective)
                record[selection.name] = score if math.isfinite(score) else None
                record["active_units"] = look_for_collapse(objective, rows).active_units
                if score > best_score:
                    best_epoch, best_score, best = epoch, score, snapshot(model)
                    looks_without_gain = 0
                else:
                    looks_without_gain += 1
            record["seconds"] = round(time.perf_counter() - start, 3)
            history.append(record)
            on_epoch(record)
            if looks_without_gain >= settings.patience:
                break

    if not best_epoch:
        raise InputError(
            "no look at the validation rows gave a finite score; lower learning_rate, or look for "
            "extreme values"
        )
    model.load_state_dict(best)
    model.eval()
    skipped = sum(record["skipped_steps"] for record in history)
    return TrainingResult(
        best_epoch, best_score, history, look_for_collapse(objective, rows), skipped
    )


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def look_for_collapse(objective: Objective, rows: Rows, sample: int = 1024) -> CollapseReport:
    """Run the alarm on the first rows."""
    few = take_rows(rows, slice(0, sample))
    cells = torch.cat([few.num, few.cat.to(few.num.dtype)], dim=1)
    if few.observed is not None:
        cells = cells.masked_fill(~few.observed, math.nan)
        varies = _nan_range(cells) > 0
    else:
        varies = cells.amax(0) > cells.amin(0)
    return inspect_latents(objective.embed(few).mean, varies, objective.active_variance)


def _nan_range(cells: Tensor) -> Tensor:
    """Max − min over rows, ignoring NaN; 0 where a column is all NaN."""
    missing = cells.isnan()
    highest = cells.masked_fill(missing, -math.inf).amax(0)
    lowest = cells.masked_fill(missing, math.inf).amin(0)
    return (highest - lowest).clamp_min(0)


def _not_finite(stepper: Stepper, row_numbers: Tensor | None) -> str:
    """Why training gave up, with the latest batch's rows whose loss is not finite."""
    index = stepper.batch_index(stepper.place - 1).cpu()
    places = index if row_numbers is None else row_numbers.cpu()[index]
    bad = places[~stepper.row_loss.cpu().isfinite()[: len(places)]]
    named = ", ".join(str(int(i)) for i in bad[:10]) or "none by itself: the gradient overflowed"
    more = f" and {len(bad) - 10} more" if len(bad) > 10 else ""
    return (
        f"training gave up after {int(stepper.tally.bad_in_a_row)} steps in a row without a finite "
        f"loss; rows {named}{more}"
    )
