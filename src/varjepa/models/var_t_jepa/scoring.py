"""Scores per row and feature: how uncertain, how surprising, how unlikely.

Every score but the posterior's asks the predictor about columns it does not see. Columns are split
into halves, each predicted from the other, a few times over. The splits are fixed by a seed and are
the same for all rows, so a score does not depend on the other rows of its batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

import torch
from torch import Tensor

from varjepa.masking import FeatureMasks
from varjepa.models.rows import Rows, map_blocks
from varjepa.models.var_t_jepa.embedding import embed_rows
from varjepa.models.var_t_jepa.model import VarTJepa
from varjepa.models.var_t_jepa.prediction import predict_latents
from varjepa.randomness import generator_for
from varjepa.variational.elbo import ElboTerms
from varjepa.variational.gaussian import DiagonalGaussian

Kind = Literal["posterior", "predictive", "surprise", "nll"]
"""posterior: std of q(s_w | row), the paper's score; predictive: std of r(s_y | other columns);
surprise: KL(q ‖ r), how far the row moves the posterior from the prediction; nll: −log p(value |
other columns). r is the imputer; without one, the objective's predictor."""

KINDS: tuple[Kind, ...] = get_args(Kind)

Aggregate = Literal["mean", "q90", "geometric", "balanced"]
"""over a row's values: their mean; their 90th percentile; of standard deviations, their geometric
mean; of nll, half the mean over its numbers and half the one over its categories (of a row that has
values of one kind alone, their mean). A density and a probability have no scale in common, and many
of one kind drown a few of the other."""

AGGREGATES: Mapping[Kind, tuple[Aggregate, ...]] = {
    "posterior": ("mean", "q90", "geometric"),
    "predictive": ("mean", "q90", "geometric"),
    "surprise": ("mean", "q90"),
    "nll": ("mean", "q90", "balanced"),
}

Measure = tuple[Kind, Aggregate]
"""One number for a row."""

MEASURES: tuple[Measure, ...] = tuple(
    (kind, aggregate) for kind in KINDS for aggregate in AGGREGATES[kind]
)

SPLITS = 2
"""How many times the columns are cut into halves; more of them is steadier, and takes longer."""


def usual_aggregate(kind: Kind) -> Aggregate:
    """What a user gets who does not ask for one.

    Columns differ in how predictable they are by orders of magnitude. The arithmetic mean of what a
    prediction leaves open would listen to the least predictable ones alone.
    """
    return "geometric" if kind == "predictive" else "mean"


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of every latent dimension (posterior, predictive) or every cell (surprise, nll)."""

    values: Tensor  # (B, D, d) or (B, D, 1)
    known: Tensor  # (B, D) bool: cells that have a score
    numeric: int
    """number of numeric features, which come first"""

    def per_column(self) -> Tensor:
        """Mean over latent dimensions; NaN where a cell has no score.  # (B, D)"""
        return self.values.mean(-1).masked_fill(~self.known, torch.nan)

    def per_row(self, aggregate: Aggregate) -> Tensor:
        """One number for all of a row's values; 0 where it has none.  # (B,)"""
        cells = self.values.masked_fill(~self.known.unsqueeze(-1), torch.nan)
        spread = cells.flatten(1)
        if aggregate == "q90":
            return spread.nanquantile(0.9, dim=-1).nan_to_num(0.0)
        if aggregate == "geometric":
            return spread.log().nanmean(-1).exp().nan_to_num(0.0)
        if aggregate == "balanced":
            kinds = cells[:, : self.numeric], cells[:, self.numeric :]
            each = torch.stack([kind.flatten(1).nanmean(-1) for kind in kinds], dim=-1)
            return each.nanmean(-1).nan_to_num(0.0)
        return spread.nanmean(-1).nan_to_num(0.0)


@torch.no_grad()
def score_rows(
    model: VarTJepa,
    rows: Rows,
    kinds: Sequence[Kind],
    seed: int,
    posterior: DiagonalGaussian | None = None,
    splits: int = SPLITS,
) -> dict[Kind, Scores]:
    """Score every feature of every row; several kinds share their predictions.

    ``posterior``: what :func:`embed_rows` says of these rows, where somebody has asked it already.
    """
    features, numeric, device = model.shape.features, model.shape.numeric, rows.num.device
    everything = torch.ones(len(rows), features, dtype=torch.bool, device=device)
    if posterior is None and not {"predictive", "nll"}.issuperset(kinds):
        posterior = embed_rows(model, rows)

    def judge(kind: Kind, r: DiagonalGaussian) -> Tensor:
        if kind == "predictive":
            return r.std  # (B, D, d)
        if kind == "nll":
            return model.predicted_nll(r, rows).unsqueeze(-1)  # (B, D, 1)
        assert posterior is not None
        return posterior.kl_to(r).unsqueeze(-1)  # (B, D, 1)

    predicted = [kind for kind in kinds if kind != "posterior"]
    totals = dict.fromkeys(predicted, torch.zeros((), device=device))
    for masks in column_splits(rows, features, seed, splits) if predicted else ():
        r = predict_latents(model, rows, masks)
        asked = torch.zeros_like(everything).scatter(1, masks.target[:, 0], True).unsqueeze(-1)
        for kind in predicted:
            totals[kind] = totals[kind] + torch.where(asked, judge(kind, r), 0.0)

    observed = everything if rows.observed is None else rows.observed
    found: dict[Kind, Scores] = {
        # a prediction needs no value to be there; a surprise does
        kind: Scores(total / splits, everything if kind == "predictive" else observed, numeric)
        for kind, total in totals.items()
    }
    if "posterior" in kinds and posterior is not None:
        found["posterior"] = Scores(posterior.std, everything, numeric)
    return found


def measure_rows(model: VarTJepa, rows: Rows, measure: Measure, seed: int) -> Tensor:
    """One measure of any number of rows, with the memory of a block per core.  # (N,)"""
    kind, aggregate = measure
    parts = map_blocks(
        lambda block: score_rows(model, block, [kind], seed)[kind].per_row(aggregate), rows
    )
    return torch.cat([part[:count] for part, count in parts])


@torch.no_grad()
def objective_terms(model: VarTJepa, rows: Rows, seed: int) -> ElboTerms:
    """The five terms per row, latents at their means, averaged over the column splits."""
    parts = [
        model.terms(rows, masks, model(rows, masks, None))
        for masks in column_splits(rows, model.shape.features, seed)
    ]
    return ElboTerms(
        *(
            torch.stack([getattr(part, field.name) for part in parts]).mean(0)
            for field in fields(ElboTerms)
        )
    )


def column_splits(
    rows: Rows, features: int, seed: int, splits: int = SPLITS
) -> Iterator[FeatureMasks]:
    """Masks that ask for one half of the columns given the other; each column ``splits`` times."""
    generator = generator_for(seed, "column splits")
    device = rows.num.device
    for _ in range(splits):
        order = torch.randperm(features, generator=generator)
        halves = order[: features // 2].sort().values, order[features // 2 :].sort().values
        for context, target in (halves, halves[::-1]) if features > 1 else (halves,):
            context = context.to(device).expand(len(rows), -1)
            target = target.to(device).expand(len(rows), 1, -1)
            observed = rows.observed
            yield FeatureMasks(
                context=context,
                context_valid=None if observed is None else observed.gather(1, context),
                target=target,
                target_valid=None
                if observed is None
                else observed.gather(1, target[:, 0])[:, None],
            )
