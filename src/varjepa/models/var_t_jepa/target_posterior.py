"""(III) Target posterior."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from varjepa.models.rows import TableShape
from varjepa.models.var_t_jepa.settings import VarTJepaSettings
from varjepa.networks.heads import GaussianHead
from varjepa.networks.pooling import AttentionPooling
from varjepa.networks.tokenizer import FeatureTokenizer
from varjepa.networks.transformer import Transformer
from varjepa.variational.gaussian import DiagonalGaussian


class TargetPosterior(nn.Module):
    """q(s_w | s_x, z, w): the complete row, with pooled context and z as extra tokens.

    It does not depend on the target masks, so one pass serves all K targets: s_{y_k} is s_w at the
    target's features. Algorithm 1 repeats it K times for the same objective.
    """

    def __init__(self, shape: TableShape, settings: VarTJepaSettings) -> None:
        super().__init__()
        o = settings
        self.tokenizer = FeatureTokenizer(shape.numeric, shape.levels, o.d)
        self.cls = nn.Parameter(torch.randn(o.n_cls, o.d) * 0.02)
        self.pooling = AttentionPooling(o.d, o.l_pool, o.heads)
        # a linear map and a type vector each: t = W · latent + e_type is a Linear with bias
        self.pooled_token = nn.Linear(o.d, o.d)
        self.z_token = nn.Linear(o.d, o.d)
        self.transformer = Transformer(o.d, o.depth, o.heads, o.ff)
        self.head = GaussianHead(o.d, o.d)

    def forward(
        self,
        s_x: Tensor,
        valid: Tensor | None,
        z: Tensor,
        w_num: Tensor,
        w_cat: Tensor,
        observed: Tensor | None,
    ) -> DiagonalGaussian:
        """Shape: ``s_x (B, S, d)``, ``z (B, d)``, rows of D features → ``(B, D, d)``."""
        features = self.tokenizer(w_num, w_cat, observed)  # (B, D, d)
        sequence = torch.cat(
            [
                self.cls.expand(len(z), -1, -1),
                self.pooled_token(self.pooling(s_x, valid)),
                self.z_token(z).unsqueeze(1),
                features,
            ],
            dim=1,
        )
        return self.head(self.transformer(sequence, keep=features.shape[1]))
