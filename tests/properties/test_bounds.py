"""Claims: ELBO and IWAE_k are lower bounds on log p(x, y), in the right order.

1. ELBO ≤ IWAE_5 ≤ IWAE_50 ≤ log p, within Monte Carlo error, in a linear-Gaussian model whose
   log p is known exactly; and IWAE_k approaches log p.
2. With unit weights the loss is −ELBO: its mean equals the mean of log p(x,y,s) − log q(s|x,y).
3. With exact posteriors every sample's weight is log p itself (the gap is zero, not just small).
4. Each weight multiplies its own term and nothing else.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from tests.properties.linear_gaussian import LinearGaussianJepa
from varjepa.variational.bounds import elbo, iwae, log_weight
from varjepa.variational.elbo import ElboTerms, ElboWeights, weighted_loss
from varjepa.variational.gaussian import DiagonalGaussian

ROWS = 4000


@pytest.fixture(params=[0, 1, 2])
def case(request: pytest.FixtureRequest) -> tuple[LinearGaussianJepa, Tensor, Tensor]:
    model = LinearGaussianJepa(seed=request.param)
    x, y = model.sample(ROWS, torch.Generator().manual_seed(request.param + 100))
    return model, x, y


def below(lower: Tensor, upper: Tensor) -> bool:
    """mean(lower) ≤ mean(upper) within 3 standard errors of the paired difference."""
    gap = upper - lower
    return bool(gap.mean() >= -3 * gap.std() / len(gap) ** 0.5)


def test_bounds_are_ordered(case: tuple[LinearGaussianJepa, Tensor, Tensor]) -> None:
    model, x, y = case
    g = torch.Generator().manual_seed(5)
    exact = model.log_p(x, y)
    bounds = [elbo(model, x, y, g), iwae(model, x, y, 5, g), iwae(model, x, y, 50, g), exact]
    for lower, upper in pairwise(bounds):
        assert below(lower, upper)
    gaps = [float((exact - bound).mean()) for bound in bounds[:-1]]
    assert gaps[0] > gaps[1] > gaps[2] > 0  # imperfect posteriors leave a gap, and k closes it
    assert gaps[2] < 0.6 * gaps[0]


def test_loss_with_unit_weights_is_minus_elbo(
    case: tuple[LinearGaussianJepa, Tensor, Tensor],
) -> None:
    model, x, y = case
    g = torch.Generator().manual_seed(6)
    closed_form = elbo(model, x, y, g, samples=20)
    sampled = torch.stack([log_weight(model, x, y, g) for _ in range(20)]).mean(0)
    difference = closed_form - sampled
    assert abs(difference.mean()) <= 4 * difference.std() / ROWS**0.5


class ExactPosterior(LinearGaussianJepa):
    """W = V = B = I-like with one dimension, where the true posterior factors as q does."""

    d, d_z, d_obs = 1, 1, 1

    def __init__(self) -> None:
        super().__init__(seed=0)
        one = torch.ones(1, 1, dtype=torch.float64)
        # y does not depend on s_x or z, so p(s_x, z, s_y | x, y) = p(s_x|x) p(z) p(s_y|y)
        self.W, self.V, self.B, self.C = one, one, 0 * one, 0 * one

    def q_s_x(self, x: Tensor) -> DiagonalGaussian:
        var = 1 / (1 + 1 / self.sigma**2)
        return DiagonalGaussian(x * var / self.sigma**2, torch.full_like(x, var).log())

    def q_z(self, s_x: Tensor) -> DiagonalGaussian:
        return DiagonalGaussian(torch.zeros_like(s_x), torch.zeros_like(s_x))

    def q_s_y(self, s_x: Tensor, z: Tensor, y: Tensor) -> DiagonalGaussian:
        var = 1 / (1 / self.tau**2 + 1 / self.sigma**2)
        return DiagonalGaussian(y * var / self.sigma**2, torch.full_like(y, var).log())


def test_exact_posterior_closes_the_gap() -> None:
    model = ExactPosterior()
    g = torch.Generator().manual_seed(7)
    x, y = model.sample(50, g)
    torch.testing.assert_close(log_weight(model, x, y, g), model.log_p(x, y))
    torch.testing.assert_close(iwae(model, x, y, 3, g), model.log_p(x, y))


def test_iwae_refuses_no_samples() -> None:
    model = LinearGaussianJepa(seed=0)
    x, y = model.sample(2, torch.Generator())
    with pytest.raises(ValueError, match="k ≥ 1"):
        iwae(model, x, y, 0, torch.Generator())


@pytest.mark.parametrize("name", [field.name for field in fields(ElboTerms)])
def test_each_weight_scales_its_own_term(name: str) -> None:
    terms = ElboTerms(*(torch.full((2,), float(i)) for i in (1, 2, 3, 4, 5)))
    more = ElboWeights(**{name: 3.0})
    gain = weighted_loss(terms, more) - weighted_loss(terms, ElboWeights())
    torch.testing.assert_close(gain, 2.0 * getattr(terms, name))
    assert {f.name for f in fields(ElboTerms)} == {f.name for f in fields(ElboWeights)}


def test_all_weights_zero_is_refused() -> None:
    terms = ElboTerms(*(torch.ones(2) for _ in range(5)))
    with pytest.raises(ValueError, match="nothing to minimise"):
        weighted_loss(terms, ElboWeights(0, 0, 0, 0, 0))
