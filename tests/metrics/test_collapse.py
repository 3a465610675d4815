"""Claims: each way to collapse shows in its own number, and only there.

1. Independent entries: full rank, variance 1, scale √d, nothing silent.
2. Shrinking shows in scale and variance, not in rank nor in silence; a common part in the varying
   share, not in rank nor in variance.
3. Vectors on a line have rank 1, on a plane of equal variances rank 2, whatever n and D·d.
4. A feature that is the same in every row is silent; all of them: rank 0.
5. The rank is that of the eigenvalues of the covariance, computed the long way.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from varjepa.metrics.collapse import diagnose_collapse, effective_rank


def normal(*shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(0).normal(size=shape)


def test_healthy() -> None:
    seen = diagnose_collapse(normal(20_000, 3, 4).astype(np.float32))
    assert seen.scale == pytest.approx(2.0, rel=0.1)
    assert seen.effective_rank == pytest.approx(12, rel=0.01)
    np.testing.assert_allclose(seen.variance, 1.0, rtol=0.05)
    assert seen.silent_share == 0.0
    assert seen.varying_share == pytest.approx(1.0, rel=0.01)


def test_a_common_part_is_told_from_what_varies() -> None:
    seen = diagnose_collapse(normal(5000, 3, 4) + 7.0)
    np.testing.assert_allclose(seen.variance, 1.0, rtol=0.1)
    assert seen.effective_rank == pytest.approx(12, rel=0.01)
    assert seen.varying_share == pytest.approx(1 / 50, rel=0.1)


@pytest.mark.parametrize("factor", [1e-3, 1e-160])
def test_shrinking_is_a_matter_of_scale_alone(factor: float) -> None:
    healthy, small = (diagnose_collapse(normal(500, 3, 4) * f) for f in (1.0, factor))
    assert small.scale == pytest.approx(factor * healthy.scale)
    assert small.effective_rank == pytest.approx(healthy.effective_rank)
    assert small.silent_share == 0.0


@pytest.mark.parametrize(("n", "features"), [(500, 4), (30, 40)])
def test_few_directions(n: int, features: int) -> None:
    line = normal(n, 1) * normal(1, features * 8) + 3.0
    assert diagnose_collapse(line.reshape(n, features, 8)).effective_rank == pytest.approx(1.0)
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    plane = np.zeros((n, features * 8))
    plane[:, 0], plane[:, -1] = np.cos(angle), np.sin(angle)
    assert effective_rank(plane) == pytest.approx(2.0)


def test_constant_features() -> None:
    tokens = normal(200, 4, 5)
    tokens[:, 1] = 0.7 + 1e-4 * tokens[:, 1]
    tokens[:, 2] = 0.0
    seen = diagnose_collapse(tokens)
    assert seen.silent_share == 0.5
    assert seen.variance[[1, 2]] == pytest.approx(0.0, abs=1e-6)
    constant = diagnose_collapse(np.broadcast_to(normal(1, 4, 5), (200, 4, 5)))
    assert constant.effective_rank == 0.0
    assert constant.silent_share == 1.0
    assert constant.scale > 1.0


def test_the_rank_is_that_of_the_covariance() -> None:
    values = normal(50, 6) * np.arange(1, 7)
    share = np.linalg.eigvalsh(np.cov(values.T))
    share /= share.sum()
    expected = np.exp(-(share * np.log(share)).sum())
    assert effective_rank(values) == pytest.approx(expected)
    assert effective_rank(values[:5]) <= 4 + 1e-9


def test_wrong_shapes_are_refused() -> None:
    for wrong in (normal(5, 3), normal(1, 2, 3)):
        with pytest.raises(ValueError, match="at least two rows"):
            diagnose_collapse(wrong)
