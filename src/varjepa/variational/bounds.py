"""Lower bounds on log p(x, y) for Section 3's model: the ELBO and the tighter IWAE_k.

ELBO = E[IWAE_1] ≤ E[IWAE_k] ≤ E[IWAE_{k+1}] ≤ log p(x, y).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from varjepa.variational.elbo import ElboWeights, weighted_loss
from varjepa.variational.gaussian import DiagonalGaussian
from varjepa.variational.model import VarJepa, draw_noise, infer, terms_of


def elbo(
    model: VarJepa, x: Tensor, y: Tensor, generator: torch.Generator, samples: int = 1
) -> Tensor:
    """ELBO(x, y) per row: closed-form divergences, likelihoods averaged over posterior samples."""
    total = torch.zeros(x.shape[:-1], device=x.device, dtype=x.dtype)
    for _ in range(samples):
        walk = infer(model, x, y, draw_noise(model, x, generator))
        total = total - weighted_loss(terms_of(model, x, y, walk), ElboWeights())
    return total / samples


def log_weight(model: VarJepa, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """Log p(x, y, s_x, z, s_y) − log q(s_x, z, s_y | x, y) at one posterior sample, per row."""
    walk = infer(model, x, y, draw_noise(model, x, generator))
    log_p = (
        DiagonalGaussian.standard_like(walk.s_x).log_prob(walk.s_x)
        + DiagonalGaussian.standard_like(walk.z).log_prob(walk.z)
        + walk.p_s_y.log_prob(walk.s_y)
        + model.p_x(walk.s_x).log_prob(x)
        + model.p_y(walk.s_y).log_prob(y)
    )
    log_q = (
        walk.q_s_x.log_prob(walk.s_x) + walk.q_z.log_prob(walk.z) + walk.q_s_y.log_prob(walk.s_y)
    )
    return log_p - log_q


def iwae(model: VarJepa, x: Tensor, y: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """IWAE_k(x, y) = log (1/k) Σ_i w_i per row; samples come one by one to keep memory flat."""
    if k < 1:
        raise ValueError(f"IWAE needs k ≥ 1, not {k}")
    total = log_weight(model, x, y, generator)
    for _ in range(k - 1):
        total = torch.logaddexp(total, log_weight(model, x, y, generator))
    return total - math.log(k)
