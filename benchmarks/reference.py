"""Algorithm 1 as the paper writes it: the plain training step ours is compared with.

Everything is spelled out: one argsort per mask; s_x, z and w repeated K times and the target
posterior run on all B · K rows; torch's own transformer layers; one decoder head after the other.
Rows are complete, as the paper's are.

The reference has no parameters of its own: its layers hold the very tensors of a ``VarTJepa``, so
losses and gradients of the two can be compared, number by number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import (
    cross_entropy,
    embedding,
    gaussian_nll_loss,
    scaled_dot_product_attention,
)

from varjepa.models.masking import FeatureMasks
from varjepa.models.var_t_jepa import Decoder, VarTJepa
from varjepa.nn.layers import AttentionPooling, FeatureTokenizer, PiecewiseTokenizer
from varjepa.nn.transformer import Transformer
from varjepa.tables.codec import EncodedTable
from varjepa.variational.elbo import ElboTerms
from varjepa.variational.gaussian import DiagonalGaussian
from varjepa.variational.model import LatentNoise


class ReferenceStep(nn.Module):
    """The forward pass and the losses of Algorithm 1, with the parameters of ``model``."""

    def __init__(self, model: VarTJepa) -> None:
        super().__init__()
        self.model = model
        self.encode_context = _plain_transformer(model.context_encoder.transformer)
        self.encode_target = _plain_transformer(model.target_posterior.transformer)
        self.predict = _plain_transformer(model.predictor.transformer)

    def forward(self, w: EncodedTable, masks: FeatureMasks, noise: LatentNoise) -> ElboTerms:
        """The five losses, one value per row.

        Shape: ``noise.s_y (B, K, D, d)``, a draw per target view (an expanded one ties them).
        """
        rows, views, _ = masks.target.shape
        n_cls = self.model.settings.n_cls

        q_s_x = self.q_s_x(w, masks.context)
        s_x = q_s_x.at_noise(noise.s_x)  # (B, N_CLS + M_ctx, d)
        q_z = self.q_z(s_x)
        z = q_z.at_noise(noise.z)  # (B, d)

        # an effective target batch of B · K rows
        w_k = EncodedTable(
            w.num.repeat_interleave(views, 0), w.cat.repeat_interleave(views, 0), None
        )
        s_x_k, z_k = s_x.repeat_interleave(views, 0), z.repeat_interleave(views, 0)
        context_k = masks.context.repeat_interleave(views, 0)
        target = masks.target.flatten(0, 1)  # (B · K, M_trg)
        q_s_w = self.q_s_w(s_x_k, z_k, w_k)
        s_w = q_s_w.at_noise(noise.s_y.flatten(0, 1))  # (B · K, D, d)
        p_s_y = self.p_s_y(s_x_k, z_k, context_k, target)

        index = target.unsqueeze(-1).expand(-1, -1, s_w.shape[-1])
        q_s_y = DiagonalGaussian(q_s_w.mean.gather(1, index), q_s_w.log_var.gather(1, index))
        everything = torch.arange(s_w.shape[1], device=s_w.device).expand(len(s_w), -1)
        kl_s_x = _kl_to_standard(q_s_x)
        return ElboTerms(
            rec=_decode(self.model.context_decoder, s_x[:, n_cls:], masks.context, w).mean(-1),
            gen=_decode(self.model.target_decoder, s_w, everything, w_k).view(rows, -1).mean(-1),
            kl_sx=kl_s_x.mean(-1),
            kl_z=_kl_to_standard(q_z),
            kl_sy=_kl(q_s_y, p_s_y).view(rows, -1).mean(-1),
        )

    def q_s_x(self, w: EncodedTable, context: Tensor) -> DiagonalGaussian:
        """(I) q(s_x | x)"""
        part = self.model.context_encoder
        tokens = _tokens(part.tokenizer, w)
        tokens = tokens.gather(1, context.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]))
        cls = part.cls.expand(len(tokens), -1, -1)
        return _gaussian(part.head.linear, self.encode_context(torch.cat([cls, tokens], 1)))

    def q_z(self, s_x: Tensor) -> DiagonalGaussian:
        """(II) q(z | s_x)"""
        part = self.model.auxiliary_encoder
        pooled = _pool(part.pooling, s_x)
        return _gaussian(part.head.linear, part.mlp(pooled.flatten(1)))

    def q_s_w(self, s_x: Tensor, z: Tensor, w: EncodedTable) -> DiagonalGaussian:
        """(III) q(s_w | s_x, z, w)"""
        part = self.model.target_posterior
        pooled = part.pooled_token(_pool(part.pooling, s_x))
        from_z = part.z_token(z).unsqueeze(1)
        tokens = _tokens(part.tokenizer, w)
        cls = part.cls.expand(len(tokens), -1, -1)
        hidden = self.encode_target(torch.cat([cls, pooled, from_z, tokens], 1))
        return _gaussian(part.head.linear, hidden[:, -tokens.shape[1] :])

    def p_s_y(self, s_x: Tensor, z: Tensor, context: Tensor, target: Tensor) -> DiagonalGaussian:
        """(IV) p(s_y | s_x, z)"""
        part = self.model.predictor
        from_z = part.z_token(z).unsqueeze(1)
        cls = part.cls_position.expand(len(z), -1, -1)
        position = torch.cat([cls, part.position[context]], 1)
        known = part.context_token(s_x) + from_z + position
        asked = part.mask_token + from_z + part.position[target]
        hidden = self.predict(torch.cat([known, asked], 1))
        return _gaussian(part.head.linear, hidden[:, -target.shape[1] :])

    @torch.no_grad()
    def embed(self, w: EncodedTable) -> DiagonalGaussian:
        """Appendix D.5: every feature is context, every latent at its mean.  # (B, D, d)"""
        everything = torch.arange(self.model.shape.features, device=w.num.device)
        s_x = self.q_s_x(w, everything.expand(len(w), -1)).mean
        return self.q_s_w(s_x, self.q_z(s_x).mean, w)


def draw_masks_plainly(
    rows: int, features: int, sizes: tuple[int, int], targets: int, generator: torch.Generator
) -> FeatureMasks:
    """Appendix A.2 with one argsort per mask; the same masks as ``draw_masks`` draws."""
    m_ctx, m_trg = sizes
    shape = (rows, 1 + targets, features)
    keys = torch.rand(shape, generator=generator, device=generator.device)
    context = keys[:, 0].argsort(-1)[:, :m_ctx]
    drawn = []
    for k in range(targets):
        free = keys[:, 1 + k].scatter(1, context, torch.inf)  # the context's features sort last
        drawn.append(free.argsort(-1)[:, :m_trg])
    return FeatureMasks(context, None, torch.stack(drawn, 1), None)


def _tokens(part: FeatureTokenizer | PiecewiseTokenizer, w: EncodedTable) -> Tensor:
    """Eq. (context-tokenization), feature by feature.  # (B, D, d)"""
    assert isinstance(part, FeatureTokenizer)  # the paper's
    tokens = [
        w.num[:, j, None] * part.weight + part.bias[j] + part.kind[0] for j in range(part.numeric)
    ]
    for j, start in enumerate(part.offsets.tolist()):
        tokens.append(embedding(w.cat[:, j] + start, part.embedding) + part.kind[1])
    return torch.stack([token + part.position[j] for j, token in enumerate(tokens)], 1)


def _decode(part: Decoder, s: Tensor, index: Tensor, w: EncodedTable) -> Tensor:
    """−log p(π_j | s_j), head by head, for the features j = index[row, t].  # (B, M)"""
    heads, noise = part.heads, part.log_var.exp()
    states = {f: (g, i) for g in heads.groups for i, f in enumerate(g.features.tolist())}
    cells = s.new_zeros(index.shape)
    for j in range(heads.numeric + len(states)):
        row, t = (index == j).nonzero(as_tuple=True)
        latent = s[row, t]  # (n, d)
        if j < heads.numeric:
            mean = latent @ heads.weight[j] + heads.bias[j]
            nll = gaussian_nll_loss(
                mean, w.num[row, j], noise.expand_as(mean), full=True, reduction="none"
            )
        else:
            group, i = states[j]
            possible = ~group.impossible[i]
            logits = latent @ group.weight[i][:, possible] + group.bias[i, 0, possible]
            level = (possible.cumsum(0) - 1)[w.cat[row, j - heads.numeric]]
            nll = cross_entropy(logits, level, reduction="none")
        cells = cells.index_put((row, t), nll)
    return cells


def _gaussian(head: nn.Linear, hidden: Tensor) -> DiagonalGaussian:
    return DiagonalGaussian.from_head(head(hidden))


def _kl_to_standard(q: DiagonalGaussian) -> Tensor:
    return 0.5 * (q.log_var.exp() + q.mean.square() - q.log_var - 1.0).sum(-1)


def _kl(q: DiagonalGaussian, p: DiagonalGaussian) -> Tensor:
    ratio = (q.var + (p.mean - q.mean).square()) / p.var
    return 0.5 * (ratio + p.log_var - q.log_var - 1.0).sum(-1)


def _pool(part: AttentionPooling, tokens: Tensor) -> Tensor:
    """Learned queries attend to the tokens.  # (B, S, d) → (B, L_pool, d)"""
    keys, values = part.project_in(tokens).chunk(2, -1)
    q, k, v = (
        each.unflatten(-1, (part.heads, -1)).transpose(1, 2)
        for each in (part.queries.expand(len(tokens), -1, -1), keys, values)
    )  # (B, H, ·, d_head)
    return part.project_out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def _plain_transformer(source: Transformer) -> nn.TransformerEncoder:
    """The encoder torch ships, its layers holding the tensors of ours; they drop nothing."""
    blocks: list[Any] = list(source.blocks)
    width, first = source.norm.normalized_shape[0], blocks[0]
    layer = nn.TransformerEncoderLayer(
        width,
        first.attention.heads,
        first.mlp[0].out_features,
        dropout=0.0,
        activation="gelu",
        batch_first=True,
        norm_first=True,
    )
    plain = nn.TransformerEncoder(layer, len(blocks), norm=source.norm, enable_nested_tensor=False)
    layers: list[Any] = list(plain.layers)
    for theirs, ours in zip(layers, blocks, strict=True):
        theirs.norm1, theirs.norm2 = ours.attention_norm, ours.mlp_norm
        theirs.self_attn.in_proj_weight = ours.attention.project_in.weight
        theirs.self_attn.in_proj_bias = ours.attention.project_in.bias
        theirs.self_attn.out_proj = ours.attention.project_out
        theirs.linear1, theirs.linear2 = ours.mlp[0], ours.mlp[2]
    return plain
