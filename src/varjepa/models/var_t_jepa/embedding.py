"""Rows to embeddings (Appendix D.5): every latent at its mean, all observed cells as context."""

from __future__ import annotations

import torch

from varjepa.masking import FeatureMasks
from varjepa.models.rows import Rows, map_blocks
from varjepa.models.var_t_jepa.model import VarTJepa
from varjepa.variational.gaussian import DiagonalGaussian


def whole_row_masks(rows: Rows, features: int) -> FeatureMasks:
    """Every observed cell is context; nothing is predicted."""
    device = rows.num.device
    everything = torch.arange(features, device=device).expand(len(rows), -1)
    nothing = torch.empty(len(rows), 1, 0, dtype=torch.long, device=device)
    return FeatureMasks(everything, rows.observed, nothing, None)


@torch.no_grad()
def embed_rows(model: VarTJepa, rows: Rows) -> DiagonalGaussian:
    """q(s_w | s_x, z, w) at s_x = mean, z = mean.  # (B, D, d)"""
    masks = whole_row_masks(rows, model.shape.features)
    s_x = model.q_s_x(rows, masks).mean
    return model.q_s_w(s_x, model.q_z(s_x, masks).mean, rows, masks)


def embed_in_blocks(model: VarTJepa, rows: Rows) -> DiagonalGaussian:
    """The same for any number of rows, with the memory of a block per core beside the result."""
    parts = list(map_blocks(lambda block: embed_rows(model, block), rows))
    return DiagonalGaussian(
        torch.cat([q.mean[:count] for q, count in parts]),
        torch.cat([q.log_var[:count] for q, count in parts]),
    )
