"""(I) Context encoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from varjepa.models.rows import TableShape
from varjepa.models.var_t_jepa.settings import VarTJepaSettings
from varjepa.networks.heads import GaussianHead
from varjepa.networks.tokenizer import FeatureTokenizer
from varjepa.networks.transformer import Transformer
from varjepa.variational.gaussian import DiagonalGaussian


class ContextEncoder(nn.Module):
    """q(s_x | x): the context's features and the CLS tokens through a transformer."""

    def __init__(self, shape: TableShape, settings: VarTJepaSettings) -> None:
        super().__init__()
        o = settings
        self.tokenizer = FeatureTokenizer(shape.numeric, shape.levels, o.d)
        self.cls = nn.Parameter(torch.randn(o.n_cls, o.d) * 0.02)
        self.transformer = Transformer(o.d, o.depth, o.heads, o.ff)
        self.head = GaussianHead(o.d, o.d)

    def forward(
        self, x_num: Tensor, x_cat: Tensor, context: Tensor, valid: Tensor | None
    ) -> DiagonalGaussian:
        """Posterior of CLS latents first, then of the context's features.

        Shape: ``context (B, M_ctx)`` feature indices, ``valid (B, N_CLS + M_ctx)`` →
        ``(B, N_CLS + M_ctx, d)``.
        """
        tokens = self.tokenizer(x_num, x_cat, None)  # (B, D, d); missing cells are never context
        index = context.unsqueeze(-1).expand(-1, -1, tokens.shape[-1])
        cls = self.cls.expand(len(tokens), -1, -1)
        sequence = torch.cat([cls, tokens.gather(1, index)], dim=1)  # (B, N_CLS + M_ctx, d)
        return self.head(self.transformer(sequence, valid))
