"""SIGReg: how far an embedding sample is from N(0, I), seen along random directions.

For a unit direction a and a frequency t the empirical characteristic function (ECF) of the
projections a·s_n is compared with that of a standard normal, exp(−t²/2).

Both forms here differ only in how the squared differences are averaged:

- :func:`sigreg_mse`, the paper's: the plain mean over directions and frequencies;
- :func:`sigreg_lejepa`, LeJEPA's: an integral over t weighted by exp(−t²/2), times N.

Their values differ by orders of magnitude, so a strength λ does not carry over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SigregSettings:
    """Appendix D.6.5 of the paper."""

    directions: int = 64
    """how many random unit directions"""
    frequencies: int = 64
    """how many values of t; a square number, see :func:`characteristic_function`"""
    max_frequency: float = 5.0
    """t covers (0, max_frequency] in equal cells and is taken at their midpoints, so that the plain
    mean is the midpoint rule of the integral: on a perfect sample E[SIGReg-MSE] = 0.823 / N"""

    def __post_init__(self) -> None:
        if self.directions < 1 or self.max_frequency <= 0:
            raise ValueError("SIGReg needs at least one direction and a positive max_frequency")
        if self.frequencies < 1 or math.isqrt(self.frequencies) ** 2 != self.frequencies:
            raise ValueError(f"frequencies must be a square number, not {self.frequencies}")


def frequency_grid(settings: SigregSettings, like: Tensor) -> Tensor:
    """The frequencies t, ascending.  # (T,)"""
    cells = torch.arange(settings.frequencies, device=like.device, dtype=like.dtype)
    return (cells + 0.5) * (settings.max_frequency / settings.frequencies)


def draw_directions(
    dimension: int, settings: SigregSettings, generator: torch.Generator, like: Tensor
) -> Tensor:
    """Directions uniform on the unit sphere, drawn anew for every step.  # (A, d)"""
    raw = torch.randn(
        (settings.directions, dimension), generator=generator, device=like.device, dtype=like.dtype
    )
    return raw / raw.norm(dim=-1, keepdim=True)


def sigreg_mse(s: Tensor, directions: Tensor, settings: SigregSettings) -> Tensor:
    """The paper's SIGReg-MSE: mean over directions and frequencies of ``|ECF(t) − exp(−t²/2)|²``.

    Shape: ``s (..., N, d)``, ``directions (..., A, d)`` → ``(...)``.
    """
    return _squared_gap(s, directions, settings).mean((-2, -1))


def sigreg_lejepa(s: Tensor, directions: Tensor, settings: SigregSettings) -> Tensor:
    """LeJEPA's form: mean over a of ``N ∫ |ECF(t) − exp(−t²/2)|² exp(−t²/2) dt`` within ±t_max.

    The integrand is even in t, hence twice the midpoint rule over (0, t_max].
    """
    t = frequency_grid(settings, s)
    step = settings.max_frequency / settings.frequencies
    weight = 2.0 * step * torch.exp(-0.5 * t.square())  # (T,)
    gap = _squared_gap(s, directions, settings)  # (..., A, T)
    return s.shape[-2] * (gap * weight).sum(-1).mean(-1)


def _squared_gap(s: Tensor, directions: Tensor, settings: SigregSettings) -> Tensor:
    real, imaginary = characteristic_function(s, directions, settings)
    normal = torch.exp(-0.5 * frequency_grid(settings, s).square())  # (T,)
    return (real - normal).square() + imaginary.square()  # (..., A, T)


def characteristic_function(
    s: Tensor, directions: Tensor, settings: SigregSettings, chunk_rows: int = 1024
) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of the ECF of s along each direction, at each frequency.

    With the frequency index written as k = r·i + j (r = √T), exp(i t_k p) factors into
    exp(i coarse_i p) · exp(i fine_j p): 2√T sines and cosines per projection instead of 2T, and the
    mean over rows becomes one small matrix product.

    Shape: ``s (..., N, d)``, ``directions (..., A, d)`` → two of ``(..., A, T)``.
    """
    r = math.isqrt(settings.frequencies)
    step = settings.max_frequency / settings.frequencies
    index = torch.arange(r, device=s.device, dtype=s.dtype)
    total = _WaveProducts.apply(s, directions, index * (r * step), (index + 0.5) * step, chunk_rows)
    mean = total / s.shape[-2]  # (..., A, 2r, 2r)
    cos_cos, cos_sin = mean[..., :r, :r], mean[..., :r, r:]
    sin_cos, sin_sin = mean[..., r:, :r], mean[..., r:, r:]
    real = (cos_cos - sin_sin).flatten(-2)  # (..., A, T), index r·i + j is ascending in t
    imaginary = (sin_cos + cos_sin).flatten(-2)
    return real, imaginary


class _WaveProducts(torch.autograd.Function):
    """Σ_n waves(coarse · p_n) waves(fine · p_n)ᵀ, with p = directions · s and waves = (cos, sin).

    Rows are taken in chunks and the waves are computed again in the backward pass: memory holds one
    chunk, whatever N. Directions are random, so no gradient is returned for them.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, s: Tensor, directions: Tensor, coarse: Tensor, fine: Tensor, chunk_rows: int
    ) -> Tensor:
        ctx.save_for_backward(s, directions, coarse, fine)
        ctx.chunk_rows = chunk_rows
        side = 2 * len(coarse)
        total = s.new_zeros((*directions.shape[:-1], side, side))  # (..., A, 2r, 2r)
        for rows in s.split(chunk_rows, dim=-2):
            p = directions @ rows.transpose(-1, -2)  # (..., A, n)
            total += _waves(p, coarse) @ _waves(p, fine).transpose(-1, -2)
        return total

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
        s, directions, coarse, fine = ctx.saved_tensors
        r = len(coarse)
        grad_s = torch.empty_like(s)
        for rows, grad_rows in zip(
            s.split(ctx.chunk_rows, dim=-2), grad_s.split(ctx.chunk_rows, dim=-2), strict=True
        ):
            p = directions @ rows.transpose(-1, -2)  # (..., A, n)
            left, right = _waves(p, coarse), _waves(p, fine)  # (..., A, 2r, n)
            grad_p = torch.zeros_like(p)
            for wave, rates, grad_wave in (
                (left, coarse, grad @ right),
                (right, fine, grad.transpose(-1, -2) @ left),
            ):
                # d cos(ap)/dp = −a sin(ap), d sin(ap)/dp = a cos(ap)
                slope = wave[..., :r, :] * grad_wave[..., r:, :]
                slope -= wave[..., r:, :] * grad_wave[..., :r, :]
                grad_p += (rates @ slope.flatten(0, -3)).view_as(grad_p)
            grad_rows.copy_(grad_p.transpose(-1, -2) @ directions)
        return grad_s, None, None, None, None


def _waves(p: Tensor, rates: Tensor) -> Tensor:
    """Cos and sin of rate · p, stacked.  # (..., A, n) → (..., A, 2r, n)"""
    # sin(x) = cos(x − π/2): one pass over one array, which is what the time goes into
    twice = torch.cat([rates, rates]).unsqueeze(-1)  # (2r, 1)
    lag = torch.zeros_like(twice)
    lag[len(rates) :] = 0.5 * math.pi
    return (p.unsqueeze(-2) * twice).sub_(lag).cos_()
