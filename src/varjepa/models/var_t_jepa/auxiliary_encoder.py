"""(II) Auxiliary encoder."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from varjepa.models.var_t_jepa.settings import VarTJepaSettings
from varjepa.networks.heads import GaussianHead
from varjepa.networks.pooling import AttentionPooling
from varjepa.variational.gaussian import DiagonalGaussian


class AuxiliaryEncoder(nn.Module):
    """q(z | s_x): pooled context latents through a small perceptron; targets are never seen."""

    def __init__(self, settings: VarTJepaSettings) -> None:
        super().__init__()
        o = settings
        self.pooling = AttentionPooling(o.d, o.l_pool, o.heads)
        widths = [o.l_pool * o.d] + [o.d] * o.auxiliary_layers
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.LayerNorm(after), nn.GELU()]
        self.mlp = nn.Sequential(*layers)
        self.head = GaussianHead(widths[-1], o.d)

    def forward(self, s_x: Tensor, valid: Tensor | None) -> DiagonalGaussian:
        """Shape: ``s_x (B, S, d)``, ``valid (B, S)`` → ``(B, d)``."""
        return self.head(self.mlp(self.pooling(s_x, valid).flatten(1)))
