"""(IV) Predictor."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from varjepa.models.rows import TableShape
from varjepa.models.var_t_jepa.settings import VarTJepaSettings
from varjepa.networks.heads import GaussianHead
from varjepa.networks.transformer import Transformer
from varjepa.variational.gaussian import DiagonalGaussian


class Predictor(nn.Module):
    """p(s_y | s_x, z): mask tokens at the targets' features, answered from context latents alone.

    It lives in latent space and knows features only by their position vectors.
    """

    def __init__(self, shape: TableShape, settings: VarTJepaSettings) -> None:
        super().__init__()
        o = settings
        self.n_cls = o.n_cls if o.cls_in_context else 0
        width = o.predictor_width
        self.context_token = nn.Linear(o.d, width)
        self.z_token = nn.Linear(o.d, width)
        self.mask_token = nn.Parameter(torch.randn(width) * 0.02)
        self.position = nn.Parameter(torch.randn(shape.features, width) * 0.02)
        self.cls_position = nn.Parameter(torch.randn(self.n_cls, width) * 0.02)
        self.transformer = Transformer(width, o.predictor_depth, o.predictor_heads, o.predictor_ff)
        self.head = GaussianHead(width, o.d)

    def forward(
        self,
        s_x: Tensor,
        z: Tensor,
        context: Tensor,
        valid: Tensor | None,
        target: Tensor,
        target_valid: Tensor | None,
    ) -> DiagonalGaussian:
        """All K targets at once, as a batch of B · K sequences.

        Shape: ``s_x (B, N_CLS + M_ctx, d)``, ``z (B, d)``, ``context (B, M_ctx)``,
        ``target (B, K, M_trg)`` → ``(B, K, M_trg, d)``.
        """
        rows, views, size = target.shape
        position = self.position.expand(rows, -1, -1)  # (B, D, width)
        at_context = pick(position, context.unsqueeze(1)).squeeze(1)
        at_target = pick(position, target)
        at_known = torch.cat([self.cls_position.expand(rows, -1, -1), at_context], dim=1)
        from_z = self.z_token(z).unsqueeze(1)  # (B, 1, width)
        known = self.context_token(s_x) + from_z + at_known  # (B, S, width)
        asked = self.mask_token + from_z.unsqueeze(1) + at_target  # (B, K, M, width)
        sequence = torch.cat([known.unsqueeze(1).expand(-1, views, -1, -1), asked], dim=2)
        length = sequence.shape[2]
        hidden = self.transformer(
            sequence.reshape(rows * views, length, -1),
            _sequence_valid(valid, target_valid, known.shape[1], target),
            keep=size,
        )
        return self.head(hidden.view(rows, views, size, -1))


def pick(tokens: Tensor, index: Tensor) -> Tensor:
    """Every view's tokens at its own features, by a gather: its gradient needs no sort.

    Views are gathered apart. One gather for all of them would add up the gradients of features that
    several views share in whatever order a GPU's threads arrive.

    Shape: ``tokens (B, D, width)``, ``index (B, K, M)`` → ``(B, K, M, width)``.
    """
    apart = tokens.unsqueeze(1).expand(-1, index.shape[1], -1, -1)
    return apart.gather(2, index.unsqueeze(-1).expand(-1, -1, -1, tokens.shape[-1]))


def _sequence_valid(
    valid: Tensor | None, target_valid: Tensor | None, known: int, target: Tensor
) -> Tensor | None:
    """Which tokens of each of the B · K sequences may be attended to.  # (B · K, S + M_trg)"""
    if valid is None and target_valid is None:
        return None
    rows, views, _ = target.shape
    if valid is None:
        valid = target.new_ones((rows, known), dtype=torch.bool)
    if target_valid is None:
        target_valid = torch.ones_like(target, dtype=torch.bool)
    both = torch.cat([valid.unsqueeze(1).expand(-1, views, -1), target_valid], dim=2)
    return both.reshape(rows * views, -1)
