"""The collapse alarm: whether embeddings still differ between rows.

A latent dimension is active if it varies across a sample of rows. A healthy model has active
dimensions in the token of every feature with more than one value; a collapsed one has almost none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from varjepa.tables.encoded import EncodedTable
from varjepa.training.losses import Loss
from varjepa.training.processes import ALONE, World
from varjepa.training.row_source import SAMPLE
from varjepa.variational.diagnostics import ACTIVE_VARIANCE

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
    missing = torch.zeros_like(cells, dtype=torch.bool) if few.observed is None else ~few.observed
    highest = cells.masked_fill(missing, -math.inf).amax(0)
    lowest = cells.masked_fill(missing, math.inf).amin(0)
    (means,) = world.map_rows(lambda some: (loss.embed(some).mean,), few)
    return inspect_latents(means, highest > lowest, loss.active_variance)
