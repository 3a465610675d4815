"""The one distribution every latent of Section 3 uses: a Gaussian with diagonal covariance.

All log-densities and divergences sum over the last axis (the latent dimension) and keep the
others, so the same code serves a batch ``(B, d)``, tokens ``(B, M, d)`` and stacked runs
``(R, B, d)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

LOG_VAR_BOUND = 10.0
"""Log-variances stay within ±10. Wider ranges overflow: KL(q‖p) divides by a learned variance, and
e^{30} in a squared gradient makes Adam's second moment infinite without ever producing a NaN."""

LOG_TWO_PI = math.log(2.0 * math.pi)


Scale = Literal["log_var", "log_std", "softplus_std"]
"""What a network's unbounded output stands for. The family of densities is the same; the pace at
which variances shrink under gradient descent, compared with means growing, is not."""

SCALES: tuple[Scale, ...] = get_args(Scale)


def soft_clamp_log_var(raw: Tensor, scale: Scale = "log_var") -> Tensor:
    """Turn any real number into a log-variance within ±10, smoothly.

    A hard clamp has no gradient outside its range, so a unit that once left could never return.
    """
    raw = at_least_float32(raw)
    if scale == "log_std":
        raw = 2.0 * raw
    elif scale == "softplus_std":
        raw = 2.0 * log_softplus(raw)
    return LOG_VAR_BOUND * torch.tanh(raw / LOG_VAR_BOUND)


def log_softplus(raw: Tensor) -> Tensor:
    """Log log(1 + e^raw) without underflow: for very negative raw it is raw itself."""
    safe = raw.clamp_min(-15.0)
    return torch.where(raw < -15.0, raw, nn.functional.softplus(safe).log())


@dataclass(frozen=True, slots=True)
class DiagonalGaussian:
    """N(mean, diag(exp(log_var))).

    Half-precision parameters are widened to float32 on entry: exp, KL and log-densities are not
    safe in 16 bits. float64 is kept, which is what the property tests use.

    Shape: ``mean`` and ``log_var`` are ``(..., d)``; scalars per row are ``(...)``.

    Examples:
        >>> q = DiagonalGaussian(torch.zeros(3, 2), torch.zeros(3, 2))
        >>> q.kl_to_standard().tolist()
        [0.0, 0.0, 0.0]
    """

    mean: Tensor  # (..., d)
    log_var: Tensor  # (..., d)

    def __post_init__(self) -> None:
        if self.mean.shape != self.log_var.shape:
            raise ValueError(
                f"mean {tuple(self.mean.shape)} and log_var {tuple(self.log_var.shape)} "
                "must have the same shape"
            )
        object.__setattr__(self, "mean", at_least_float32(self.mean))
        object.__setattr__(self, "log_var", at_least_float32(self.log_var))

    @classmethod
    def from_head(cls, head: Tensor, scale: Scale = "log_var") -> DiagonalGaussian:
        """Split a network's output ``(..., 2d)`` into mean and soft-clamped log-variance."""
        mean, raw = head.chunk(2, dim=-1)
        return cls(mean, soft_clamp_log_var(raw, scale))

    @classmethod
    def standard_like(cls, latent: Tensor) -> DiagonalGaussian:
        """N(0, I) of a latent's shape: the prior of s_x and z."""
        zeros = torch.zeros_like(latent)
        return cls(zeros, zeros)

    @property
    def var(self) -> Tensor:
        return self.log_var.exp()

    @property
    def std(self) -> Tensor:
        return (0.5 * self.log_var).exp()

    def rows(self, here: slice) -> DiagonalGaussian:
        """Those of some rows, which are the first axis."""
        return DiagonalGaussian(self.mean[here], self.log_var[here])

    def at_noise(self, noise: Tensor) -> Tensor:
        """The reparameterised sample mean + std · noise, for noise drawn elsewhere."""
        return self.mean + self.std * noise

    def rsample(self, generator: torch.Generator) -> Tensor:
        """One reparameterised sample; gradients flow to mean and log_var."""
        noise = torch.randn(
            self.mean.shape, generator=generator, device=self.mean.device, dtype=self.mean.dtype
        )
        return self.at_noise(noise)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log N(value; mean, var), summed over the last axis."""
        squared = (value - self.mean).square() * (-self.log_var).exp()
        return -0.5 * (squared + self.log_var + LOG_TWO_PI).sum(-1)

    def entropy(self) -> Tensor:
        """−E_q[log q]."""
        return 0.5 * (self.log_var + LOG_TWO_PI + 1.0).sum(-1)

    def expected_log_prob(self, p: DiagonalGaussian) -> Tensor:
        """E_q[log p] in closed form (the negative cross-entropy of q and p)."""
        squared = (self.var + (self.mean - p.mean).square()) * (-p.log_var).exp()
        return -0.5 * (squared + p.log_var + LOG_TWO_PI).sum(-1)

    def kl_to_standard(self) -> Tensor:
        """KL(q ‖ N(0, I))."""
        # expm1(v) − v instead of e^v − 1 − v: exact where the posterior sits on the prior
        return 0.5 * (torch.expm1(self.log_var) - self.log_var + self.mean.square()).sum(-1)

    def kl_to(self, p: DiagonalGaussian) -> Tensor:
        """KL(q ‖ p) for another diagonal Gaussian p."""
        gap = self.log_var - p.log_var
        squared = (self.mean - p.mean).square() * (-p.log_var).exp()
        return 0.5 * (torch.expm1(gap) - gap + squared).sum(-1)


def at_least_float32(value: Tensor) -> Tensor:
    """Widen 16-bit floats; leave the others as they are."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
