"""Var-T-JEPA (Appendix A): settings, the six components (q beside p), and the whole model.

Shape of a Var-T-JEPA. Defaults are the paper's for Adult unless a docstring says otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from varjepa.models.masking import FeatureMasks
from varjepa.models.table_rows import Rows, TableShape, mean_over
from varjepa.nn.heads import AttentionPooling, FeatureHeads, GaussianHead
from varjepa.nn.tokenizers import FeatureTokenizer
from varjepa.nn.transformer import Transformer
from varjepa.variational.elbo import ElboTerms
from varjepa.variational.gaussian import (
    LOG_TWO_PI,
    DiagonalGaussian,
    at_least_float32,
    soft_clamp_log_var,
)
from varjepa.variational.model import LatentNoise


@dataclass(frozen=True, slots=True)
class VarTJepaSettings:
    """Appendix D.6.2's architecture columns, and what the paper leaves open."""

    d: int = 64
    """width of tokens and of every latent (d = d_z = D_hid)"""
    depth: int = 8
    """L, transformer layers of context encoder and target posterior"""
    heads: int = 4
    """H"""
    ff: int = 256
    """feed-forward width"""
    predictor_width: int = 16
    """L_p, the predictor's token width"""
    predictor_depth: int = 4
    """layers of the predictor; not in the paper"""
    predictor_heads: int = 4
    """H_p"""
    predictor_ff: int = 256
    """ff_p"""
    imputer_width: int = 64
    """token width of the imputer, a second predictor outside the objective; not in the paper"""
    imputer_depth: int = 3
    """layers of the imputer; 0: none, the objective's own predictor fills holes as in the paper"""
    imputer_heads: int = 4
    """attention heads of the imputer"""
    imputer_ff: int = 128
    """feed-forward width of the imputer"""
    imputer_kl: float = 0.001
    """weight of KL(q ‖ r) beside the values' likelihood in the imputer's own loss"""
    n_cls: int = 1
    """N_CLS, learned tokens in front of both encoders; not in the paper"""
    l_pool: int = 4
    """L_pool, tokens that attention pooling makes of s_x; not in the paper"""
    auxiliary_layers: int = 2
    """hidden layers of the auxiliary encoder; not in the paper"""
    cls_in_context: bool = True
    """whether the CLS latents are part of s_x for pooling and predictor. They keep the context from
    being empty where every context cell of a row is missing; with True their KL counts too"""
    noise_variance: float = 1.0
    """σ_x² and σ_y² before training. Smaller ones learn numbers sooner; on Adult they also turn the
    posterior's spread upside down (paper/LOG.md)"""
    min_noise_variance: float = 1e-4
    """floor of σ_x² and σ_y²: near-constant columns drive them to 0"""

    def __post_init__(self) -> None:
        for width, heads in (
            (self.d, self.heads),
            (self.predictor_width, self.predictor_heads),
            (self.imputer_width, self.imputer_heads),
        ):
            if width % heads:
                raise ValueError(f"width {width} is not a multiple of {heads} heads")
        if self.n_cls < 1:
            raise ValueError("n_cls must be at least 1")
        if not 0 < self.min_noise_variance < self.noise_variance:
            raise ValueError("noise_variance must be above min_noise_variance, and both above 0")


# --- (I) Context encoder.


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


# --- (II) Auxiliary encoder.


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


# --- (III) Target posterior.


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


# --- (IV) Predictor.


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


# --- What the two decoders share: one linear head per feature, one learned noise variance.


@dataclass(frozen=True, slots=True)
class Decoded:
    """p(π_j | s_j) for every feature: Gaussian for numbers, categorical for categories."""

    mean: Tensor  # (B, F_num)
    log_var: Tensor  # () or (B, F_num): the numbers' noise variance
    log_probs: list[tuple[Tensor, Tensor]]  # per group of features: (G,), (B, G, L_max)

    def nll(self, x_num: Tensor, x_cat: Tensor) -> Tensor:
        """−log p of every cell, meaningful where the cell is observed.  # (B, D)"""
        squared = (x_num - self.mean).square() * (-self.log_var).exp()
        numeric = 0.5 * (squared + self.log_var + LOG_TWO_PI)
        parts = [numeric]
        for features, log_probs in self.log_probs:
            state = x_cat.index_select(1, features - x_num.shape[1])  # (B, G)
            # MISSING has probability 0; a finite stand-in keeps unobserved cells out of the way
            picked = log_probs.gather(-1, state.unsqueeze(-1)).squeeze(-1)
            parts.append(torch.where(state > 0, -picked, 0.0))
        cells = torch.cat(parts, dim=1)
        if len(self.log_probs) < 2:
            return cells
        grouped = torch.cat([features for features, _ in self.log_probs])
        return torch.cat(
            [numeric, cells[:, x_num.shape[1] :].index_select(1, grouped.argsort())], dim=1
        )


class Decoder(nn.Module):
    """Heads u_j and σ², which both decoders have of their own."""

    def __init__(self, shape: TableShape, settings: VarTJepaSettings) -> None:
        super().__init__()
        self.heads = FeatureHeads(shape.numeric, shape.levels, settings.d)
        self.raw_log_var = nn.Parameter(torch.tensor(math.log(settings.noise_variance)))
        self.min_log_var = math.log(settings.min_noise_variance)

    @property
    def log_var(self) -> Tensor:
        """Log σ², softly kept above its floor."""
        free = soft_clamp_log_var(self.raw_log_var)
        # log(e^free + e^floor), without a constant that would have to be copied to a GPU each time
        return self.min_log_var + nn.functional.softplus(free - self.min_log_var)

    def forward(self, s: Tensor, frozen: bool = False) -> Decoded:
        """Values at a latent for every feature; frozen heads learn nothing from them.

        Shape: ``s (B, D, d)``.
        """
        means = at_least_float32(self.heads.means(s, frozen))
        return Decoded(means, self.log_var, self.heads.log_probs(s, frozen))


# --- (V) Context decoder.


class ContextDecoder(Decoder):
    """p(x | s_x), with noise σ_x²."""

    def decode_context(self, s_x: Tensor, context: Tensor, features: int) -> Decoded:
        """Decode latents that stand at the context's features.

        Latents are laid out on a grid of all features first, so that every head is computed in one
        batched product; cells outside the context hold zeros and are ignored by the caller.

        Shape: ``s_x (B, M_ctx, d)``, ``context (B, M_ctx)``.
        """
        grid = s_x.new_zeros((len(s_x), features, s_x.shape[-1]))
        index = context.unsqueeze(-1).expand(-1, -1, s_x.shape[-1])
        decoded: Decoded = self(grid.scatter(1, index, s_x))
        return decoded


# --- (VI) Target decoder.


class TargetDecoder(Decoder):
    """p(w | s_w), with noise σ_y²."""


# --- A second, wider predictor outside the objective, for filling holes and judging cells.

_START_LOG_VAR = -3.0
"""A standard deviation of .22 on a column that spans [0, 1]."""

_PACE = 10.0
"""How much faster than other parameters the noise moves: Adam would take thousands of steps."""


class Imputer(nn.Module):
    """r(s_y | s_x, z), trained to predict *values*: −log ∫ p(y | s_y) r(s_y | s_x, z) ds_y.

    The objective's own predictor p(s_y | s_x, z) is a prior: it is narrow, and has to be, because
    the posterior's spread is only informative while the prior leaves something open. That makes it
    a poor guess of values. This one reads the same context latents, is as wide as they are, and
    learns from the cells themselves. It takes them, and the decoder, as they are: no gradient
    leaves it, so the rest of the model is trained exactly as without it.

    Numbers get one noise variance per feature here, since draws need each column's own.
    """

    def __init__(self, shape: TableShape, settings: VarTJepaSettings) -> None:
        super().__init__()
        o = settings
        self.predictor = Predictor(
            shape,
            replace(
                o,
                predictor_width=o.imputer_width,
                predictor_depth=o.imputer_depth,
                predictor_heads=o.imputer_heads,
                predictor_ff=o.imputer_ff,
            ),
        )
        self.raw_log_var = nn.Parameter(torch.full((shape.numeric,), _START_LOG_VAR / _PACE))

    @property
    def log_var(self) -> Tensor:
        """Noise of every numeric feature.  # (F_num,)"""
        return soft_clamp_log_var(_PACE * self.raw_log_var)

    def forward(
        self,
        s_x: Tensor,
        z: Tensor,
        context: Tensor,
        valid: Tensor | None,
        target: Tensor,
        target_valid: Tensor | None,
    ) -> DiagonalGaussian:
        """As the predictor's."""
        r: DiagonalGaussian = self.predictor(
            s_x.detach(), z.detach(), context, valid, target, target_valid
        )
        return r

    def decode(self, decoder: TargetDecoder, s: Tensor) -> Decoded:
        """p(value | s) with this module's noise; the decoder itself learns nothing from it.

        Shape: ``s (B, D, d)``, a latent for every feature.
        """
        decoded: Decoded = decoder(s, frozen=True)
        return replace(decoded, log_var=self.log_var)


# --- Var-T-JEPA: the six components, walked through as Algorithm 1 says.


@dataclass(frozen=True, slots=True)
class LatentPath:
    """One walk through q and the predictor: posteriors with the samples taken from them."""

    q_s_x: DiagonalGaussian  # (B, N_CLS + M_ctx, d)
    s_x: Tensor
    q_z: DiagonalGaussian  # (B, d)
    z: Tensor
    q_s_w: DiagonalGaussian  # (B, D, d)
    s_w: Tensor
    p_s_y: DiagonalGaussian  # (B, K, M_trg, d)


class VarTJepa(nn.Module):
    """The networks and the loss terms; no data handling, no optimisation."""

    def __init__(self, shape: TableShape, settings: VarTJepaSettings) -> None:
        super().__init__()
        self.shape = shape
        self.settings = settings
        self.context_encoder = ContextEncoder(shape, settings)
        self.auxiliary_encoder = AuxiliaryEncoder(settings)
        self.target_posterior = TargetPosterior(shape, settings)
        self.predictor = Predictor(shape, settings)
        self.context_decoder = ContextDecoder(shape, settings)
        self.target_decoder = TargetDecoder(shape, settings)
        self.imputer = Imputer(shape, settings) if settings.imputer_depth else None

    def forward(self, w: Rows, masks: FeatureMasks, noise: LatentNoise | None) -> LatentPath:
        """Algorithm 1's forward pass. ``noise`` None takes every latent at its mean."""
        q_s_x = self.q_s_x(w, masks)
        s_x = take(q_s_x, noise.s_x if noise else None)
        q_z = self.q_z(s_x, masks)
        z = take(q_z, noise.z if noise else None)
        q_s_w = self.q_s_w(s_x, z, w, masks)
        s_w = take(q_s_w, noise.s_y if noise else None)
        return LatentPath(q_s_x, s_x, q_z, z, q_s_w, s_w, self.p_s_y(s_x, z, masks))

    def q_s_x(self, w: Rows, masks: FeatureMasks) -> DiagonalGaussian:
        """q(s_x | x), CLS latents first."""
        q: DiagonalGaussian = self.context_encoder(w.num, w.cat, masks.context, self._valid(masks))
        return q

    def q_z(self, s_x: Tensor, masks: FeatureMasks) -> DiagonalGaussian:
        """q(z | s_x)"""
        q: DiagonalGaussian = self.auxiliary_encoder(*self._seen(s_x, masks))
        return q

    def q_s_w(self, s_x: Tensor, z: Tensor, w: Rows, masks: FeatureMasks) -> DiagonalGaussian:
        """q(s_w | s_x, z, w)"""
        q: DiagonalGaussian = self.target_posterior(
            *self._seen(s_x, masks), z, w.num, w.cat, w.observed
        )
        return q

    def p_s_y(self, s_x: Tensor, z: Tensor, masks: FeatureMasks) -> DiagonalGaussian:
        """p(s_y | s_x, z) at the targets' features; w is not among its inputs."""
        seen, valid = self._seen(s_x, masks)
        p: DiagonalGaussian = self.predictor(
            seen, z, masks.context, valid, masks.target, masks.target_valid
        )
        return p

    def r_s_y(self, s_x: Tensor, z: Tensor, masks: FeatureMasks) -> DiagonalGaussian:
        """r(s_y | s_x, z) of the first target view, on a grid of all features.  # (B, D, d)

        Without an imputer it is the objective's own predictor that answers.
        """
        seen, valid = self._seen(s_x, masks)
        first_valid = None if masks.target_valid is None else masks.target_valid[:, :1]
        answer = self.predictor if self.imputer is None else self.imputer
        r: DiagonalGaussian = answer(
            seen, z, masks.context, valid, masks.target[:, :1], first_valid
        )
        return on_grid(r, masks, self.shape.features)

    def predicted_values(self, s: Tensor) -> Decoded:
        """p(value | s) for predicted latents.  # (B, D, d)"""
        decoded: Decoded = (
            self.target_decoder(s)
            if self.imputer is None
            else self.imputer.decode(self.target_decoder, s)
        )
        return decoded

    def predicted_nll(self, r: DiagonalGaussian, w: Rows) -> Tensor:
        """−log ∫ p(value | s) r(s) ds of every cell.  # (B, D, d) → (B, D)

        A numeric head is linear, so its value under s ~ N(m, V) is exactly Gaussian with variance
        u² V + σ². Categories are judged at the latent's mean.
        """
        decoded = self.predicted_values(r.mean)
        read = self.target_decoder.heads.weight.detach().square()  # (F_num, d)
        spread = (r.var[:, : self.shape.numeric] * read).sum(-1)  # (B, F_num)
        log_var = torch.log(spread + decoded.log_var.exp())
        return replace(decoded, log_var=log_var).nll(w.num, w.cat)

    def imputation_loss(self, w: Rows, masks: FeatureMasks, walk: LatentPath) -> Tensor:
        """What the imputer alone learns from: one view's cells, and where their latents are.

        It is given means, as it will be when it fills holes, so that it need not learn to read
        through the posteriors' noise. One view per row is enough and a fraction of the cost.

        Shape: → ``(B,)``.
        """
        target = masks.target[:, 0]  # (B, M_trg)
        valid = None if masks.target_valid is None else masks.target_valid[:, 0]
        r = self.r_s_y(walk.q_s_x.mean, walk.q_z.mean, masks)
        nll = self.predicted_nll(r, w).gather(1, target)
        q = DiagonalGaussian(walk.q_s_w.mean.detach(), walk.q_s_w.log_var.detach())
        kl = q.kl_to(r).gather(1, target)  # (B, M_trg)
        return mean_over(nll + self.settings.imputer_kl * kl, valid)

    def terms(self, w: Rows, masks: FeatureMasks, walk: LatentPath) -> ElboTerms:
        """The five terms of Appendix A.3.1, one value per row.

        Means over features run over the cells that are there: a missing cell is in no term.
        """
        s_x = walk.s_x[:, self.settings.n_cls :]
        at_context = self.context_decoder.decode_context(s_x, masks.context, self.shape.features)
        rec = at_context.nll(w.num, w.cat).gather(1, masks.context)  # (B, M_ctx)
        gen = self.target_decoder(walk.s_w).nll(w.num, w.cat)  # (B, D)
        kl_sx = walk.q_s_x.kl_to_standard()  # (B, N_CLS + M_ctx)
        kl_sx_valid = self._valid(masks)
        if not self.settings.cls_in_context:
            kl_sx, kl_sx_valid = kl_sx[:, self.settings.n_cls :], masks.context_valid
        kl_sy = at_features(walk.q_s_w, masks.target).kl_to(walk.p_s_y)  # (B, K, M_trg)
        return ElboTerms(
            rec=mean_over(rec, masks.context_valid),
            gen=mean_over(gen, w.observed),
            kl_sx=mean_over(kl_sx, kl_sx_valid),
            kl_z=walk.q_z.kl_to_standard(),
            kl_sy=mean_over(kl_sy, masks.target_valid),
        )

    def _seen(self, s_x: Tensor, masks: FeatureMasks) -> tuple[Tensor, Tensor | None]:
        """The context latents that pooling and predictor condition on."""
        if self.settings.cls_in_context:
            return s_x, self._valid(masks)
        return s_x[:, self.settings.n_cls :], masks.context_valid

    def _valid(self, masks: FeatureMasks) -> Tensor | None:
        """Validity of CLS and context tokens together; CLS tokens are always there."""
        if masks.context_valid is None:
            return None
        return nn.functional.pad(masks.context_valid, (self.settings.n_cls, 0), value=True)


def draw_latent_noise(
    model: VarTJepa, rows: int, m_ctx: int, generator: torch.Generator
) -> LatentNoise:
    """Noise of a batch's latents, as one draw."""
    n_context, d = model.settings.n_cls + m_ctx, model.settings.d
    noise = torch.randn(
        (rows, n_context + 1 + model.shape.features, d),
        generator=generator,
        device=generator.device,
    )
    s_x, z, s_w = noise.split([n_context, 1, model.shape.features], dim=1)
    return LatentNoise(s_x, z.squeeze(1), s_w)


def take(q: DiagonalGaussian, noise: Tensor | None) -> Tensor:
    """A sample of q, or its mean."""
    return q.mean if noise is None else q.at_noise(noise)


def at_features(q: DiagonalGaussian, index: Tensor) -> DiagonalGaussian:
    """Q's tokens at the given features.  # (B, D, d), (B, K, M) → (B, K, M, d)"""
    return DiagonalGaussian(*(pick(value, index) for value in (q.mean, q.log_var)))


def on_grid(p: DiagonalGaussian, masks: FeatureMasks, features: int) -> DiagonalGaussian:
    """The first view's tokens at their features' places; N(0, I) where nothing was asked.

    Shape: ``(B, 1, M, d)`` → ``(B, D, d)``.
    """
    shape = (len(p.mean), features + 1, p.mean.shape[-1])
    index = masks.target[:, 0]
    if masks.target_valid is not None:  # padding goes to a place behind the last feature
        index = index.masked_fill(~masks.target_valid[:, 0], features)
    index = index.unsqueeze(-1).expand(-1, -1, shape[-1])
    mean = p.mean.new_zeros(shape).scatter(1, index, p.mean[:, 0])
    log_var = p.log_var.new_zeros(shape).scatter(1, index, p.log_var[:, 0])
    return DiagonalGaussian(mean[:, :features], log_var[:, :features])
