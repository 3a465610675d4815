"""Single cells given other cells of their row: their distributions, and intervals of numbers.

A number has a cumulative distribution F: steps at atoms, linear inside the other bins; or a
Gaussian's. Its central interval of mass m runs from F⁻¹((1 − m) / 2) to F⁻¹((1 + m) / 2), both ends
included, so that it holds at least m where atoms make steps. Nothing here computes gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from varjepa.models.inference import CellQuestion, FeatureScores, predict_latents
from varjepa.models.masking import FeatureMasks, masks_from_columns
from varjepa.models.var_t_jepa import CellDistributions, VarTJepa
from varjepa.nn.layers import BinHeads
from varjepa.tables.codec import EncodedTable
from varjepa.variational.gaussian import LOG_TWO_PI

# --- Which cells are asked for.

MAX_PASSES = 32
"""Passes that leave out columns, at most; a wider table leaves out several columns at a time."""


def leave_one_out(
    rows: EncodedTable, columns: Tensor, passes: int = MAX_PASSES, with_missing: bool = False
) -> Iterator[FeatureMasks]:
    """Masks that ask for the known cells of a column given all other known cells, for each column.

    ``columns (D,)`` numbers the column of every feature: the parts of a date go together. More
    columns than ``passes`` are left out in that many groups, neighbours in different ones.
    ``with_missing`` also asks for the missing cells of the column.
    """
    group = columns % passes
    for g in range(min(passes, int(columns.max()) + 1)):
        context, target = (group != g).nonzero().flatten(), (group == g).nonzero().flatten()
        yield masks_from_columns(rows, context, target, with_missing)


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
    valid = True if masks.target_valid is None else masks.target_valid[:, 0]
    nothing = torch.zeros(len(target), features, dtype=torch.bool, device=target.device)
    return nothing.scatter(1, target, valid)


# --- Distributions of cells.


@torch.no_grad()
def predict_distributions(
    model: VarTJepa, rows: EncodedTable, masks: FeatureMasks
) -> CellDistributions:
    """p(cell | context), meaningful at the first view's cells."""
    return model.predicted_cells(predict_latents(model, rows, masks))


def level_probabilities(cells: CellDistributions, levels: tuple[int, ...], rows: int) -> Tensor:
    """Probabilities of all levels of all categories side by side, MISSING left out.

    Shape: ``levels`` counts the states of each, MISSING included → ``(B, Σ (levels − 1))``.
    """
    probabilities: dict[int, Tensor] = {}
    for features, log_probs in cells.log_probs:
        for place, feature in enumerate(features.tolist()):
            probabilities[feature] = log_probs[:, place].exp()
    ordered = [probabilities[feature] for feature in sorted(probabilities)]
    parts = [one[:, 1:count] for one, count in zip(ordered, levels, strict=True)]
    return torch.cat(parts, dim=1) if parts else cells.mean.new_zeros(rows, 0)


# --- Central intervals of numbers.

LARGEST_MASS = 1.0 - 1e-9
"""Of a Gaussian's interval, which would be endless at 1."""


def central_interval(cells: CellDistributions, mass: Tensor) -> tuple[Tensor, Tensor]:
    """Ends of the central interval of every number; ``mass (F_num,)``.  # (B, F_num) each"""
    mass = mass.double()
    if cells.bin_log_probs is None:
        standard = math.sqrt(2.0) * torch.erfinv(mass.clamp(0.0, LARGEST_MASS))
        half = ((0.5 * cells.log_var).exp() * standard).float()
        return cells.mean - half, cells.mean + half
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


def mass_between(cells: CellDistributions, low: Tensor, high: Tensor) -> Tensor:
    """Probability of a number between two ends, both included.  # (B, F_num), float32"""
    if cells.bin_log_probs is None:
        scale = (-0.5 * cells.log_var).exp() * math.sqrt(0.5)
        up, down = ((end - cells.mean) * scale for end in (high, low))
        return 0.5 * (torch.erf(up) - torch.erf(down))
    assert cells.bins is not None
    p = cells.bin_log_probs.exp()  # (B, F_num, T)
    left, right = cells.bins.low, cells.bins.high
    width = (right - left).clamp_min(1e-30)
    inside = torch.minimum(right, high.unsqueeze(-1)) - torch.maximum(left, low.unsqueeze(-1))
    is_held = (left >= low.unsqueeze(-1)) & (left <= high.unsqueeze(-1))  # of atoms
    share = torch.where(right == left, is_held.float(), (inside / width).clamp(0.0, 1.0))
    return (p * share).sum(-1).clamp_max(1.0)


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


# --- Scores of cells, relative to how open a cell is if nothing is known of its row.

NORMAL_ENTROPY = 0.5 * math.log(2.0 * math.pi * math.e)
"""Of a Gaussian number in units of its column's standard deviation."""

CELL_PASSES = 16
"""Passes that score the cells of a row, at most."""


@dataclass(frozen=True, slots=True)
class Marginals:
    """How each feature is distributed in the training rows."""

    entropy: Tensor  # (D,)
    mean: Tensor  # (F_num,) in network scale, for Gaussian numbers
    std: Tensor  # (F_num,)
    levels: tuple[Tensor, ...]  # per category (levels + 1,): −log share; MISSING, code 0, has 0

    def to(self, device: torch.device) -> Marginals:
        levels = tuple(one.to(device) for one in self.levels)
        return Marginals(self.entropy.to(device), self.mean.to(device), self.std.to(device), levels)

    def nll(self, w: EncodedTable, bins: BinHeads | None) -> Tensor:
        """−log p(cell) if nothing is known of its row, in the units of :func:`cell_nll`.

        Meaningful where the cell is known.  # (B, D)
        """
        if bins is None:
            numbers = 0.5 * (((w.num - self.mean) / self.std).square() + LOG_TWO_PI)
        else:
            numbers = -bins.share.clamp_min(1e-30).log().gather(1, bins.index(w.num).T).T
        levels = [one[w.cat[:, j], None] for j, one in enumerate(self.levels)]
        return torch.cat([numbers, *levels], dim=1)


def cell_nll(cells: CellDistributions, w: EncodedTable, own: Marginals) -> Tensor:
    """−log p(cell | others): of a number's bin, or of a Gaussian number in its column's unit.

    Meaningful where the cell is known.  # (B, D)
    """
    if cells.bins is not None:
        return torch.cat([cells.bin_nll(w), *cells.level_nll(w)], dim=1)
    nll, numeric = cells.nll(w), w.num.shape[1]
    return torch.cat([nll[:, :numeric] - own.std.log(), nll[:, numeric:]], dim=1)


def cell_entropies(cells: CellDistributions, own: Marginals) -> Tensor:
    """Entropy of every cell.  # (B, D)"""
    if cells.bin_log_probs is not None:
        numbers = _entropy(cells.bin_log_probs)
    else:
        relative = 0.5 * cells.log_var - own.std.log() + NORMAL_ENTROPY
        numbers = relative.clamp_min(0.0).expand_as(cells.mean)
    entropies = numbers.new_zeros(len(numbers), len(own.entropy))
    entropies[:, : numbers.shape[1]] = numbers
    for features, log_probs in cells.log_probs:
        entropies[:, features] = _entropy(log_probs)
    return entropies


def _entropy(log_probs: Tensor) -> Tensor:
    """Over the last axis; a probability of 0 counts nothing."""
    return -(log_probs.exp() * log_probs.clamp_min(-100.0)).sum(-1)


@torch.no_grad()
def score_cells(
    model: VarTJepa, rows: EncodedTable, columns: Tensor, own: Marginals, kind: CellQuestion
) -> FeatureScores:
    """Scores of every cell given the row's other columns, in units of its column's entropy.

    unpredictable: the entropy, of missing cells too; atypical: −log p(cell | others); inconsistent:
    log p(cell) − log p(cell | others). A feature that never varies has no score.
    """
    features = model.shape.features
    total = rows.num.new_zeros(len(rows), features)
    for masks in leave_one_out(rows, columns, CELL_PASSES, with_missing=True):
        cells = predict_distributions(model, rows, masks)
        is_entropy = kind == "unpredictable"
        scores = cell_entropies(cells, own) if is_entropy else cell_nll(cells, rows, own)
        total = torch.where(asked_cells(masks, features), scores, total)
    known = (own.entropy > MIN_ENTROPY).expand(len(rows), -1)
    if kind == "inconsistent":
        total = total - own.nll(rows, model.target_decoder.bins)
    if kind != "unpredictable":
        known = known & rows.known
    scores = total / own.entropy.clamp_min(MIN_ENTROPY)
    return FeatureScores(scores.unsqueeze(-1), known, model.shape.numeric)


MIN_ENTROPY = 1e-2
"""Of a feature that varies: one row in a thousand has another value."""


# --- All of it for rows.


FEW_PASSES = 4
"""Passes that leave out a quarter of the columns each."""


def conformity_scores(model: VarTJepa, rows: EncodedTable, columns: Tensor) -> Tensor:
    """The central mass of every known number given the row's other columns, NaN elsewhere.

    Twice: given all other columns, and given those outside a quarter of them, because rows to be
    filled lack more cells than one.

    Shape: → ``(B, 2, F_num)``, float64.
    """
    numeric, features = model.shape.numeric, model.shape.features
    both = []
    for passes in (MAX_PASSES, FEW_PASSES):
        scores = rows.num.new_full((len(rows), numeric), torch.nan, dtype=torch.float64)
        for masks in leave_one_out(rows, columns, passes):
            mass = central_mass(predict_distributions(model, rows, masks), rows.num)
            scores = torch.where(asked_cells(masks, features)[:, :numeric], mass, scores)
        both.append(scores)
    return torch.stack(both, dim=1)


def expected_cells(model: VarTJepa, rows: EncodedTable, columns: Tensor) -> Tensor:
    """Mean of every number and probability of every level, given the row's other columns.

    Shape: → ``(B, F_num + Σ levels)``.
    """
    numeric, levels = model.shape.numeric, model.shape.levels
    widths = torch.tensor([1] * numeric + [n - 1 for n in levels], device=rows.num.device)
    expected = rows.num.new_zeros(len(rows), int(widths.sum()))
    for masks in leave_one_out(rows, columns, with_missing=True):
        cells = predict_distributions(model, rows, masks)
        asked = asked_cells(masks, model.shape.features).repeat_interleave(widths, 1)
        values = torch.cat([cells.mean, level_probabilities(cells, levels, len(rows))], 1)
        expected = torch.where(asked, values, expected)
    return expected


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
    merged = rows.num.new_full((len(rows), width), torch.nan)
    passes = [*missing_cells(rows), *(leave_one_out(rows, columns) if with_known else ())]
    for masks in passes:
        cells = predict_distributions(model, rows, masks)
        asked = asked_cells(masks, model.shape.features)
        numbers, categories = asked[:, :numeric], asked[:, numeric:]
        statistics = [cells.mean, *central_interval(cells, mass)]
        statistics.append(level_probabilities(cells, levels, len(rows)))
        where = [numbers, numbers, numbers, categories.repeat_interleave(widths, 1)]
        merged = torch.where(torch.cat(where, 1), torch.cat(statistics, 1), merged)
    return merged
