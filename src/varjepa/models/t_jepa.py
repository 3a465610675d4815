"""T-JEPA (Appendix D.4): the deterministic baseline, with learnable auxiliary tokens.

    s_x  = f_ctx(x)             context encoder, learned by gradient descent
    s_w  = f_trg(w)             target encoder: the context encoder's moving average, no gradient
    ŝ_y  = g(s_x, aux; m_trg)   predictor, answers at the targets' features

The loss is the squared distance of ŝ_y to s_w at the targets. A constant s_w makes it 0; only the
moving average and the stopped gradient stand against that.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from varjepa.models.masking import FeatureMasks
from varjepa.nn.layers import FeatureTokenizer, TableShape, mean_over
from varjepa.nn.row_threads import map_blocks
from varjepa.nn.transformer import Transformer
from varjepa.settings import PointArchitecture
from varjepa.tables.codec import EncodedTable
from varjepa.variational.gaussian import at_least_float32


class Encoder(nn.Module):
    """f(w; m): CLS tokens and the tokens of some features through a transformer."""

    def __init__(self, shape: TableShape, settings: PointArchitecture) -> None:
        super().__init__()
        o = settings
        self.tokenizer = FeatureTokenizer(shape.numeric, shape.levels, o.d)
        self.cls = nn.Parameter(torch.randn(o.n_cls, o.d) * 0.02)
        self.transformer = Transformer(o.d, o.depth, o.heads, o.ff)

    def forward(self, w: EncodedTable, context: Tensor, valid: Tensor | None) -> Tensor:
        """Encode what the context keeps.

        Shape: ``context (B, M_ctx)`` feature indices, ``valid (B, N_CLS + M_ctx)`` →
        ``(B, N_CLS + M_ctx, d)``.
        """
        tokens = self.tokenizer(w.num, w.cat, None)  # (B, D, d); missing cells are never context
        index = context.unsqueeze(-1).expand(-1, -1, tokens.shape[-1])
        return self.transformer(self._with_cls(tokens.gather(1, index)), valid)

    def whole(self, w: EncodedTable) -> Tensor:
        """Encode all features of the row; a missing cell has a token that says so.

        Shape: → ``(B, N_CLS + D, d)``.
        """
        return self.transformer(self._with_cls(self.tokenizer(w.num, w.cat, w.observed)))

    def _with_cls(self, tokens: Tensor) -> Tensor:
        return torch.cat([self.cls.expand(len(tokens), -1, -1), tokens], dim=1)


class PointPredictor(nn.Module):
    """g(s_x, aux; m_trg): mask tokens at the targets' features, answered from the context."""

    def __init__(self, shape: TableShape, settings: PointArchitecture) -> None:
        super().__init__()
        o = settings
        width = o.predictor_width
        self.context_token = nn.Linear(o.d, width)
        self.mask_token = nn.Parameter(torch.randn(width) * 0.02)
        self.position = nn.Parameter(torch.randn(shape.features, width) * 0.02)
        self.cls_position = nn.Parameter(torch.randn(o.n_cls, width) * 0.02)
        # the paper adds a learned position to each learned token: one vector does for both
        self.aux = nn.Parameter(torch.randn(o.n_aux, width) * 0.02)
        self.transformer = Transformer(width, o.predictor_depth, o.predictor_heads, o.predictor_ff)
        self.head = nn.Linear(width, o.d)

    def forward(self, s_x: Tensor, valid: Tensor | None, masks: FeatureMasks) -> Tensor:
        """All K targets at once, as a batch of B · K sequences.

        Shape: ``s_x (B, N_CLS + M_ctx, d)``, ``valid (B, N_CLS + M_ctx)`` → ``(B, K, M_trg, d)``.
        """
        rows, views, size = masks.target.shape
        cls = self.cls_position.expand(rows, -1, -1)
        context = self.context_token(s_x) + torch.cat([cls, self.position[masks.context]], dim=1)
        known = torch.cat([self.aux.expand(rows, -1, -1), context], dim=1)
        asked = self.mask_token + self.position[masks.target]  # (B, K, M_trg, width)
        sequence = torch.cat([known.unsqueeze(1).expand(-1, views, -1, -1), asked], dim=2)
        if valid is not None:
            valid = nn.functional.pad(valid, (len(self.aux), 0), value=True)
        seen = masks.valid_of_views(valid, known.shape[1])
        hidden = self.transformer(sequence.flatten(0, 1), seen, keep=size)
        return self.head(hidden).view(rows, views, size, -1)


class TJepa(nn.Module):
    """The networks, the distance and the moving average; no data handling, no optimisation.

    The MISSING token of the target encoder keeps its first value: a missing cell is never context,
    so no gradient reaches it. It is a state of its own, but not a learned one.
    """

    def __init__(self, shape: TableShape, settings: PointArchitecture) -> None:
        super().__init__()
        self.shape = shape
        self.settings = settings
        self.context_encoder = Encoder(shape, settings)
        self.predictor = PointPredictor(shape, settings)
        self.target_encoder = copy.deepcopy(self.context_encoder).requires_grad_(False)

    def forward(self, w: EncodedTable, masks: FeatureMasks) -> Tensor:
        """ŝ_y at the targets' features; of w only the context is read.

        Shape: → ``(B, K, M_trg, d)``.
        """
        valid = masks.valid_with_cls(self.settings.n_cls)
        s_x = self.context_encoder(w, masks.context, valid)
        return at_least_float32(self.predictor(s_x, valid, masks))

    @torch.no_grad()
    def s_w(self, w: EncodedTable) -> Tensor:
        """The target encoder's tokens of the whole row: CLS first, then every feature.

        Shape: → ``(B, N_CLS + D, d)``.
        """
        return at_least_float32(self.target_encoder.whole(w))

    def distance(self, s_y: Tensor, s_w: Tensor, masks: FeatureMasks) -> Tensor:
        """Eq. (tjepa-loss) of each row: ‖ŝ_y − s_y‖², mean over targets and their features.

        Shape: ``s_y (B, K, M_trg, d)``, ``s_w (B, D, d)`` → ``(B,)``.
        """
        index = masks.target.flatten(1).unsqueeze(-1).expand(-1, -1, s_w.shape[-1])
        truth = s_w.gather(1, index).view(s_y.shape)
        return mean_over((s_y - truth).square().sum(-1), masks.target_valid)

    @torch.no_grad()
    def follow(self, progress: Tensor | float, momentum: tuple[float, float]) -> None:
        """Move the target encoder towards the context encoder: θ_trg ← m θ_trg + (1 − m) θ_ctx.

        ``progress`` from 0 to 1 says where between the two ends of ``momentum`` m is. A tensor
        is not read, so the update can be part of a recorded step.
        """
        first, last = momentum
        share = (1.0 - first) - (last - first) * progress
        target = tuple(self.target_encoder.parameters())
        step = torch._foreach_sub(tuple(self.context_encoder.parameters()), target)
        torch._foreach_mul_(step, share)
        torch._foreach_add_(target, step)


@torch.no_grad()
def embed_points(model: TJepa, rows: EncodedTable) -> Tensor:
    """The target encoder's tokens of whole rows (Appendix D.5).  # (B, D, d)"""
    return model.s_w(rows)[:, model.settings.n_cls :]


def embed_points_in_blocks(model: TJepa, rows: EncodedTable) -> Tensor:
    """The same for any number of rows, with the memory of a block per core and of the result."""
    parts = map_blocks(lambda block: embed_points(model, block), rows)
    return torch.cat([tokens[:count] for tokens, count in parts])
