"""What a trained Var-T-JEPA answers: embeddings, predicted cells, samples, scores.

    embed     q(s_w | s_x, z, w) of whole rows, every latent at its mean (Appendix D.5)
    predict   cells from other cells: x → s_x → z → r(s_y | s_x, z) → decoder
    sample    whole rows, or rows given some of their cells, cell by cell
    score     per row and cell: how uncertain, how surprising, how unlikely

Nothing here computes gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

import torch
from torch import Tensor

from varjepa.models.masking import FeatureMasks, masks_from_cells, masks_from_columns
from varjepa.models.var_t_jepa import CellDistributions, VarTJepa
from varjepa.nn.row_threads import map_blocks
from varjepa.randomness import generator_for
from varjepa.tables.codec import EncodedTable
from varjepa.variational.elbo import ElboTerms
from varjepa.variational.gaussian import DiagonalGaussian

# --- Embed.


def whole_row_masks(rows: EncodedTable, features: int) -> FeatureMasks:
    """Every observed cell is context; nothing is predicted."""
    everything = torch.arange(features, device=rows.num.device)
    return masks_from_columns(rows, everything, everything[:0], with_missing=True)


@torch.no_grad()
def embed_rows(model: VarTJepa, rows: EncodedTable) -> DiagonalGaussian:
    """q(s_w | s_x, z, w) at s_x = mean, z = mean.  # (B, D, d)"""
    masks = whole_row_masks(rows, model.shape.features)
    s_x = model.q_s_x(rows, masks).mean
    return model.q_s_w(s_x, model.q_z(s_x, masks).mean, rows, masks)


def embed_in_blocks(model: VarTJepa, rows: EncodedTable) -> DiagonalGaussian:
    """The same for any number of rows, with the memory of a block per core and of the result."""
    parts = list(map_blocks(lambda block: embed_rows(model, block), rows))
    return DiagonalGaussian(
        torch.cat([q.mean[:count] for q, count in parts]),
        torch.cat([q.log_var[:count] for q, count in parts]),
    )


# --- Predict: never through q(s_w | s_x, z, w), which sees the row and would copy its cells.


@torch.no_grad()
def predict_latents(
    model: VarTJepa,
    rows: EncodedTable,
    masks: FeatureMasks,
    z_from_prior: torch.Generator | None = None,
) -> DiagonalGaussian:
    """r(s_y | s_x, z) of one target view at the means of s_x and z, on a grid of all features.

    With a generator, z is a sample of its prior N(0, I) instead.

    Shape: → ``(B, D, d)``; N(0, I) where nothing was asked.
    """
    s_x = model.q_s_x(rows, masks).mean
    z = model.q_z(s_x, masks).mean
    if z_from_prior is not None:
        z = DiagonalGaussian.standard_like(z).rsample(z_from_prior)
    return model.r_s_y(s_x, z, masks)


@torch.no_grad()
def most_likely_cells(model: VarTJepa, latents: DiagonalGaussian) -> EncodedTable:
    """The decoder's mean and most likely level of every feature at the latents' means."""
    decoded = model.predicted_values(latents.mean)
    cat = _levels(model, decoded.log_probs, len(latents.mean))
    return EncodedTable(decoded.mean, cat, None)


@torch.no_grad()
def sample_cells(
    model: VarTJepa, latents: DiagonalGaussian, generator: torch.Generator
) -> EncodedTable:
    """A sample: latents from the predictor, then values from the decoder's distributions.

    Of binned numbers, the latents stay at their mean: the decoder's distributions there were
    learned as those of the values given the other cells, and noise would widen them.
    """
    is_binned = model.settings.numbers == "bins"
    decoded = model.predicted_values(latents.mean if is_binned else latents.rsample(generator))
    if is_binned:
        num = sample_numbers(decoded, generator)
    else:
        noise = torch.randn(decoded.mean.shape, generator=generator, device=generator.device)
        num = decoded.mean + (0.5 * decoded.log_var).exp() * noise
    noisy = [(features, _gumbel(log_probs, generator)) for features, log_probs in decoded.log_probs]
    return EncodedTable(num, _levels(model, noisy, len(num)), None)


def sample_numbers(decoded: CellDistributions, generator: torch.Generator) -> Tensor:
    """A bin of every number, and a place in it: the value itself where a bin is one.  # (B, F)"""
    bins, log_probs = decoded.bins, decoded.bin_log_probs
    assert bins is not None
    assert log_probs is not None
    chosen = _gumbel(log_probs, generator).argmax(-1).T  # (F, B)
    low, high = bins.low.gather(1, chosen).T, bins.high.gather(1, chosen).T
    place = torch.rand(low.shape, generator=generator, device=generator.device)
    return torch.lerp(low, high, place)


def _levels(model: VarTJepa, scores: list[tuple[Tensor, Tensor]], rows: int) -> Tensor:
    """The state with the highest score of every categorical feature.  # (B, F_cat)"""
    device = next(model.parameters()).device
    cat = torch.zeros(rows, len(model.shape.levels), dtype=torch.long, device=device)
    for features, score in scores:
        cat[:, features - model.shape.numeric] = score.argmax(-1)
    return cat


def _gumbel(log_probs: Tensor, generator: torch.Generator) -> Tensor:
    """The argmax of log p + Gumbel noise is a sample of p."""
    uniform = torch.rand(log_probs.shape, generator=generator, device=generator.device)
    return log_probs - (-uniform.clamp_min(1e-20).log()).log()


# --- Sample: column by column in random order, each given the columns before it.
#
# Masks are random in training, so the model has learned to predict each column from any others, and
# every order is as good as any other. The first column of a row without any known cell comes from
# the training marginals.

BATCH = 1024
"""Rows that are sampled together: memory does not grow with the number of rows."""


def complete_rows(
    model: VarTJepa,
    given: EncodedTable,
    marginal: EncodedTable,
    limits: tuple[Tensor, Tensor],
    generator: torch.Generator,
    z_from_prior: bool = False,
) -> EncodedTable:
    """Fill every unobserved cell of the given rows; observed cells stay as they are.

    ``marginal`` holds independent samples of every feature from the training marginals; ``limits``
    are the numeric features' minimum and maximum in training, to which samples are clamped.
    """
    parts = [
        _complete(model, given.take(here), marginal.take(here), limits, generator, z_from_prior)
        for here in (slice(start, start + BATCH) for start in range(0, len(given), BATCH))
    ]
    return EncodedTable(
        torch.cat([part.num for part in parts]), torch.cat([part.cat for part in parts]), None
    )


@torch.no_grad()
def _complete(
    model: VarTJepa,
    given: EncodedTable,
    marginal: EncodedTable,
    limits: tuple[Tensor, Tensor],
    generator: torch.Generator,
    z_from_prior: bool,
) -> EncodedTable:
    num, cat, known = given.num, given.cat, given.observed
    if known is None:
        return given
    order = torch.rand(known.shape, generator=generator, device=generator.device)
    order = order.masked_fill(known, torch.inf).argsort(-1)  # unknown cells first, in random order
    for step in range(int((~known).sum(-1).max())):
        column = order[:, step]
        active = ~known.gather(1, column.unsqueeze(1)).squeeze(1)  # (B,) rows not yet complete
        target = torch.zeros_like(known)
        target[active, column[active]] = True
        latents = predict_latents(
            model,
            EncodedTable(num, cat, known),
            masks_from_cells(known, target),
            generator if z_from_prior else None,
        )
        sampled = sample_cells(model, latents, generator)
        blank = target & (~known.any(-1, keepdim=True))  # nothing known: take the marginal
        new_num = torch.where(blank[:, : num.shape[1]], marginal.num, sampled.num).clamp(*limits)
        new_cat = torch.where(blank[:, num.shape[1] :], marginal.cat, sampled.cat)
        num = torch.where(target[:, : num.shape[1]], new_num, num)
        cat = torch.where(target[:, num.shape[1] :], new_cat, cat)
        known = known | target
    return EncodedTable(num, cat, None)


# --- Score.
#
# Every score but the posterior's predicts columns from other columns. Columns are split into
# halves, each predicted from the other, a few times over. The splits are fixed by a seed and are
# the same for all rows, so a score does not depend on the other rows of its batch.

LatentKind = Literal["posterior", "predictive", "surprise", "nll"]
"""posterior: std of q(s_w | row), the paper's score; predictive: std of r(s_y | other columns);
surprise: KL(q ‖ r), how far the row moves the posterior from the prediction; nll: −log p(value |
other columns). r is the imputer; without one, the objective's predictor."""

LATENT_KINDS: tuple[LatentKind, ...] = get_args(LatentKind)

CellQuestion = Literal["inconsistent", "unpredictable", "atypical"]
"""What may be uncertain about a cell, and so about a row, in plain words. inconsistent: the other
columns speak against its value; unpredictable: it is undecided given the other columns; atypical:
its value is unlikely given the other columns."""

Question = Literal["doubtful", CellQuestion, "ambiguous"]
"""doubtful: a row is inconsistent and its values are unlikely; ambiguous: it lies between clusters
of the embeddings."""

CELL_QUESTIONS: tuple[CellQuestion, ...] = get_args(CellQuestion)
QUESTIONS: tuple[Question, ...] = get_args(Question)

Aggregate = Literal["mean", "q75", "q90", "geometric", "balanced"]
"""Over a row's values: mean; 75th and 90th percentile; geometric mean (of standard deviations);
balanced (of nll): half the mean over numbers and half that over categories, or of the only kind.
A density and a probability have no scale in common, and many of one kind would outweigh a few of
the other."""

AGGREGATES: Mapping[LatentKind | Question, tuple[Aggregate, ...]] = {
    **dict.fromkeys(QUESTIONS, ("mean", "q75", "q90")),
    "posterior": ("mean", "q90", "geometric"),
    "predictive": ("mean", "q90", "geometric"),
    "surprise": ("mean", "q90"),
    "nll": ("mean", "q90", "balanced"),
}

Measure = tuple[LatentKind, Aggregate]
"""One number per row."""

MEASURES: tuple[Measure, ...] = tuple(
    (kind, aggregate) for kind in LATENT_KINDS for aggregate in AGGREGATES[kind]
)

SPLITS = 2
"""How many times the columns are cut into halves: more is less noisy and slower."""


def default_aggregate(kind: LatentKind | Question) -> Aggregate:
    """Geometric mean for predictive spread, 75th percentile for "inconsistent", mean for others.

    Columns differ in how predictable they are by orders of magnitude. The arithmetic mean of the
    predictive spread would depend on the least predictable columns only. Columns that determine
    each other would hide in the mean what the rest of a row says.
    """
    by_kind: dict[str, Aggregate] = {"predictive": "geometric", "inconsistent": "q75"}
    return by_kind.get(kind, "mean")


@dataclass(frozen=True, slots=True)
class FeatureScores:
    """Scores of every latent dimension (posterior, predictive) or every cell (surprise, nll)."""

    values: Tensor  # (B, D, d) or (B, D, 1)
    known: Tensor  # (B, D) bool: cells that have a score
    numeric: int
    """number of numeric features, which come first"""
    row: Tensor | None = None
    """(B,) the rows' score, where it is more than an aggregate of the cells'"""

    def per_column(self) -> Tensor:
        """Mean over latent dimensions; NaN where a cell has no score.  # (B, D)"""
        return self.values.mean(-1).masked_fill(~self.known, torch.nan)

    def per_row(self, aggregate: Aggregate) -> Tensor:
        """One number per row; 0 for a row without scores.  # (B,)"""
        if self.row is not None:
            return self.row
        cells = self.values.masked_fill(~self.known.unsqueeze(-1), torch.nan)
        spread = cells.flatten(1)
        if aggregate == "q75" or aggregate == "q90":
            return spread.nanquantile(int(aggregate[1:]) / 100, dim=-1).nan_to_num(0.0)
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
    rows: EncodedTable,
    kinds: Sequence[LatentKind],
    seed: int,
    posterior: DiagonalGaussian | None = None,
    splits: int = SPLITS,
) -> dict[LatentKind, FeatureScores]:
    """Score every feature of every row; several kinds share their predictions.

    ``posterior``: the result of :func:`embed_rows`, if it has been computed already.
    """
    features, numeric, device = model.shape.features, model.shape.numeric, rows.num.device
    everything = torch.ones(len(rows), features, dtype=torch.bool, device=device)
    if posterior is None and not {"predictive", "nll"}.issuperset(kinds):
        posterior = embed_rows(model, rows)

    def score(kind: LatentKind, r: DiagonalGaussian) -> Tensor:
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
            totals[kind] = totals[kind] + torch.where(asked, score(kind, r), 0.0)

    scores: dict[LatentKind, FeatureScores] = {
        # a prediction exists for missing cells too, a surprise does not
        kind: FeatureScores(
            total / splits, everything if kind == "predictive" else rows.known, numeric
        )
        for kind, total in totals.items()
    }
    if "posterior" in kinds and posterior is not None:
        scores["posterior"] = FeatureScores(posterior.std, everything, numeric)
    return scores


def embed_and_measure(
    model: VarTJepa, rows: EncodedTable, measure: Measure, seed: int
) -> tuple[Tensor, Tensor]:
    """Embeddings and one measure of any number of rows, with the memory of a block per core.

    Shape: → ``(N, D, d)``, ``(N,)``.
    """
    kind, aggregate = measure

    def both(block: EncodedTable) -> tuple[Tensor, Tensor]:
        posterior = embed_rows(model, block)
        scores = score_rows(model, block, [kind], seed, posterior)[kind]
        return posterior.mean, scores.per_row(aggregate)

    parts = list(map_blocks(both, rows))
    return (
        torch.cat([mean[:count] for (mean, _), count in parts]),
        torch.cat([score[:count] for (_, score), count in parts]),
    )


@torch.no_grad()
def objective_terms(model: VarTJepa, rows: EncodedTable, seed: int) -> ElboTerms:
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
    rows: EncodedTable, features: int, seed: int, splits: int = SPLITS
) -> Iterator[FeatureMasks]:
    """Masks that ask for one half of the columns given the other; each column ``splits`` times."""
    generator = generator_for(seed, "column splits")
    device = rows.num.device
    for _ in range(splits):
        order = torch.randperm(features, generator=generator)
        halves = order[: features // 2].sort().values, order[features // 2 :].sort().values
        for context, target in (halves, halves[::-1]) if features > 1 else (halves,):
            yield masks_from_columns(rows, context.to(device), target.to(device))
