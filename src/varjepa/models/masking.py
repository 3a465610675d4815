"""Feature masks (Appendix A.2): one context and K targets per row, never overlapping.

A mask bit of 1 *keeps* a feature, so the paper's ratios are shares kept. Sizes are drawn once per
batch, positions per row. The K targets are independent draws from the complement of the context and
may overlap each other. A missing cell is never context and never target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from varjepa.settings import MaskSettings
from varjepa.tables.codec import EncodedTable


@dataclass(frozen=True, slots=True)
class FeatureMasks:
    """Index sets of one batch. Where a row has too few observed cells, the tail is not valid;
    None says that everything is.
    """

    context: Tensor  # (B, M_ctx) feature indices
    context_valid: Tensor | None  # (B, M_ctx) bool
    target: Tensor  # (B, K, M_trg) feature indices
    target_valid: Tensor | None  # (B, K, M_trg) bool

    def rows(self, here: slice) -> FeatureMasks:
        context_valid, target_valid = (
            None if valid is None else valid[here]
            for valid in (self.context_valid, self.target_valid)
        )
        return FeatureMasks(self.context[here], context_valid, self.target[here], target_valid)

    def first_view(self) -> FeatureMasks:
        """The same context with the first target only."""
        valid = None if self.target_valid is None else self.target_valid[:, :1]
        return replace(self, target=self.target[:, :1], target_valid=valid)

    def valid_with_cls(self, n_cls: int) -> Tensor | None:
        """Which CLS and context tokens are valid; CLS tokens always are.  # (B, n_cls + M_ctx)"""
        if self.context_valid is None:
            return None
        return nn.functional.pad(self.context_valid, (n_cls, 0), value=True)

    def context_of_views(self, valid: Tensor | None) -> Tensor | None:
        """Which known tokens of a predictor's B · K sequences are valid.

        Shape: ``valid (B, known)`` → ``(B · K, known)``.
        """
        return None if valid is None else valid.repeat_interleave(self.target.shape[1], 0)

    def valid_of_views(self, valid: Tensor | None, known: int) -> Tensor | None:
        """Which tokens of a predictor's B · K sequences are valid: known ones, then targets.

        Shape: ``valid (B, known)`` → ``(B · K, known + M_trg)``.
        """
        if valid is None and self.target_valid is None:
            return None
        rows, views, _ = self.target.shape
        if valid is None:
            valid = self.target.new_ones((rows, known), dtype=torch.bool)
        asked = self.target_valid
        if asked is None:
            asked = torch.ones_like(self.target, dtype=torch.bool)
        return torch.cat([valid.unsqueeze(1).expand(-1, views, -1), asked], 2).flatten(0, 1)


def draw_mask_sizes(
    features: int, settings: MaskSettings, generator: torch.Generator
) -> tuple[int, int]:
    """(M_ctx, M_trg), uniform over the configured ranges; drawn again until both fit.

    Sizes are ⌊share · D⌋ but at least 1. A table of one column has an empty context: its only
    feature is the target, predicted from the CLS latents alone.
    """
    if features == 1:
        return 0, 1

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator, device=generator.device))

    context = _size_range(features, settings.context_share)
    if settings.target_share == "rest":
        m_ctx = draw(*(min(size, features - 1) for size in context))
        return m_ctx, features - m_ctx
    target = _size_range(features, settings.target_share)
    if context[0] + target[0] > features:
        raise ValueError(
            f"the smallest context ({context[0]}) and target ({target[0]}) do not fit into "
            f"{features} features"
        )
    while True:
        m_ctx, m_trg = draw(*context), draw(*target)
        if m_ctx + m_trg <= features:
            return m_ctx, m_trg


def largest_mask_sizes(features: int, settings: MaskSettings) -> tuple[int, int]:
    """The largest (M_ctx, M_trg) that can be drawn."""
    if features == 1:
        return 0, 1
    low_ctx, high_ctx = _size_range(features, settings.context_share)
    if settings.target_share == "rest":
        return min(high_ctx, features - 1), max(1, features - low_ctx)
    low_trg, high_trg = _size_range(features, settings.target_share)
    return min(high_ctx, features - low_trg), min(high_trg, features - low_ctx)


def draw_masks(
    rows: int,
    features: int,
    observed: Tensor | None,
    sizes: tuple[int, int] | tuple[Tensor, Tensor],
    targets: int,
    generator: torch.Generator,
    bucket: tuple[int, int] | None = None,
) -> FeatureMasks:
    """Positions for every row: two sorts of random keys, no loop.

    A row with fewer observed cells than both sizes ask for keeps at least one for its targets.
    ``bucket`` pads the index sets to a fixed number of places, of which only the first ``sizes``
    are valid: shapes then do not depend on the sizes, which may be tensors.

    Shape: ``observed (B, D)``, or None where no cell is missing.
    """
    m_ctx, m_trg = sizes
    p_ctx, p_trg = bucket or (int(m_ctx), int(m_trg))
    device = generator.device
    keys = torch.rand(rows, 1 + targets, features, generator=generator, device=device)
    context_valid = None
    if bucket is not None:
        context_valid = (torch.arange(p_ctx, device=device) < m_ctx).expand(rows, -1)  # (B, P_ctx)
    if observed is not None:
        keys = keys.masked_fill(~observed.unsqueeze(1), math.inf)  # missing cells sort last
        spare = (observed.sum(-1, keepdim=True) - 1).clamp_min(0)  # (B, 1)
        enough = torch.arange(p_ctx, device=device) < spare
        context_valid = enough if context_valid is None else context_valid & enough
    context = keys[:, 0].argsort(dim=-1)[:, :p_ctx]
    taken = torch.zeros(rows, features, dtype=torch.bool, device=device).scatter(
        1, context, True if context_valid is None else context_valid
    )
    drawn = keys[:, 1:].masked_fill(taken.unsqueeze(1), math.inf).sort(dim=-1)
    target_valid = None
    if context_valid is not None:
        target_valid = drawn.values[..., :p_trg].isfinite()
        if bucket is not None:
            target_valid = target_valid & (torch.arange(p_trg, device=device) < m_trg)
    return FeatureMasks(context, context_valid, drawn.indices[..., :p_trg], target_valid)


def draw_cells(
    rows: EncodedTable, features: int, share: float, generator: torch.Generator
) -> Tensor:
    """A random share of the known cells, at least one of every row that has any.  # (B, D) bool"""
    keys = torch.rand(len(rows), features, generator=generator, device=generator.device)
    if rows.observed is not None:
        keys = keys.masked_fill(~rows.observed, math.inf)
    least = keys.amin(-1, keepdim=True)
    return ((keys < share) | (keys == least)) & keys.isfinite()


def masks_from_columns(
    rows: EncodedTable, context: Tensor, target: Tensor, with_missing: bool = False
) -> FeatureMasks:
    """Masks that ask for some features given others, the same in all rows, as one target view.

    ``with_missing`` also asks for missing cells.

    Shape: ``context (M_ctx,)`` and ``target (M_trg,)`` are feature indices.
    """
    observed = rows.observed
    return FeatureMasks(
        context=context.expand(len(rows), -1),
        context_valid=None if observed is None else observed[:, context],
        target=target.expand(len(rows), 1, -1),
        target_valid=None if observed is None or with_missing else observed[:, None, target],
    )


def masks_from_cells(context: Tensor, target: Tensor) -> FeatureMasks:
    """Masks that keep exactly the given cells, one target view: for embedding and imputation.

    Shape: ``context (B, D)`` and ``target (B, D)`` are bool.
    """
    index, valid = _cells_first(context)
    target_index, target_valid = _cells_first(target)
    return FeatureMasks(index, valid, target_index.unsqueeze(1), target_valid.unsqueeze(1))


def _cells_first(cells: Tensor) -> tuple[Tensor, Tensor]:
    """Indices of the kept cells in column order, padded to the longest row."""
    longest = int(cells.sum(-1).max()) if len(cells) else 0
    index = (~cells).to(torch.uint8).argsort(dim=-1, stable=True)[:, :longest]
    return index, cells.gather(1, index)


def _size_range(features: int, share: tuple[float, float]) -> tuple[int, int]:
    low, high = (max(1, math.floor(features * s)) for s in share)
    return low, high
