"""Single cells given other cells of their row: their distributions, and intervals of numbers.

A number has a cumulative distribution F: steps at atoms, linear inside the other bins; or a
Gaussian's. Its central interval of mass m runs from F⁻¹((1 − m) / 2) to F⁻¹((1 + m) / 2), both ends
included, so that it holds at least m where atoms make steps. Nothing here computes gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from varjepa.models.inference import predict_latents
from varjepa.models.masking import FeatureMasks
from varjepa.models.var_t_jepa import CellDistributions, VarTJepa
from varjepa.tables.codec import EncodedTable
from varjepa.variational.gaussian import DiagonalGaussian

# --- Which cells are asked for.

MAX_PASSES = 32
"""Passes that leave out columns, at most; a wider table leaves out several columns at a time."""


def leave_one_out(rows: EncodedTable, columns: Tensor) -> Iterator[FeatureMasks]:
    """Masks that ask for the known cells of a column given all other known cells, for each column.

    ``columns (D,)`` numbers the column of every feature: the parts of a date go together. More than
    :data:`MAX_PASSES` columns are left out in that many groups, neighbours in different ones.
    """
    group = columns % MAX_PASSES
    for g in range(min(MAX_PASSES, int(columns.max()) + 1)):
        context, target = (group != g).nonzero().flatten(), (group == g).nonzero().flatten()
        observed = rows.observed
        yield FeatureMasks(
            context=context.expand(len(rows), -1),
            context_valid=None if observed is None else observed[:, context],
            target=target.expand(len(rows), 1, -1),
            target_valid=None if observed is None else observed[:, None, target],
        )


def missing_cells(rows: EncodedTable) -> Iterator[FeatureMasks]:
    """Masks that ask for the missing cells given the known ones; none where no cell is missing."""
    if rows.observed is None:
        return
    everything = torch.arange(rows.observed.shape[1], device=rows.num.device).expand(len(rows), -1)
    missing = ~rows.observed
    yield FeatureMasks(everything, rows.observed, everything[:, None], missing[:, None])


def asked_cells(masks: FeatureMasks, features: int) -> Tensor:
    """Which cells the first view asks for.  # (B, D) bool"""
    target = masks.target[:, 0]
    valid = torch.ones_like(target, dtype=torch.bool)
    if masks.target_valid is not None:
        valid = masks.target_valid[:, 0]
    return valid.new_zeros(len(target), features).scatter(1, target, valid)


# --- Distributions of cells.


@torch.no_grad()
def predict_distributions(
    model: VarTJepa, rows: EncodedTable, masks: FeatureMasks
) -> CellDistributions:
    """p(cell | context), meaningful at the first view's cells."""
    return distributions_at(model, predict_latents(model, rows, masks))


def distributions_at(model: VarTJepa, r: DiagonalGaussian) -> CellDistributions:
    """∫ p(cell | s) r(s) ds: exact for Gaussian numbers; others are taken at the latent's mean."""
    decoded = model.predicted_values(r.mean)
    if decoded.bins is not None:
        return decoded
    squared_heads = model.target_decoder.heads.weight.square()  # (F_num, d)
    spread = (r.var[:, : model.shape.numeric] * squared_heads).sum(-1)  # (B, F_num)
    return replace(decoded, log_var=torch.log(spread + decoded.log_var.exp()))


def level_probabilities(cells: CellDistributions, levels: tuple[int, ...], rows: int) -> Tensor:
    """Probabilities of all levels of all categories side by side, MISSING left out.

    Shape: ``levels`` counts the states of each, MISSING included → ``(B, Σ (levels − 1))``.
    """
    found: dict[int, Tensor] = {}
    for features, log_probs in cells.log_probs:
        for place, feature in enumerate(features.tolist()):
            found[feature] = log_probs[:, place].exp()
    ordered = [found[feature] for feature in sorted(found)]
    parts = [one[:, 1:count] for one, count in zip(ordered, levels, strict=True)]
    return torch.cat(parts, dim=1) if parts else cells.mean.new_zeros(rows, 0)


# --- Central intervals of numbers.

LARGEST_MASS = 1.0 - 1e-9
"""Of a Gaussian's interval, which would be endless at 1."""


def central_interval(cells: CellDistributions, mass: Tensor) -> tuple[Tensor, Tensor]:
    """Ends of the central interval of every number; ``mass (F_num,)``.  # (B, F_num) each"""
    mass = mass.double()
    if cells.bin_log_probs is None:
        half = (0.5 * cells.log_var).exp() * _standard_quantile(mass)
        return cells.mean - half.float(), cells.mean + half.float()
    cumulative = _cumulative(cells)
    return _quantile(cells, cumulative, 0.5 - 0.5 * mass), _quantile(
        cells, cumulative, 0.5 + 0.5 * mass
    )


def central_mass(cells: CellDistributions, num: Tensor) -> Tensor:
    """Mass of the smallest central interval that holds the number.  # (B, F_num), float64

    1 − 2 F(y) below the median, 2 F(y−) − 1 above, where F(y−) leaves out an atom at y.
    """
    if cells.bin_log_probs is None:
        off = (num - cells.mean).double().abs() * (-0.5 * cells.log_var.double()).exp()
        return torch.erf(off * math.sqrt(0.5))
    assert cells.bins is not None
    bins, cumulative = cells.bins, _cumulative(cells)
    index = bins.index(num)  # (B, F_num)
    before, share = _around(cumulative, index)
    low, high = bins.low.gather(1, index.T).T, bins.high.gather(1, index.T).T
    inside = ((num - low) / (high - low).clamp_min(1e-30)).clamp(0.0, 1.0)
    is_atom = high == low
    up_to = before + share * torch.where(is_atom, (num >= low).double(), inside.double())
    below = before + share * torch.where(is_atom, (num > low).double(), inside.double())
    return torch.maximum(1.0 - 2.0 * up_to, 2.0 * below - 1.0).clamp(0.0, 1.0)


def _cumulative(cells: CellDistributions) -> Tensor:
    """F at the upper end of every bin, exactly 1 at the last.  # (B, F_num, T)"""
    assert cells.bin_log_probs is not None
    total = cells.bin_log_probs.double().exp().cumsum(-1)
    return total / total[..., -1:]


def _quantile(cells: CellDistributions, cumulative: Tensor, share: Tensor) -> Tensor:
    """F⁻¹ of a share of every feature.  # (F_num,) → (B, F_num)"""
    assert cells.bins is not None
    bins = cells.bins
    index = (cumulative < share.unsqueeze(-1)).sum(-1)  # (B, F_num)
    before, within = _around(cumulative, index)
    low, high = bins.low.gather(1, index.T).T, bins.high.gather(1, index.T).T
    place = ((share - before) / within.clamp_min(1e-300)).clamp(0.0, 1.0)
    return torch.lerp(low, high, place.float())


def _around(cumulative: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """F below a bin, and the bin's own probability.  # (B, F_num) each"""
    at = cumulative.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    left = cumulative.gather(-1, (index - 1).clamp_min(0).unsqueeze(-1)).squeeze(-1)
    before = torch.where(index > 0, left, 0.0)
    return before, at - before


def _standard_quantile(mass: Tensor) -> Tensor:
    """Half the width of a standard normal's central interval."""
    return math.sqrt(2.0) * torch.erfinv(mass.clamp(0.0, LARGEST_MASS))


# --- All of it for rows.


def conformity_scores(model: VarTJepa, rows: EncodedTable, columns: Tensor) -> Tensor:
    """The central mass of every known number given the row's other columns, NaN elsewhere.

    Shape: → ``(B, F_num)``, float64.
    """
    numeric = model.shape.numeric
    scores = rows.num.new_full((len(rows), numeric), torch.nan, dtype=torch.float64)
    for masks in leave_one_out(rows, columns):
        mass = central_mass(predict_distributions(model, rows, masks), rows.num)
        scores = torch.where(asked_cells(masks, model.shape.features)[:, :numeric], mass, scores)
    return scores


def cell_statistics(
    model: VarTJepa, rows: EncodedTable, columns: Tensor, mass: Tensor, with_known: bool
) -> Tensor:
    """Mean, lower and upper end of every number, then the probability of every level.

    Of missing cells given the known ones; ``with_known`` also of known ones given the row's other
    columns. NaN elsewhere.

    Shape: → ``(B, 3 · F_num + Σ levels)``.
    """
    numeric, levels = model.shape.numeric, model.shape.levels
    widths = torch.tensor([n - 1 for n in levels], dtype=torch.long, device=rows.num.device)
    width = 3 * numeric + int(widths.sum())
    found = rows.num.new_full((len(rows), width), torch.nan)
    passes = [*missing_cells(rows), *(leave_one_out(rows, columns) if with_known else ())]
    for masks in passes:
        cells = predict_distributions(model, rows, masks)
        asked = asked_cells(masks, model.shape.features)
        numbers, categories = asked[:, :numeric], asked[:, numeric:]
        statistics = [cells.mean, *central_interval(cells, mass)]
        statistics.append(level_probabilities(cells, levels, len(rows)))
        where = [numbers, numbers, numbers, categories.repeat_interleave(widths, 1)]
        found = torch.where(torch.cat(where, 1), torch.cat(statistics, 1), found)
    return found
