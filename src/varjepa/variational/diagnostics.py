"""What the aggregated latent distribution q(s) = E_x q(s | x) looks like (Table 1, Section 3.7).

Two quantities are called "aggregated KL" in the literature, and they are not the same number:

- :func:`kl_of_matched_gaussian`, the paper's KL_agg: KL of the Gaussian with the sample's mean and
  covariance. Cheap, blind to anything but two moments.
- :func:`elbo_surgery`: KL of the mixture of posteriors itself and the mutual
  information, by Monte Carlo. Only these two satisfy the surgery identity, Eq. (elbo-surgery-sx).

Functions of samples accept ``(..., N, d)`` and return ``(...)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from varjepa.variational.gaussian import DiagonalGaussian

ACTIVE_VARIANCE = 0.01
"""A unit is active when its posterior mean varies more than this across rows (Burda et al.)."""


def mean_norm(s: Tensor) -> Tensor:
    """‖E[s]‖₂."""
    return s.mean(-2).norm(dim=-1)


def covariance(s: Tensor) -> Tensor:
    """Unbiased sample covariance.  # (..., d, d)"""
    centred = s - s.mean(-2, keepdim=True)
    return centred.transpose(-1, -2) @ centred / (s.shape[-2] - 1)


def covariance_deviation(s: Tensor) -> Tensor:
    """‖Cov(s) − I‖_F."""
    cov = covariance(s)
    identity = torch.eye(cov.shape[-1], device=s.device, dtype=s.dtype)
    return (cov - identity).norm(dim=(-2, -1))


def kl_of_matched_gaussian(s: Tensor) -> Tensor:
    """KL(N(mean(s), Cov(s)) ‖ N(0, I)); +inf where the covariance is singular."""
    wide = s.double()
    mean = wide.mean(-2)
    eigenvalues = torch.linalg.eigvalsh(covariance(wide))  # (..., d), ascending
    # an eigenvalue that is rounding error of the largest one is zero
    rounding = 16 * s.shape[-1] * torch.finfo(torch.float64).eps * eigenvalues[..., -1:]
    eigenvalues = torch.where(eigenvalues <= rounding, 0.0, eigenvalues)
    kl = 0.5 * ((eigenvalues - 1.0 - eigenvalues.log()).sum(-1) + mean.square().sum(-1))
    return kl.to(s.dtype)


def active_units(posterior_mean: Tensor) -> Tensor:
    """How many latent dimensions carry information about the row."""
    return (posterior_mean.var(-2) > ACTIVE_VARIANCE).sum(-1)


@dataclass(frozen=True, slots=True)
class ElboSurgery:
    """E_x KL(q(s|x) ‖ p) = KL(q(s) ‖ p) + I(x; s), with p = N(0, I), over the given rows."""

    expected_kl: Tensor
    """left side, in closed form"""
    aggregated_kl: Tensor
    """KL of the mixture of posteriors to N(0, I), Monte Carlo"""
    mutual_information: Tensor
    """I(x; s) under q, for x uniform over the rows, Monte Carlo; at most log N"""
    standard_error: Tensor
    """of aggregated_kl + mutual_information, the right side"""


def elbo_surgery(
    q: DiagonalGaussian, generator: torch.Generator, samples: int = 16, chunk_rows: int = 256
) -> ElboSurgery:
    """Split the expected KL of N posteriors into mismatch and information.

    q(s) is the exact mixture over all N rows, so a sample costs N log-densities; rows are taken in
    chunks to bound memory.

    Shape: ``q`` holds ``(N, d)``; the results are scalars.
    """
    if q.mean.dim() != 2:
        raise ValueError(f"expected one posterior per row, (N, d), not {tuple(q.mean.shape)}")
    mismatch, information = [], []  # log q(s)/p(s), log q(s|x)/q(s)
    for _ in range(samples):
        s = q.rsample(generator)  # (N, d)
        own = q.log_prob(s)  # (N,)
        mixture = torch.cat([_log_mixture(rows, q) for rows in s.split(chunk_rows)])  # (N,)
        standard = DiagonalGaussian.standard_like(s).log_prob(s)
        mismatch.append(mixture - standard)
        information.append(own - mixture)
    mismatch_all, information_all = torch.stack(mismatch), torch.stack(information)  # (S, N)
    # rows are fixed, only the noise is random: the error is that of S draws within each row
    per_draw = (mismatch_all + information_all).mean(-1)  # (S,)
    error = per_draw.std() / math.sqrt(samples) if samples > 1 else per_draw.new_tensor(math.nan)
    return ElboSurgery(
        expected_kl=q.kl_to_standard().mean(),
        aggregated_kl=mismatch_all.mean(),
        mutual_information=information_all.mean(),
        standard_error=error,
    )


def _log_mixture(s: Tensor, q: DiagonalGaussian) -> Tensor:
    """Log (1/N) Σ_n q(s | x_n) for each row of s."""
    each = DiagonalGaussian(q.mean.unsqueeze(0), q.log_var.unsqueeze(0)).log_prob(s.unsqueeze(1))
    return torch.logsumexp(each, dim=1) - math.log(q.mean.shape[0])
