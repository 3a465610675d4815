"""Cells from other cells: x → s_x → z → r(s_y | s_x, z) → decoder, never through q(s_w | …, w).

The target posterior sees the row, so an imputation through it would copy what it should predict.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from varjepa.masking import FeatureMasks
from varjepa.models.rows import Rows
from varjepa.models.var_t_jepa.model import VarTJepa
from varjepa.variational.gaussian import DiagonalGaussian


@dataclass(frozen=True, slots=True)
class Cells:
    """Values for every feature, meaningful at the cells that were asked for."""

    num: Tensor  # (B, F_num)
    cat: Tensor  # (B, F_cat)


@torch.no_grad()
def predict_latents(
    model: VarTJepa,
    rows: Rows,
    masks: FeatureMasks,
    z_from_prior: torch.Generator | None = None,
) -> DiagonalGaussian:
    """r(s_y | s_x, z) of one target view at the means of s_x and z, on a grid of all features.

    With a generator, z is drawn from its prior N(0, I) instead.

    Shape: → ``(B, D, d)``; N(0, I) where nothing was asked.
    """
    s_x = model.q_s_x(rows, masks).mean
    q_z = model.q_z(s_x, masks)
    if z_from_prior is None:
        return model.r_s_y(s_x, q_z.mean, masks)
    z = DiagonalGaussian.standard_like(q_z.mean).rsample(z_from_prior)
    return model.r_s_y(s_x, z, masks)


@torch.no_grad()
def likely_cells(model: VarTJepa, latents: DiagonalGaussian) -> Cells:
    """The decoder's mean and most likely level at the latents' means."""
    decoded = model.predicted_values(latents.mean)
    cat = _levels(model, decoded.log_probs, len(latents.mean))
    return Cells(decoded.mean, cat)


@torch.no_grad()
def draw_cells(model: VarTJepa, latents: DiagonalGaussian, generator: torch.Generator) -> Cells:
    """A draw: latents from the predictor, then values from the decoder's distributions."""
    decoded = model.predicted_values(latents.rsample(generator))
    noise = torch.randn(decoded.mean.shape, generator=generator, device=generator.device)
    noisy = [(features, _gumbel(log_probs, generator)) for features, log_probs in decoded.log_probs]
    num = decoded.mean + (0.5 * decoded.log_var).exp() * noise
    return Cells(num, _levels(model, noisy, len(num)))


def _levels(model: VarTJepa, scores: list[tuple[Tensor, Tensor]], rows: int) -> Tensor:
    """The best state of every categorical feature.  # (B, F_cat)"""
    device = next(model.parameters()).device
    cat = torch.zeros(rows, len(model.shape.levels), dtype=torch.long, device=device)
    for features, score in scores:
        cat[:, features - model.shape.numeric] = score.argmax(-1)
    return cat


def _gumbel(log_probs: Tensor, generator: torch.Generator) -> Tensor:
    """Argmax of log p + Gumbel noise is a draw from p."""
    uniform = torch.rand(log_probs.shape, generator=generator, device=generator.device)
    return log_probs - (-uniform.clamp_min(1e-20).log()).log()
