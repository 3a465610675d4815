"""Var-T-JEPA: the six components, walked through as Algorithm 1 says."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from varjepa.masking import FeatureMasks
from varjepa.models.rows import Rows, TableShape, mean_over
from varjepa.models.var_t_jepa.auxiliary_encoder import AuxiliaryEncoder
from varjepa.models.var_t_jepa.context_decoder import ContextDecoder
from varjepa.models.var_t_jepa.context_encoder import ContextEncoder
from varjepa.models.var_t_jepa.decoder import Decoded
from varjepa.models.var_t_jepa.imputer import Imputer
from varjepa.models.var_t_jepa.predictor import Predictor, pick
from varjepa.models.var_t_jepa.settings import VarTJepaSettings
from varjepa.models.var_t_jepa.target_decoder import TargetDecoder
from varjepa.models.var_t_jepa.target_posterior import TargetPosterior
from varjepa.variational.elbo import ElboTerms
from varjepa.variational.gaussian import DiagonalGaussian
from varjepa.variational.model import LatentNoise


@dataclass(frozen=True, slots=True)
class Walk:
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

    def forward(self, w: Rows, masks: FeatureMasks, noise: LatentNoise | None) -> Walk:
        """Algorithm 1's forward pass. ``noise`` None takes every latent at its mean."""
        q_s_x = self.q_s_x(w, masks)
        s_x = take(q_s_x, noise.s_x if noise else None)
        q_z = self.q_z(s_x, masks)
        z = take(q_z, noise.z if noise else None)
        q_s_w = self.q_s_w(s_x, z, w, masks)
        s_w = take(q_s_w, noise.s_y if noise else None)
        return Walk(q_s_x, s_x, q_z, z, q_s_w, s_w, self.p_s_y(s_x, z, masks))

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

    def imputation_loss(self, w: Rows, masks: FeatureMasks, walk: Walk) -> Tensor:
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

    def terms(self, w: Rows, masks: FeatureMasks, walk: Walk) -> ElboTerms:
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
