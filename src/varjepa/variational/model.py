"""Section 3's model as six densities, and the two passes through them.

    p(x, y, s_x, z, s_y) = p(s_x) p(z) p(x | s_x) p(s_y | s_x, z) p(y | s_y)
    q(s_x, z, s_y | x, y) = q(s_x | x) q(z | s_x) q(s_y | s_x, z, y)

Training goes through q (:func:`infer`), Section 3.6 through p (:func:`generate`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from varjepa.variational.elbo import ElboTerms, elbo_terms
from varjepa.variational.gaussian import DiagonalGaussian


class VarJepa(Protocol):
    """The six densities of a Var-JEPA, q and p side by side. Priors of s_x and z are N(0, I)."""

    @property
    def d(self) -> int: ...  # dimension of s_x and s_y
    @property
    def d_z(self) -> int: ...  # dimension of z

    def q_s_x(self, x: Tensor) -> DiagonalGaussian: ...
    def q_z(self, s_x: Tensor) -> DiagonalGaussian: ...
    def q_s_y(self, s_x: Tensor, z: Tensor, y: Tensor) -> DiagonalGaussian: ...
    def p_s_y(self, s_x: Tensor, z: Tensor) -> DiagonalGaussian: ...
    def p_x(self, s_x: Tensor) -> DiagonalGaussian: ...
    def p_y(self, s_y: Tensor) -> DiagonalGaussian: ...


@dataclass(frozen=True, slots=True)
class LatentNoise:
    """Standard normal noise for one sample of every latent, drawn in one place."""

    s_x: Tensor  # (..., B, d)
    z: Tensor  # (..., B, d_z)
    s_y: Tensor  # (..., B, d)


def draw_noise(model: VarJepa, x: Tensor, generator: torch.Generator) -> LatentNoise:
    """Noise for every row of x (..., B, D), as one draw from the generator."""
    noise = torch.randn(
        (*x.shape[:-1], 2 * model.d + model.d_z),
        generator=generator,
        device=x.device,
        dtype=x.dtype,
    )
    return split_noise(model, noise)


def split_noise(model: VarJepa, noise: Tensor) -> LatentNoise:
    """Cut one block of noise (..., 2d + d_z) into the three latents' shares."""
    s_x, z, s_y = noise.split([model.d, model.d_z, model.d], dim=-1)
    return LatentNoise(s_x, z, s_y)


@dataclass(frozen=True, slots=True)
class Inference:
    """One pass through q: every posterior, the sample taken from it, and the predictor's answer."""

    q_s_x: DiagonalGaussian
    s_x: Tensor
    q_z: DiagonalGaussian
    z: Tensor
    q_s_y: DiagonalGaussian
    s_y: Tensor
    p_s_y: DiagonalGaussian


def infer(model: VarJepa, x: Tensor, y: Tensor, noise: LatentNoise) -> Inference:
    """One pass through q, x → s_x → z → s_y, and the conditional prior p(s_y | s_x, z)."""
    q_s_x = model.q_s_x(x)
    s_x = q_s_x.at_noise(noise.s_x)
    q_z = model.q_z(s_x)
    z = q_z.at_noise(noise.z)
    q_s_y = model.q_s_y(s_x, z, y)
    s_y = q_s_y.at_noise(noise.s_y)
    return Inference(q_s_x, s_x, q_z, z, q_s_y, s_y, model.p_s_y(s_x, z))


def terms_of(model: VarJepa, x: Tensor, y: Tensor, path: Inference) -> ElboTerms:
    """The five loss terms of one pass, per row."""
    return elbo_terms(
        log_p_x=model.p_x(path.s_x).log_prob(x),
        log_p_y=model.p_y(path.s_y).log_prob(y),
        q_s_x=path.q_s_x,
        q_z=path.q_z,
        q_s_y=path.q_s_y,
        p_s_y=path.p_s_y,
    )


@dataclass(frozen=True, slots=True)
class Generation:
    """One pass through p: a target sampled for a context, with its latents."""

    s_x: Tensor
    z: Tensor
    s_y: Tensor
    p_y: DiagonalGaussian
    y: Tensor


def generate(model: VarJepa, x: Tensor, generator: torch.Generator) -> Generation:
    """Generative inference (Section 3.6): x → s_x → z ~ p(z) → s_y ~ p(s_y | s_x, z) → y.

    No target is seen and z comes from its prior, unlike in training.
    """
    noise = draw_noise(model, x, generator)
    s_x = model.q_s_x(x).at_noise(noise.s_x)
    z = noise.z
    s_y = model.p_s_y(s_x, z).at_noise(noise.s_y)
    p_y = model.p_y(s_y)
    return Generation(s_x, z, s_y, p_y, p_y.rsample(generator))
