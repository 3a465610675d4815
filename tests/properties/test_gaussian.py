"""Claims: the diagonal Gaussian's closed forms are right.

1. KL(q ‖ N(0, I)), KL(q ‖ p), log-density and entropy equal torch.distributions to 1e-6, gradients
   too, for log-variances up to the clamp.
2. Both KLs equal a Monte Carlo mean within 5 standard errors, for log-variances within ±4
   (beyond, a mean of ratios of e^{20} has no usable error).
3. KL is ≥ 0, and exactly 0 from a Gaussian to itself.
4. (a) prediction + (b) entropy = −KL_sy.
5. The soft clamp stays inside ±10, is strictly monotone, and never kills the gradient inside ±30.
6. float16 and bfloat16 parameters are computed in float32.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from tests.properties.strategies import gaussians
from varjepa.variational.elbo import split_kl_sy
from varjepa.variational.gaussian import LOG_VAR_BOUND, DiagonalGaussian, soft_clamp_log_var


def reference(q: DiagonalGaussian) -> Independent:
    return Independent(Normal(q.mean, q.log_var.mul(0.5).exp()), 1)


def standard(q: DiagonalGaussian) -> Independent:
    return Independent(Normal(torch.zeros_like(q.mean), torch.ones_like(q.mean)), 1)


def gradients(value: Tensor, *of: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(value, of, retain_graph=True))


def assert_same_with_gradients(ours: Tensor, theirs: Tensor, *of: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    for mine, their in zip(gradients(ours, *of), gradients(theirs, *of), strict=True):
        torch.testing.assert_close(mine, their, rtol=1e-6, atol=1e-6)


@given(gaussians())
def test_kl_to_standard_matches_torch(q: DiagonalGaussian) -> None:
    theirs = kl_divergence(reference(q), standard(q))
    assert_same_with_gradients(q.kl_to_standard(), theirs, q.mean, q.log_var)


@given(gaussians(), gaussians())
def test_kl_between_matches_torch(q: DiagonalGaussian, p: DiagonalGaussian) -> None:
    theirs = kl_divergence(reference(q), reference(p))
    assert_same_with_gradients(q.kl_to(p), theirs, q.mean, q.log_var, p.mean, p.log_var)


@given(gaussians(), st.lists(st.floats(-5, 5), min_size=3, max_size=3))
def test_log_prob_and_entropy_match_torch(q: DiagonalGaussian, at: list[float]) -> None:
    value = torch.tensor(at, dtype=torch.float64)
    assert_same_with_gradients(q.log_prob(value), reference(q).log_prob(value), q.mean, q.log_var)
    torch.testing.assert_close(q.entropy(), reference(q).entropy(), rtol=1e-9, atol=1e-9)


@given(gaussians(bound=4.0), gaussians(bound=4.0), st.integers(0, 2**31))
def test_kls_match_monte_carlo(q: DiagonalGaussian, p: DiagonalGaussian, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    many = DiagonalGaussian(
        q.mean.detach().expand(20_000, -1), q.log_var.detach().expand(20_000, -1)
    )
    s = many.rsample(generator)
    for other, exact in ((standard(q), q.kl_to_standard()), (reference(p), q.kl_to(p))):
        ratios = (many.log_prob(s) - other.log_prob(s)).detach()
        error = ratios.std() / len(ratios) ** 0.5
        assert abs(ratios.mean() - exact) <= 5 * error + 1e-9


@given(gaussians(), gaussians())
def test_kl_is_a_divergence(q: DiagonalGaussian, p: DiagonalGaussian) -> None:
    assert q.kl_to(p) >= 0
    assert q.kl_to(q) == 0
    assert q.kl_to_standard() >= 0


@given(gaussians(), gaussians())
def test_prediction_plus_entropy_is_minus_kl(q: DiagonalGaussian, p: DiagonalGaussian) -> None:
    parts = split_kl_sy(q, p)
    assert_same_with_gradients(
        parts.prediction + parts.entropy, -q.kl_to(p), q.mean, q.log_var, p.mean, p.log_var
    )


def test_standard_kl_is_the_special_case() -> None:
    q = DiagonalGaussian(torch.randn(7, 4), torch.randn(7, 4))
    p = DiagonalGaussian(torch.zeros(7, 4), torch.zeros(7, 4))
    torch.testing.assert_close(q.kl_to_standard(), q.kl_to(p))


@given(st.floats(-30, 30))
def test_soft_clamp(raw: float) -> None:
    value = torch.tensor(raw, dtype=torch.float64, requires_grad=True)
    clamped = soft_clamp_log_var(value)
    assert abs(clamped) < LOG_VAR_BOUND
    assert torch.autograd.grad(clamped, value)[0] > 0
    assert soft_clamp_log_var(value + 0.5) > clamped


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype: torch.dtype) -> None:
    q = DiagonalGaussian(torch.zeros(2, 3, dtype=dtype), torch.full((2, 3), 10.0, dtype=dtype))
    assert q.kl_to_standard().dtype == torch.float32
    assert q.kl_to_standard().isfinite().all()


@pytest.mark.parametrize("edge", [-1e4, 1e4])
def test_extreme_heads_stay_finite(edge: float) -> None:
    head = torch.full((5, 6), edge, requires_grad=True)
    q = DiagonalGaussian.from_head(head)
    p = DiagonalGaussian.from_head(-head.detach())
    value = (q.kl_to(p) + q.kl_to_standard() + q.entropy()).sum()
    value.backward()
    assert value.isfinite()
    assert head.grad is not None
    assert head.grad.isfinite().all()


def test_rsample_uses_only_the_given_generator() -> None:
    q = DiagonalGaussian(torch.zeros(4, 2), torch.zeros(4, 2))
    before = torch.get_rng_state()
    first = q.rsample(torch.Generator().manual_seed(3))
    second = q.rsample(torch.Generator().manual_seed(3))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_mismatched_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="same shape"):
        DiagonalGaussian(torch.zeros(2, 3), torch.zeros(2, 4))
