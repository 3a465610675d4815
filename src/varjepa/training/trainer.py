"""Algorithm 1: train a Var-T-JEPA, keep its best moment."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from varjepa.errors import InputError
from varjepa.masking import MaskSettings
from varjepa.models.var_t_jepa.embedding import embed_in_blocks, take_rows
from varjepa.models.var_t_jepa.model import Rows, VarTJepa
from varjepa.training.alarm import CollapseReport, inspect_latents
from varjepa.training.draws import Streams, draw_step
from varjepa.training.schedules import AnnealedWeights, warm_up_cosine
from varjepa.training.selection import Selection
from varjepa.variational.elbo import ElboTerms, ElboWeights, weighted_loss

Record = dict[str, Any]
"""One epoch of the history; JSON-able."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Appendix D.6.2's optimisation columns, and what the paper leaves open."""

    epochs: int = 40
    """most epochs to train"""
    batch: int = 512
    """rows per step; the last step of an epoch takes what is left"""
    learning_rate: float = 1e-3
    """AdamW's peak rate"""
    warm_up_epochs: float = 2
    """linear warm-up; then a cosine to 0"""
    weight_decay: float = 0.0
    """AdamW; never on vectors (biases, norms)"""
    weights: ElboWeights = ElboWeights(rec=0.1, gen=1.0, kl_sx=1e-4, kl_z=1e-6, kl_sy=1e-5)
    """final weights of the five terms"""
    anneal_epochs: tuple[float, float, float] = (5, 5, 5)
    """epochs over which the KL weights of s_x, z and s_y grow to their final value"""
    masks: MaskSettings = field(default_factory=MaskSettings)
    """context and target shares, K"""
    check_every: int = 2
    """C: epochs between two looks at the validation rows"""
    patience: int = 5
    """P: looks without improvement before training stops"""
    max_bad_steps: int = 20
    """steps in a row with a loss or gradient that is not finite before training gives up"""


@dataclass(slots=True)
class TrainingResult:
    """What happened. The model itself holds the weights of ``best_epoch``."""

    best_epoch: int
    best_score: float
    history: list[Record]
    collapse: CollapseReport
    skipped_steps: int


@dataclass(slots=True)
class _Tally:
    """Running sums of one epoch."""

    steps: int = 0
    skipped: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)  # tensors: reading one waits for a GPU

    def add(self, terms: ElboTerms, loss: Tensor) -> None:
        self.steps += 1
        for name, value in [
            ("loss", loss),
            *((f.name, getattr(terms, f.name)) for f in fields(terms)),
        ]:
            self.sums[name] = self.sums.get(name, 0.0) + value.detach().mean()

    def means(self) -> dict[str, float]:
        return {name: float(total) / max(1, self.steps) for name, total in self.sums.items()}


def train(
    model: VarTJepa,
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
    steps_per_epoch = math.ceil(len(rows) / settings.batch)
    total = settings.epochs * steps_per_epoch
    weights = AnnealedWeights(
        settings.weights, *(e * steps_per_epoch for e in settings.anneal_epochs)
    )
    optimiser = make_optimiser(model, settings)
    streams = Streams.of(seed, rows.num.device)
    best_epoch, best_score, best = 0, -math.inf, snapshot(model)
    history: list[Record] = []
    skipped = bad_in_a_row = looks_without_gain = step = 0

    for epoch in range(1, settings.epochs + 1):
        start, tally = time.perf_counter(), _Tally()
        model.train()
        for index in torch.randperm(len(rows), generator=streams.order).split(settings.batch):
            batch = take_rows(rows, index.to(rows.num.device))
            draw = draw_step(model, len(batch), batch.observed, settings.masks, streams)
            terms = model.terms(batch, draw.masks, model(batch, draw.masks, draw.noise))
            loss = weighted_loss(terms, weights.at(step))  # (B,)
            rate = settings.learning_rate * warm_up_cosine(
                step, settings.warm_up_epochs * steps_per_epoch, total
            )
            if descend(model, optimiser, loss.mean(), rate):
                tally.add(terms, loss)
                bad_in_a_row = 0
            else:
                tally.skipped += 1
                bad_in_a_row += 1
                if bad_in_a_row >= settings.max_bad_steps:
                    places = index if row_numbers is None else row_numbers.cpu()[index]
                    raise InputError(_not_finite(bad_in_a_row, places, loss))
            step += 1
            on_step(step, total)
        skipped += tally.skipped

        record: Record = {"epoch": epoch, **tally.means(), "skipped_steps": tally.skipped}
        if epoch % settings.check_every == 0 or epoch == settings.epochs:
            model.eval()
            score = selection.score(model)
            record[selection.name] = score if math.isfinite(score) else None
            record["active_units"] = look_for_collapse(model, rows).active_units
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

    model.load_state_dict(best)
    model.eval()
    return TrainingResult(best_epoch, best_score, history, look_for_collapse(model, rows), skipped)


def make_optimiser(model: VarTJepa, settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW without decay on vectors."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)


def descend(model: VarTJepa, optimiser: torch.optim.Optimizer, loss: Tensor, rate: float) -> bool:
    """One optimiser step; False, and nothing changed, where loss or gradient is not finite."""
    optimiser.zero_grad()
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    if not bool((loss + torch.nn.utils.get_total_norm(gradients)).isfinite()):
        return False
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.step()
    return True


def snapshot(model: VarTJepa) -> dict[str, Tensor]:
    """A copy of the weights."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def look_for_collapse(model: VarTJepa, rows: Rows, sample: int = 1024) -> CollapseReport:
    """Run the alarm on the first rows."""
    few = take_rows(rows, slice(0, sample))
    cells = torch.cat([few.num, few.cat.to(few.num.dtype)], dim=1)
    if few.observed is not None:
        cells = cells.masked_fill(~few.observed, math.nan)
        varies = _nan_range(cells) > 0
    else:
        varies = cells.amax(0) > cells.amin(0)
    return inspect_latents(embed_in_blocks(model, few).mean, varies)


def _nan_range(cells: Tensor) -> Tensor:
    """Max − min over rows, ignoring NaN; 0 where a column is all NaN."""
    missing = cells.isnan()
    highest = cells.masked_fill(missing, -math.inf).amax(0)
    lowest = cells.masked_fill(missing, math.inf).amin(0)
    return (highest - lowest).clamp_min(0)


def _not_finite(times: int, places: Tensor, loss: Tensor) -> str:
    bad = places[~loss.detach().cpu().isfinite()]
    named = ", ".join(str(int(i)) for i in bad[:10]) or "none by itself: the gradient overflowed"
    more = f" and {len(bad) - 10} more" if len(bad) > 10 else ""
    return (
        f"training gave up after {times} steps in a row without a finite loss; rows {named}{more}"
    )
