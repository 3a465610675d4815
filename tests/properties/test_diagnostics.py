"""Claims about the aggregated latent distribution.

1. KL of the matched Gaussian equals torch's multivariate KL, and is 0 where the moments match.
2. Surgery identity on a mixture: expected KL = aggregated KL + mutual information, within error.
3. Well separated posteriors carry log N nats; identical posteriors carry none, and then the
   aggregated KL is the expected KL.
4. The two "aggregated KLs" are different numbers on a bimodal aggregate.
5. Norms, covariance deviation and active units on samples where the answer is known.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from varjepa.variational.diagnostics import (
    active_units,
    covariance,
    covariance_deviation,
    elbo_surgery,
    kl_of_matched_gaussian,
    mean_norm,
)
from varjepa.variational.gaussian import DiagonalGaussian


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_matched_gaussian_equals_torch() -> None:
    g = generator()
    mix = torch.randn(4, 4, generator=g, dtype=torch.float64)
    s = torch.randn(500, 4, generator=g, dtype=torch.float64) @ mix + 0.7
    expected = kl_divergence(
        MultivariateNormal(s.mean(0), covariance(s)),
        MultivariateNormal(torch.zeros(4).double(), torch.eye(4).double()),
    )
    torch.testing.assert_close(kl_of_matched_gaussian(s), expected)
    torch.testing.assert_close(covariance(s), s.T.cov())


def test_matched_gaussian_is_zero_only_at_the_standard_moments() -> None:
    g = generator()
    s = torch.randn(500, 3, generator=g, dtype=torch.float64)
    s = s - s.mean(0)
    whitened = s @ torch.linalg.inv(torch.linalg.cholesky(covariance(s))).T
    torch.testing.assert_close(
        kl_of_matched_gaussian(whitened), torch.tensor(0.0).double(), atol=1e-9, rtol=0
    )
    assert kl_of_matched_gaussian(whitened + 0.1) > 0.01
    assert kl_of_matched_gaussian(1.1 * whitened) > 0.01


def test_a_collapsed_dimension_is_infinitely_far() -> None:
    s = torch.randn(100, 3, generator=generator())
    copied = s.clone()
    copied[:, 1] = copied[:, 0]
    s[:, 1] = 0.0
    assert kl_of_matched_gaussian(s) == math.inf
    assert kl_of_matched_gaussian(copied) == math.inf


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_surgery_identity(seed: int) -> None:
    g = generator(seed)
    q = DiagonalGaussian(
        1.5 * torch.randn(200, 3, generator=g, dtype=torch.float64),
        torch.randn(200, 3, generator=g, dtype=torch.float64) - 1.0,
    )
    split = elbo_surgery(q, g, samples=100)
    right = split.aggregated_kl + split.mutual_information
    assert split.standard_error < 0.02
    assert abs(right - split.expected_kl) <= 4 * split.standard_error
    assert split.aggregated_kl > 0
    assert 0 < split.mutual_information < math.log(200)


def test_both_halves_equal_quadrature() -> None:
    """The sum above holds for any mixture density; each half alone does not."""
    mean = torch.tensor([[-1.0], [0.4], [2.0]], dtype=torch.float64)
    log_var = torch.tensor([[-1.0], [0.3], [-0.5]], dtype=torch.float64)
    s = torch.linspace(-12, 12, 20_001, dtype=torch.float64)
    each = torch.distributions.Normal(mean, (0.5 * log_var).exp()).log_prob(s)  # (3, grid)
    mixture = torch.logsumexp(each, 0) - math.log(3)
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(s)
    aggregated = torch.trapezoid(mixture.exp() * (mixture - prior), s)
    information = torch.trapezoid((each.exp() * (each - mixture)).mean(0), s)
    split = elbo_surgery(DiagonalGaussian(mean, log_var), generator(), samples=40_000)
    torch.testing.assert_close(split.aggregated_kl, aggregated, atol=0.01, rtol=0)
    torch.testing.assert_close(split.mutual_information, information, atol=0.01, rtol=0)


def test_separated_posteriors_carry_log_n() -> None:
    far = torch.arange(8.0).unsqueeze(-1) * 100
    split = elbo_surgery(DiagonalGaussian(far, torch.zeros_like(far)), generator(), chunk_rows=3)
    torch.testing.assert_close(split.mutual_information, torch.tensor(math.log(8)))


def test_identical_posteriors_carry_nothing() -> None:
    same = DiagonalGaussian(torch.full((50, 2), 0.8), torch.full((50, 2), -1.0))
    split = elbo_surgery(same, generator(), samples=400)
    torch.testing.assert_close(split.mutual_information, torch.tensor(0.0), atol=1e-5, rtol=0)
    assert abs(split.aggregated_kl - split.expected_kl) <= 4 * split.standard_error


def test_the_two_aggregated_kls_differ_on_two_modes() -> None:
    # ±0.995 with little noise: mean 0, variance 1, and nothing like a normal
    sign = torch.tensor([1.0, -1.0]).repeat(200).unsqueeze(-1)
    q = DiagonalGaussian(0.995 * sign, torch.full_like(sign, math.log(0.01)))
    matched = kl_of_matched_gaussian(q.rsample(generator()))
    truth = elbo_surgery(q, generator(), samples=50).aggregated_kl
    assert matched < 0.01
    assert truth > 1.0


def test_surgery_refuses_stacked_posteriors() -> None:
    q = DiagonalGaussian(torch.zeros(2, 5, 3), torch.zeros(2, 5, 3))
    with pytest.raises(ValueError, match=r"\(N, d\)"):
        elbo_surgery(q, generator())


def test_norms_and_active_units() -> None:
    s = torch.tensor([[3.0, 4.0], [3.0, 4.0], [3.0, 4.0]])
    assert mean_norm(s) == 5.0
    torch.testing.assert_close(covariance_deviation(s), torch.tensor(2.0).sqrt())
    means = torch.stack([torch.linspace(-1, 1, 50), torch.full((50,), 2.0)], -1)
    assert active_units(means) == 1
    assert active_units(torch.stack([means, 0 * means])).tolist() == [1, 0]
