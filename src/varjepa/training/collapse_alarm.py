"""The collapse alarm: says when latents have stopped telling rows apart.

Two signs, both read off the embeddings of a sample of rows: how many latent dimensions are active
(vary across rows), and how much each feature's token varies at all. A healthy model has active
units in every feature's token that has more than one value; a collapsed one has almost none.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

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
