"""How much more likely a cell is as an error than as a value that belongs to its row.

    T = log e(cell) − log p(cell | the row's other cells)

p is the model's distribution. e is what errors look like: half as the column itself (the value of
another row), half even over its bins or levels. Under p, exp(T) has a mean of 1, so that a large T
is rare in clean cells whatever the column. Beyond the bulk of a number's column, p falls off
exponentially and e does not: a value that is ten times too large counts by its distance. What tails
and rare texts add to T keeps the mean of 1 only roughly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from varjepa.models.cells import (
    central_interval,
    level_probabilities,
    mass_between,
    predict_distributions,
)
from varjepa.models.masking import FeatureMasks
from varjepa.models.var_t_jepa import CellDistributions, VarTJepa
from varjepa.tables.codec import EncodedTable, TableCodec
from varjepa.tables.columns import NumericFeature

Floats = NDArray[np.float64]

# --- given the row's other cells


@dataclass(frozen=True, slots=True)
class ErrorModel:
    """log e of every bin and level; networks' order of features."""

    bins: Tensor  # (F_num, T)
    levels: tuple[Tensor, ...]  # (L + 1,) each; MISSING first, which is never asked
    has_bins: bool = True

    @classmethod
    def of(cls, codec: TableCodec, has_bins: bool = True) -> ErrorModel:
        shares = [np.array(number.bins.share) for number in codec.numeric]
        width = max([1, *map(len, shares)])
        bins = np.zeros((len(shares), width))
        for row, share in zip(bins, shares, strict=True):
            row[: len(share)] = _half_even(share)
        levels = [_half_even(c.marginal.frequencies()) for c in codec.categorical]
        return cls(
            torch.as_tensor(bins, dtype=torch.float32),
            tuple(torch.as_tensor([0.0, *one], dtype=torch.float32) for one in levels),
            has_bins,
        )

    def is_gaussian(self, feature: int) -> bool:
        """Whether a feature has a density instead of probabilities."""
        return feature < len(self.bins) and not self.has_bins

    def to(self, device: torch.device) -> ErrorModel:
        levels = tuple(one.to(device) for one in self.levels)
        return ErrorModel(self.bins.to(device), levels, self.has_bins)


def _half_even(share: Floats) -> Floats:
    return np.log(0.5 * share + 0.5 / max(len(share), 1)) if len(share) else share


MIN_LOG_P = -12.0
"""Of a cell: what a network says of less likely ones is noise."""


def cell_odds(
    model: VarTJepa, rows: EncodedTable, masks: FeatureMasks, errors: ErrorModel
) -> Tensor:
    """T and −log p of the cells that the masks ask for given the observed ones of their context.

    Cells that are not observed are asked for too, at the value that stands there: so a suspicious
    cell can be scored, but tells nothing about others.

    Shape: → ``(B, 2 · D)``.
    """
    return _odds(predict_distributions(model, rows, masks), rows, errors).flatten(1)


def _odds(cells: CellDistributions, rows: EncodedTable, errors: ErrorModel) -> Tensor:
    """T and −log p of all cells at once.  # (B, 2, D)"""
    if cells.bins is not None:
        index = cells.bins.index(rows.num)
        nll = [cells.bin_nll(rows), *cells.level_nll(rows)]
        log_e = [errors.bins.gather(1, index.T).T]
    else:  # Gaussian numbers: both densities are in network scale
        off = (rows.num - cells.mean).double() * (-0.5 * cells.log_var.double()).exp()
        density = 0.5 * (off.square() + math.log(2.0 * math.pi) + cells.log_var.double())
        nll = [density.float(), *cells.level_nll(rows)]
        log_e = [-torch.log(math.pi * (1.0 + rows.num.square()))]
    if errors.levels:
        each = [one[rows.cat[:, j]] for j, one in enumerate(errors.levels)]
        log_e.append(torch.stack(each, dim=1))
    loss = torch.cat(nll, dim=1).clamp_max(-MIN_LOG_P)
    return torch.stack([torch.cat(log_e, dim=1) + loss, loss], dim=1)


SPREADS = 0.25
"""Half the width, in a column's standard deviations, in which a repaired number counts as right."""


def cell_details(
    model: VarTJepa, rows: EncodedTable, masks: FeatureMasks, mass: Tensor, within: Tensor
) -> Tensor:
    """Of every number asked for: median, ends of its interval, confidence; then the probability of
    every level; then, of binned numbers, that of every bin.

    ``mass (F_num,)`` says how much the intervals hold, ``within (F_num,)`` how near the median is
    near.

    Shape: → ``(B, 4 · F_num + Σ levels + F_num · T)``.
    """
    cells = predict_distributions(model, rows, masks)
    median, _ = central_interval(cells, torch.zeros_like(mass))
    parts = [median, *central_interval(cells, mass)]
    parts.append(mass_between(cells, median - within, median + within))
    parts.append(level_probabilities(cells, model.shape.levels, len(rows)))
    if cells.bin_log_probs is not None:
        parts.append(cells.bin_log_probs.exp().flatten(1))
    return torch.cat(parts, 1)


# --- the tails of a number's column

FAR = 15.0
"""Distance beyond which a number is not shown to the model: it would spoil its neighbours."""

MOST_DISTANCE = 1e4
"""Beyond it all numbers are equally far."""

_UPPER, _INNER = 98, 90

SHORTEST = 0.1
"""Scale of a tail, at least, in that of the whole half of its column. Many values just before the
tail, such as balances of 0, say nothing about those beyond."""

COUNTED = 10
"""Steps from which positive whole numbers may be taken by their logarithm; smaller ones count."""

ROUNDING = 1e-9
"""Of a column's largest value: a quantile below it is 0, which comes back from network scale as
something like 3e-14."""


@dataclass(frozen=True, slots=True)
class NumberTails:
    """Exponential tails beyond the 2 % and 98 % quantiles of the training values.

    Their scale is that between the 90 % and 98 % quantile. The upper tail of positive numbers is
    taken as exponential in the value or in its logarithm, whichever is the longer; the lower one in
    the logarithm, since it ends at 0. A 0 is far from them unless they begin beside it, as numbers
    that count from 0 do.
    """

    quantiles: Floats  # (101,)
    step: float

    @classmethod
    def of(cls, number: NumericFeature) -> NumberTails | None:
        """None where there are no values."""
        if not number.marginal.quantiles:
            return None
        unit = np.array(number.marginal.quantiles)
        values = number.scaler.from_unit(unit, on_step=False).astype(np.float64)
        step = number.scaler.step if number.scaler.is_integer else None
        return cls(values, float(step or 0.0))

    @property
    def spread(self) -> float:
        """Standard deviation of the middle of the column."""
        return spread(self.quantiles)

    def distance(self, values: Floats) -> Floats:
        """In units of the tail's scale; 0 in the bulk.  # (N,)"""
        q = self.quantiles
        above = _beyond(values, q, self.step)
        below = _beyond(-values, -q[::-1], self.step)
        zero = ROUNDING * np.abs(q).max()
        if q[1] > max(COUNTED * self.step, zero):
            floor = q[2] * math.exp(-FAR)
            logs, grid = np.log(np.maximum(values, floor)), np.log(np.maximum(q, floor))
            above = np.minimum(above, _beyond(logs, grid, 0.0))
            is_next = (np.abs(values) <= zero) & (below < 1.0)
            below = np.where(is_next, below, _beyond(-logs, -grid[::-1], 0.0))
            below = np.where((values <= 0.0) & ~is_next, np.maximum(below, 2.0 * FAR), below)
        elif q[1] >= -zero:  # hardly ever below 0
            below = np.where(values < -zero, np.maximum(below, 2.0 * FAR), below)
        found = np.minimum(np.maximum(above, below), MOST_DISTANCE)
        return np.where(np.isfinite(values), found, 0.0)


def spread(q: Floats) -> float:
    """Standard deviation of the middle of a column, of which 101 quantiles are given."""
    return float((q[84] - q[16]) / 2.0) or float((q[98] - q[2]) / 4.0)


def _beyond(values: Floats, q: Floats, step: float) -> Floats:
    """Distance above the 98 % quantile in scales of the tail."""
    start = q[_UPPER]
    inner = _INNER if q[_INNER] < start else 50
    scale, whole = (
        (start - q[low]) / math.log((100 - low) / (100 - _UPPER)) for low in (inner, 50)
    )
    scale = max(scale, SHORTEST * whole)
    if q[_INNER] == q[50]:  # most values are the same, such as 0: the others have another scale
        start, scale = q[99], q[99] - q[50]
    if not scale > 0.0:
        return np.zeros(len(values))  # rare values are known by their bins alone
    with np.errstate(over="ignore"):
        return np.maximum(values - start, 0.0) / max(scale, step)


def tail_odds(distance: Floats) -> Floats:
    """Log of an error's tail over the column's own, at least 0.

    The one is 1 / (1 + x)². The other is exp(−x − x² / 20), between an exponential's, which would
    call nothing impossible, and a Gaussian's.
    """
    return np.maximum(distance + distance**2 / 20.0 - 2.0 * np.log1p(distance), 0.0)
