"""Claims: the generator draws what Appendix C.2 says.

1. Shapes, and half of the rows in each component.
2. Given the drawn A: Cov(s_x | c) = I, E[s_x | c] = 2c, Cov(s_y − s_x) = A Aᵀ + .25 I.
3. Observations are h(s) plus noise of standard deviation .3.
4. A's entries have variance 1/d_z; each run draws its own world; the same seed draws the same.
"""

from __future__ import annotations

import torch

from paper.simulation import PairedSample, Process, ProcessSettings, draw_process
from varjepa.randomness import generator_for

ROWS = 40_000


def world(seed: int = 0) -> tuple[Process, PairedSample]:
    process = draw_process(ProcessSettings(), generator_for(seed, "process"))
    return process, process.sample(ROWS, generator_for(seed, "rows"))


def test_latents_follow_the_specification() -> None:
    process, sample = world()
    assert sample.x.shape == sample.y.shape == (ROWS, 32)
    assert sample.z.shape == (ROWS, 8)
    assert abs(sample.c.float().mean() - 0.5) < 0.01
    eye = torch.eye(16)
    for c in (0, 1):
        s_x = sample.s_x[sample.c == c]
        torch.testing.assert_close(s_x.mean(0), torch.full((16,), 2.0 * c), atol=0.04, rtol=0)
        torch.testing.assert_close(s_x.T.cov(), eye, atol=0.06, rtol=0)
    step = (sample.s_y - sample.s_x).T.cov()
    torch.testing.assert_close(step, process.A @ process.A.T + 0.25 * eye, atol=0.1, rtol=0)
    torch.testing.assert_close(sample.z.T.cov(), torch.eye(8), atol=0.05, rtol=0)


def test_observations_are_the_map_plus_noise() -> None:
    process, sample = world()
    for observed, clean in (
        (sample.x, process.h_x(sample.s_x)),
        (sample.y, process.h_y(sample.s_y)),
    ):
        noise = observed - clean
        torch.testing.assert_close(noise.std(0), torch.full((32,), 0.3), atol=0.01, rtol=0)
        assert noise.mean().abs() < 0.01


def test_loadings_have_variance_one_over_d_z() -> None:
    settings = ProcessSettings()
    drawn = torch.stack([draw_process(settings, generator_for(s, "p")).A for s in range(50)])
    assert abs(drawn.var() - 1 / settings.d_z) < 0.01


def test_worlds_differ_and_repeat() -> None:
    (first, rows), (again, same_rows), (other, _) = world(0), world(0), world(1)
    assert torch.equal(first.A, again.A)
    assert torch.equal(rows.x, same_rows.x)
    assert not torch.equal(first.A, other.A)
    assert not torch.equal(first.h_x.first, first.h_y.first)
