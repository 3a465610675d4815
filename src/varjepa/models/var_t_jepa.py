"""Var-T-JEPA (Appendix A): the six components with q and p side by side, then the whole model.

    (I)   q(s_x | x)            ContextEncoder      (V)   p(x | s_x)         ContextDecoder
    (II)  q(z | s_x)            AuxiliaryEncoder          p(s_x) = p(z) = N(0, I)
    (III) q(s_w | s_x, z, w)    TargetPosterior     (IV)  p(s_y | s_x, z)    Predictor
                                                    (VI)  p(w | s_w)         TargetDecoder

A row w has D features, numeric ones first. The context x is w at ``masks.context`` (m_ctx, M_ctx
features); target y_k is w at ``masks.target[:, k]`` (m_trg^k, M_trg features), k = 1 … K. Every
feature has a latent of width d. s_w (B, D, d) holds those of the whole row; s_{y_k} is s_w at
target k. s_x (B, N_CLS + M_ctx, d) holds latents of N_CLS learned tokens, then of the features of
the context. z (B, d) belongs to the row. Tokens that are not ``valid`` are padding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from varjepa.models.masking import FeatureMasks, masks_from_cells
from varjepa.nn.layers import (
    AttentionPooling,
    BinHeads,
    FeatureHeads,
    FeatureTokenizer,
    GaussianHead,
    PiecewiseTokenizer,
    TableShape,
    mean_over,
)
from varjepa.nn.transformer import Transformer
from varjepa.settings import MIN_NOISE_VARIANCE, Architecture
from varjepa.tables.codec import EncodedTable
from varjepa.variational.elbo import ElboTerms
from varjepa.variational.gaussian import (
    LOG_TWO_PI,
    DiagonalGaussian,
    at_least_float32,
    soft_clamp_log_var,
)
from varjepa.variational.model import LatentNoise

L_POOL = 4
"""Tokens that attention pooling makes of s_x (L_pool); not in the paper."""

AUXILIARY_LAYERS = 2
"""Hidden layers of the auxiliary encoder; not in the paper."""


# --- Tokens at features, and back.


def pick(tokens: Tensor, index: Tensor) -> Tensor:
    """Every view's tokens at its own features, by a gather: its gradient needs no sort.

    Views are gathered apart. One gather for all of them would add up the gradients of features that
    several views share in whatever order a GPU's threads arrive.

    Shape: ``tokens (B, D, width)``, ``index (B, K, M)`` → ``(B, K, M, width)``.
    """
    apart = tokens.unsqueeze(1).expand(-1, index.shape[1], -1, -1)
    return apart.gather(2, index.unsqueeze(-1).expand(-1, -1, -1, tokens.shape[-1]))


def put(tokens: Tensor, index: Tensor, features: int) -> Tensor:
    """Tokens at their features' places, zeros elsewhere.  # (B, M, d), (B, M) → (B, features, d)"""
    grid = tokens.new_zeros((len(tokens), features, tokens.shape[-1]))
    return grid.scatter(1, index.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]), tokens)


def at_features(q: DiagonalGaussian, index: Tensor) -> DiagonalGaussian:
    """Gaussians of the tokens at the given features.  # (B, D, d), (B, K, M) → (B, K, M, d)"""
    return DiagonalGaussian(pick(q.mean, index), pick(q.log_var, index))


def on_grid(p: DiagonalGaussian, masks: FeatureMasks, features: int) -> DiagonalGaussian:
    """The first view's tokens at their features' places; N(0, I) where nothing was asked.

    Shape: ``(B, K, M, d)`` → ``(B, D, d)``.
    """
    index = masks.target[:, 0]
    if masks.target_valid is not None:  # padding goes to a place behind the last feature
        index = index.masked_fill(~masks.target_valid[:, 0], features)
    mean, log_var = (put(value[:, 0], index, features + 1) for value in (p.mean, p.log_var))
    return DiagonalGaussian(mean[:, :features], log_var[:, :features])


def mean_over_first_view(values: Tensor, masks: FeatureMasks) -> Tensor:
    """Mean over the features that the first view asks for.  # (B, D) → (B,)"""
    valid = None if masks.target_valid is None else masks.target_valid[:, 0]
    return mean_over(values.gather(1, masks.target[:, 0]), valid)


# --- The likelihood of a row's cells, which both decoders share.


@dataclass(frozen=True, slots=True)
class CellDistributions:
    """p(π_j | s_j) of every feature j: categorical for categories; for numbers a Gaussian, or a
    probability of every bin together with a mean.
    """

    mean: Tensor  # (B, F_num)
    log_var: Tensor  # (), (F_num,) or (B, F_num): log σ² of the numbers around their mean
    log_probs: list[tuple[Tensor, Tensor]]  # per group of features: (G,), (B, G, L_max)
    bins: BinHeads | None = None
    bin_log_probs: Tensor | None = None  # (B, F_num, T)

    def nll(self, w: EncodedTable) -> Tensor:
        """−log p of every cell, meaningful where the cell is observed.  # (B, D)

        Of a binned number it is −log p(bin) − log N(value; mean, σ²): the first learns the whole
        distribution, the second the mean, which a bin's middle would blur.
        """
        off = w.num - self.mean
        if self.bin_log_probs is not None:
            off = off.clamp(-MAX_OFF, MAX_OFF)
        numeric = 0.5 * (off.square() * (-self.log_var).exp() + self.log_var + LOG_TWO_PI)
        if self.bin_log_probs is not None:
            numeric = numeric + self.bin_nll(w)
        return torch.cat([numeric, *self.level_nll(w)], dim=1)

    def bin_nll(self, w: EncodedTable) -> Tensor:
        """−log p of the bin of every number.  # (B, F_num)"""
        assert self.bins is not None
        assert self.bin_log_probs is not None
        index = self.bins.index(w.num).unsqueeze(-1)
        return -self.bin_log_probs.gather(-1, index).squeeze(-1)

    def level_nll(self, w: EncodedTable) -> list[Tensor]:
        """−log p of the level of every category, one tensor or none.  # (B, F_cat)"""
        parts = []
        for features, log_probs in self.log_probs:
            state = w.cat.index_select(1, features - w.num.shape[1])  # (B, G)
            # MISSING has probability 0; a finite stand-in keeps unobserved cells out of the way
            picked = log_probs.gather(-1, state.unsqueeze(-1)).squeeze(-1)
            parts.append(torch.where(state > 0, -picked, 0.0))
        if len(parts) > 1:  # groups to the order of their features
            grouped = torch.cat([features for features, _ in self.log_probs])
            parts = [torch.cat(parts, dim=1).index_select(1, grouped.argsort())]
        return parts


MAX_OFF = 8.0
"""Standard deviations from the mean that a binned number's Gaussian counts at most: beyond, the
bins alone speak, so that no outlier rules a column."""

_PACE = 10.0
"""How much faster than other parameters a noise moves: Adam would take thousands of steps."""


class Decoder(nn.Module):
    """p(π_j | s_j): one linear head u_j per feature.

    Gaussian numbers share one learned noise variance σ², binned ones have one per feature.
    """

    def __init__(self, shape: TableShape, settings: Architecture) -> None:
        super().__init__()
        self.bins = BinHeads(shape.bins, settings.d) if settings.numbers == "bins" else None
        std = None if self.bins is None else 0.0
        self.heads = FeatureHeads(shape.numeric, shape.levels, settings.d, std)
        start = torch.tensor(math.log(settings.noise_variance))
        if self.bins is not None:
            start = start.expand(shape.numeric).clone() / _PACE
        self.raw_log_var = nn.Parameter(start)
        self.min_log_var = math.log(MIN_NOISE_VARIANCE)

    @property
    def log_var(self) -> Tensor:
        """Log σ², smoothly bounded below.  # () or (F_num,)"""
        pace = 1.0 if self.bins is None else _PACE
        free = soft_clamp_log_var(pace * self.raw_log_var)
        # log(e^free + e^floor), without a constant that would have to be copied to a GPU each time
        return self.min_log_var + softplus(free - self.min_log_var)

    def forward(
        self, s: Tensor, frozen: bool = False, bins_teach: bool = True
    ) -> CellDistributions:
        """A distribution for every feature.  # (B, D, d)

        Frozen heads get no gradient; without ``bins_teach``, latents get none from heads of bins.
        """
        means = at_least_float32(self.heads.means(s, frozen))
        log_probs = self.heads.log_probs(s, frozen)
        of_bins = None if self.bins is None else self.bins(s if bins_teach else s.detach())
        return CellDistributions(means, self.log_var, log_probs, self.bins, of_bins)


def make_tokenizer(
    shape: TableShape, settings: Architecture
) -> FeatureTokenizer | PiecewiseTokenizer:
    """The tokenizer that goes with the likelihood of numbers."""
    if settings.numbers == "bins":
        return PiecewiseTokenizer(shape, settings.d, settings.token_std)
    return FeatureTokenizer(shape.numeric, shape.levels, settings.d)


# --- Context: (I) q(s_x | x) and (V) p(x | s_x).


class ContextEncoder(nn.Module):
    """(I) q(s_x | x): CLS tokens and the context's features through a transformer."""

    def __init__(self, shape: TableShape, settings: Architecture) -> None:
        super().__init__()
        o = settings
        self.tokenizer = make_tokenizer(shape, o)
        self.cls = nn.Parameter(torch.randn(o.n_cls, o.d) * o.token_std)
        self.transformer = Transformer(o.d, o.depth, o.heads, o.ff)
        self.head = GaussianHead(o.d, o.d, o.latent_log_var)

    def forward(self, w: EncodedTable, masks: FeatureMasks) -> DiagonalGaussian:
        """Of w only the context is read.  # → (B, N_CLS + M_ctx, d)"""
        tokens = self.tokenizer(w.num, w.cat, None)  # (B, D, d); missing cells are never context
        x = tokens.gather(1, masks.context.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]))
        sequence = torch.cat([self.cls.expand(len(tokens), -1, -1), x], dim=1)
        return self.head(self.transformer(sequence, masks.valid_with_cls(len(self.cls))))


class ContextDecoder(Decoder):
    """(V) p(x | s_x), with noise σ_x²."""

    def nll_of_context(self, s_x: Tensor, w: EncodedTable, masks: FeatureMasks) -> Tensor:
        """−log p of the context's cells at latents s_x (B, M_ctx, d) without CLS.  # (B, M_ctx)

        Latents are laid out on a grid of all features first, so that every head is computed in one
        batched product.
        """
        grid = put(s_x, masks.context, w.num.shape[1] + w.cat.shape[1])
        return self(grid).nll(w).gather(1, masks.context)


# --- The row's auxiliary latent: (II) q(z | s_x). Its prior p(z) is N(0, I).


class AuxiliaryEncoder(nn.Module):
    """(II) q(z | s_x): pooled context latents through a small perceptron; it never sees targets."""

    def __init__(self, settings: Architecture) -> None:
        super().__init__()
        o = settings
        self.pooling = AttentionPooling(o.d, L_POOL, o.heads)
        widths = [L_POOL * o.d] + [o.d] * AUXILIARY_LAYERS
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.LayerNorm(after), nn.GELU()]
        self.mlp = nn.Sequential(*layers)
        self.head = GaussianHead(widths[-1], o.d, o.latent_log_var)

    def forward(self, s_x: Tensor, valid: Tensor | None) -> DiagonalGaussian:
        """Shape: ``s_x (B, S, d)``, ``valid (B, S)`` → ``(B, d)``."""
        return self.head(self.mlp(self.pooling(s_x, valid).flatten(1)))


# --- Target: (III) q(s_w | s_x, z, w), its conditional prior (IV) p(s_y | s_x, z), (VI) p(w | s_w).


class TargetPosterior(nn.Module):
    """(III) q(s_w | s_x, z, w): the complete row, with pooled context and z as extra tokens.

    It does not depend on the target masks, so one pass serves all K targets. Algorithm 1 repeats it
    K times for the same objective.
    """

    def __init__(self, shape: TableShape, settings: Architecture) -> None:
        super().__init__()
        o = settings
        self.tokenizer = make_tokenizer(shape, o)
        self.cls = nn.Parameter(torch.randn(o.n_cls, o.d) * o.token_std)
        self.pooling = AttentionPooling(o.d, L_POOL, o.heads)
        # a linear map and a type vector each: t = W · latent + e_type is a Linear with bias
        self.pooled_token = nn.Linear(o.d, o.d)
        self.z_token = nn.Linear(o.d, o.d)
        self.transformer = Transformer(o.d, o.depth, o.heads, o.ff)
        self.head = GaussianHead(o.d, o.d, o.latent_log_var)

    def forward(
        self, s_x: Tensor, valid: Tensor | None, z: Tensor, w: EncodedTable
    ) -> DiagonalGaussian:
        """Shape: ``s_x (B, S, d)``, ``valid (B, S)``, ``z (B, d)`` → ``(B, D, d)``."""
        features = self.tokenizer(w.num, w.cat, w.observed)  # (B, D, d)
        cls = self.cls.expand(len(z), -1, -1)
        pooled = self.pooled_token(self.pooling(s_x, valid))
        sequence = torch.cat([cls, pooled, self.z_token(z).unsqueeze(1), features], dim=1)
        return self.head(self.transformer(sequence, keep=features.shape[1]))


class Predictor(nn.Module):
    """(IV) p(s_y | s_x, z): mask tokens at the targets' features, answered from context latents.

    It lives in latent space: w is not an input, features are known by their position vectors only.
    """

    def __init__(self, shape: TableShape, settings: Architecture) -> None:
        super().__init__()
        o = settings
        n_cls = o.n_cls
        width = o.predictor_width
        self.joint_targets = o.joint_targets
        self.context_token = nn.Linear(o.d, width)
        self.z_token = nn.Linear(o.d, width)
        self.mask_token = nn.Parameter(torch.randn(width) * o.token_std)
        self.position = nn.Parameter(torch.randn(shape.features, width) * o.token_std)
        self.cls_position = nn.Parameter(torch.randn(n_cls, width) * o.token_std)
        self.transformer = Transformer(width, o.predictor_depth, o.predictor_heads, o.predictor_ff)
        self.head = GaussianHead(width, o.d, o.latent_log_var)

    def forward(
        self, s_x: Tensor, valid: Tensor | None, z: Tensor, masks: FeatureMasks
    ) -> DiagonalGaussian:
        """All K targets at once, as a batch of B · K sequences.

        Shape: ``s_x (B, S, d)``, ``valid (B, S)``, ``z (B, d)`` → ``(B, K, M_trg, d)``.
        """
        rows, views, size = masks.target.shape
        position = self.position.expand(rows, -1, -1)  # (B, D, width)
        at_context = pick(position, masks.context.unsqueeze(1)).squeeze(1)
        at_target = pick(position, masks.target)
        at_known = torch.cat([self.cls_position.expand(rows, -1, -1), at_context], dim=1)
        from_z = self.z_token(z).unsqueeze(1)  # (B, 1, width)
        known = self.context_token(s_x) + from_z + at_known  # (B, S, width)
        asked = self.mask_token + from_z.unsqueeze(1) + at_target  # (B, K, M_trg, width)
        sequence = torch.cat([known.unsqueeze(1).expand(-1, views, -1, -1), asked], dim=2)
        tokens, n_known = sequence.flatten(0, 1), known.shape[1]
        if self.joint_targets:
            seen = masks.valid_of_views(valid, n_known)
            hidden = self.transformer(tokens, seen, keep=size)
        else:
            seen = masks.context_of_views(valid)
            hidden = self.transformer(tokens, seen, keep=size, known=n_known)
        return self.head(hidden.view(rows, views, size, hidden.shape[-1]))


class TargetDecoder(Decoder):
    """(VI) p(w | s_w), with noise σ_y²."""


# --- Outside the objective: a second, wider predictor that fills and scores cells.

_START_LOG_VAR = -3.0
"""A standard deviation of .22 on a column that spans [0, 1]."""


class Imputer(nn.Module):
    """r(s_y | s_x, z), trained to predict *values*: −log ∫ p(y | s_y) r(s_y | s_x, z) ds_y.

    The objective's own predictor p(s_y | s_x, z) is a prior: it is narrow, and has to be, because
    the posterior's spread is only informative while the prior leaves something open. That makes it
    a poor predictor of values. This one reads the same context latents, is as wide as they are, and
    learns from the cells themselves. Context latents and decoder are detached: no gradient leaves
    the imputer, so the rest of the model is trained exactly as without it.

    Numbers have one noise variance per feature here, because samples need each column's own.
    """

    def __init__(self, shape: TableShape, settings: Architecture) -> None:
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
        self, s_x: Tensor, valid: Tensor | None, z: Tensor, masks: FeatureMasks
    ) -> DiagonalGaussian:
        """As the predictor's."""
        return self.predictor(s_x.detach(), valid, z.detach(), masks)

    def decode(self, decoder: TargetDecoder, s: Tensor) -> CellDistributions:
        """p(value | s) with this module's noise; the decoder gets no gradient.  # (B, D, d)"""
        return replace(decoder(s, frozen=True), log_var=self.log_var)


# --- The whole model.


ALL_ROWS = slice(None)


@dataclass(frozen=True, slots=True)
class LatentPath:
    """One pass through q and the predictor: posteriors with the samples taken from them."""

    q_s_x: DiagonalGaussian  # (B, N_CLS + M_ctx, d)
    s_x: Tensor
    q_z: DiagonalGaussian  # (B, d)
    z: Tensor
    q_s_w: DiagonalGaussian  # (B, D, d)
    s_w: Tensor
    p_s_y: DiagonalGaussian  # (B, K, M_trg, d)

    def of_targets(self, rows: slice) -> LatentPath:
        """The rows whose targets were encoded, where those are not all."""
        if rows == ALL_ROWS:
            return self
        q_s_x, q_z, p_s_y = (q.rows(rows) for q in (self.q_s_x, self.q_z, self.p_s_y))
        return LatentPath(q_s_x, self.s_x[rows], q_z, self.z[rows], self.q_s_w, self.s_w, p_s_y)


class VarTJepa(nn.Module):
    """The networks and the loss terms; no data handling, no optimisation."""

    def __init__(self, shape: TableShape, settings: Architecture) -> None:
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

    def forward(
        self,
        w: EncodedTable,
        masks: FeatureMasks,
        noise: LatentNoise | None,
        targets: slice = ALL_ROWS,
    ) -> LatentPath:
        """Algorithm 1's forward pass. ``noise`` None takes every latent at its mean.

        Only of the rows ``targets`` are the targets encoded: the path has their q_s_w and s_w.
        """
        q_s_x = self.q_s_x(w, masks)
        s_x = sample(q_s_x, noise.s_x if noise else None)
        q_z = self.q_z(s_x, masks)
        z = sample(q_z, noise.z if noise else None)
        q_s_w = self.q_s_w(s_x[targets], z[targets], w.take(targets), masks.rows(targets))
        s_w = sample(q_s_w, noise.s_y[targets] if noise else None)
        p_s_y = self.p_s_y(s_x, z, masks)
        return LatentPath(q_s_x, s_x, q_z, z, q_s_w, s_w, p_s_y)

    def terms(self, w: EncodedTable, masks: FeatureMasks, path: LatentPath) -> ElboTerms:
        """The five terms of Appendix A.3.1, one value per row.

        Means over features run over observed cells: a missing cell is in no term.

        Bins are names without order. A latent of the complete row that learned to tell them apart
        would put 253 as far from 254 as from 0, and rows would differ most by which exact values
        they have; so it learns from the value alone, and the heads of bins from it.
        """
        n_cls = self.settings.n_cls
        rec = self.context_decoder.nll_of_context(path.s_x[:, n_cls:], w, masks)  # (B, M_ctx)
        gen = self.target_decoder(path.s_w, bins_teach=False).nll(w)  # (B, D)
        kl_sx = path.q_s_x.kl_to_standard()  # (B, N_CLS + M_ctx)
        kl_sy = at_features(path.q_s_w, masks.target).kl_to(path.p_s_y)  # (B, K, M_trg)
        return ElboTerms(
            rec=mean_over(rec, masks.context_valid),
            gen=mean_over(gen, w.observed),
            kl_sx=mean_over(kl_sx, masks.valid_with_cls(self.settings.n_cls)),
            kl_z=path.q_z.kl_to_standard(),
            kl_sy=mean_over(kl_sy, masks.target_valid),
        )

    def q_s_x(self, w: EncodedTable, masks: FeatureMasks) -> DiagonalGaussian:
        """q(s_x | x), CLS latents first."""
        return self.context_encoder(w, masks)

    def q_z(self, s_x: Tensor, masks: FeatureMasks) -> DiagonalGaussian:
        """q(z | s_x)"""
        return self.auxiliary_encoder(s_x, masks.valid_with_cls(self.settings.n_cls))

    def q_s_w(
        self, s_x: Tensor, z: Tensor, w: EncodedTable, masks: FeatureMasks
    ) -> DiagonalGaussian:
        """q(s_w | s_x, z, w)"""
        return self.target_posterior(s_x, masks.valid_with_cls(self.settings.n_cls), z, w)

    def p_s_y(self, s_x: Tensor, z: Tensor, masks: FeatureMasks) -> DiagonalGaussian:
        """p(s_y | s_x, z) at the targets' features."""
        return self.predictor(s_x, masks.valid_with_cls(self.settings.n_cls), z, masks)

    def r_s_y(self, s_x: Tensor, z: Tensor, masks: FeatureMasks) -> DiagonalGaussian:
        """r(s_y | s_x, z) of the first target view, on a grid of all features.  # (B, D, d)

        Without an imputer the objective's own predictor answers.
        """
        predictor = self.predictor if self.imputer is None else self.imputer
        first = masks.first_view()
        r = predictor(s_x, first.valid_with_cls(self.settings.n_cls), z, first)
        return on_grid(r, first, self.shape.features)

    def predicted_values(self, s: Tensor) -> CellDistributions:
        """p(value | s) for predicted latents.  # (B, D, d)"""
        if self.imputer is None:
            return self.target_decoder(s)
        return self.imputer.decode(self.target_decoder, s)

    def predicted_cells(self, r: DiagonalGaussian) -> CellDistributions:
        """∫ p(value | s) r(s) ds of every feature.  # (B, D, d)

        A numeric head is linear, so its value under s ~ N(m, V) is exactly Gaussian with variance
        u² V + σ². Categories and binned numbers are taken at the latent's mean.
        """
        decoded = self.predicted_values(r.mean)
        if decoded.bins is not None:
            return decoded
        squared_heads = self.target_decoder.heads.weight.detach().square()  # (F_num, d)
        spread = (r.var[:, : self.shape.numeric] * squared_heads).sum(-1)  # (B, F_num)
        return replace(decoded, log_var=torch.log(spread + decoded.log_var.exp()))

    def predicted_nll(self, r: DiagonalGaussian, w: EncodedTable) -> Tensor:
        """−log ∫ p(value | s) r(s) ds of every cell.  # (B, D, d) → (B, D)"""
        return self.predicted_cells(r).nll(w)

    def prediction_loss(
        self, w: EncodedTable, masks: FeatureMasks, p_s_y: DiagonalGaussian
    ) -> Tensor:
        """−log p(y | s_y) at the mean of p(s_y | s_x, z), of the first view's cells.  # (B,)

        The ELBO trains the predictor to meet the posterior; this trains encoder, predictor and
        decoder to predict values, as they do when cells are filled.
        """
        mean = on_grid(p_s_y, masks, self.shape.features).mean
        return mean_over_first_view(self.target_decoder(mean).nll(w), masks)

    def nll_of_cells(self, w: EncodedTable, asked: Tensor) -> Tensor:
        """−log p of the asked cells given the row's other known cells.  # (B, D) bool → (B, D)"""
        masks = masks_from_cells(w.known & ~asked, asked)
        s_x = self.q_s_x(w, masks).mean
        return self.predicted_nll(self.r_s_y(s_x, self.q_z(s_x, masks).mean, masks), w)

    def imputation_loss(
        self, w: EncodedTable, masks: FeatureMasks, path: LatentPath, kl_weight: float
    ) -> Tensor:
        """The imputer's own loss: −log p of one view's cells, and KL(q ‖ r) of their latents.

        The imputer reads means of s_x and z, as it does when it fills cells, so it need not learn
        to read through the posteriors' noise. One view per row is enough and a fraction of the
        cost.

        Shape: → ``(B,)``.
        """
        r = self.r_s_y(path.q_s_x.mean, path.q_z.mean, masks)
        q = DiagonalGaussian(path.q_s_w.mean.detach(), path.q_s_w.log_var.detach())
        return mean_over_first_view(self.predicted_nll(r, w) + kl_weight * q.kl_to(r), masks)


def sample(q: DiagonalGaussian, noise: Tensor | None) -> Tensor:
    """A sample of q, or its mean."""
    return q.mean if noise is None else q.at_noise(noise)


def draw_latent_noise(
    model: VarTJepa, rows: int, m_ctx: int, generator: torch.Generator
) -> LatentNoise:
    """Noise of a batch's latents, as one call of the generator."""
    n_context, features, d = model.settings.n_cls + m_ctx, model.shape.features, model.settings.d
    shape = (rows, n_context + 1 + features, d)
    noise = torch.randn(shape, generator=generator, device=generator.device)
    s_x, z, s_w = noise.split([n_context, 1, features], dim=1)
    return LatentNoise(s_x, z.squeeze(1), s_w)
