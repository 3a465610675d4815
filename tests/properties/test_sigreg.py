"""Claims: SIGReg is what its definition says, whatever trick computes it.

1. Equals the literal double mean over directions and frequencies, and its gradient, in float64.
2. E[SIGReg-MSE] = 0.823 / N on N(0, I): within 3 standard errors at N = 5,000.
3. Larger for a shifted, a scaled, a correlated and a bimodal sample than for N(0, I).
4. Chunking changes neither value nor gradient, and bounds memory for N = 100,000.
5. LeJEPA's form is N times a Gaussian-weighted integral of the same squared difference.
6. Stacked runs are computed independently.
"""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from varjepa.variational.sigreg import (
    SigregSettings,
    characteristic_function,
    draw_directions,
    frequency_grid,
    sigreg_lejepa,
    sigreg_mse,
)

SETTINGS = SigregSettings()


def literal_gap(s: Tensor, directions: Tensor, settings: SigregSettings) -> Tensor:
    """|ECF − exp(−t²/2)|² with one complex exponential per (row, direction, frequency)."""
    t = frequency_grid(settings, s)
    phase = torch.einsum("nd,ad,t->nat", s, directions, t)
    ecf = torch.exp(1j * phase).mean(0)
    return (ecf - torch.exp(-t.square() / 2)).abs().square()  # (A, T)


def standard_sample(rows: int, dimension: int, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    s = torch.randn(rows, dimension, generator=g)
    return s, draw_directions(dimension, SETTINGS, g, s)


@pytest.mark.parametrize("frequencies", [1, 16, 64])
def test_matches_the_definition(frequencies: int) -> None:
    settings = SigregSettings(directions=8, frequencies=frequencies)
    g = torch.Generator().manual_seed(0)
    s = (1.3 * torch.randn(200, 5, generator=g) + 0.2).double().requires_grad_()
    directions = draw_directions(5, settings, g, s)
    ours, literal = sigreg_mse(s, directions, settings), literal_gap(s, directions, settings).mean()
    torch.testing.assert_close(ours, literal, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(
        torch.autograd.grad(ours, s)[0], torch.autograd.grad(literal, s)[0], rtol=1e-9, atol=1e-14
    )


def test_grid_covers_zero_to_max() -> None:
    t = frequency_grid(SETTINGS, torch.zeros(1))
    assert len(t) == 64
    assert 0 < t[0] < t[-1] <= SETTINGS.max_frequency
    torch.testing.assert_close(t.diff(), torch.full((63,), 5.0 / 64))


def test_expected_value_on_a_perfect_sample() -> None:
    rows = 5000
    values = torch.stack(
        [sigreg_mse(*standard_sample(rows, 16, seed), SETTINGS) for seed in range(40)]
    )
    error = float(values.std()) / math.sqrt(len(values))
    assert abs(float(values.mean()) - 0.823 / rows) <= 3 * error


@pytest.mark.parametrize("departure", ["shifted", "scaled", "correlated", "bimodal"])
@pytest.mark.parametrize("form", [sigreg_mse, sigreg_lejepa])
def test_smallest_at_the_standard_normal(departure: str, form: object) -> None:
    s, directions = standard_sample(5000, 8, seed=1)
    sign = torch.where(torch.arange(5000) % 2 == 0, 1.0, -1.0).unsqueeze(-1)
    changed = {
        "shifted": s + 0.3,
        "scaled": 1.3 * s,
        "correlated": s + 0.5 * s.roll(1, dims=-1),
        "bimodal": 0.5 * s + 0.866 * sign,
    }[departure]
    assert callable(form)
    assert form(changed, directions, SETTINGS) > 3 * form(s, directions, SETTINGS)


def test_chunks_do_not_matter() -> None:
    s, directions = standard_sample(1000, 6, seed=2)
    s, directions = s.double().requires_grad_(), directions.double()
    whole = characteristic_function(s, directions, SETTINGS, chunk_rows=1000)
    parts = characteristic_function(s, directions, SETTINGS, chunk_rows=64)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(
            torch.autograd.grad(one.square().sum(), s, retain_graph=True)[0],
            torch.autograd.grad(other.square().sum(), s, retain_graph=True)[0],
        )


MEMORY_PROBE = """
import resource, torch
from varjepa.variational.sigreg import SigregSettings, draw_directions, sigreg_mse
settings, g = SigregSettings(), torch.Generator().manual_seed(0)
s = torch.randn(100_000, 16, generator=g, requires_grad=True)
directions = draw_directions(16, settings, g, s)
sigreg_mse(s[:1024], directions, settings).backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sigreg_mse(s, directions, settings).backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_memory_is_bounded_for_many_rows() -> None:
    """All waves at once would be 100,000 · 64 · 32 floats, 820 MB, kept for backward."""
    grown = subprocess.run(
        [sys.executable, "-c", MEMORY_PROBE], check=True, capture_output=True, text=True
    )
    assert int(grown.stdout) / 1024 < 150


def test_lejepa_form_is_the_weighted_integral() -> None:
    s, directions = standard_sample(300, 4, seed=3)
    s = 1.2 * s
    t = frequency_grid(SETTINGS, s)
    integrand = literal_gap(s, directions, SETTINGS) * torch.exp(-t.square() / 2)
    expected = 300 * 2 * torch.trapezoid(integrand, t, dim=-1).mean()
    ours = sigreg_lejepa(s, directions, SETTINGS)
    torch.testing.assert_close(ours, expected, rtol=0.02, atol=0)


def test_runs_are_independent() -> None:
    g = torch.Generator().manual_seed(4)
    s = torch.randn(3, 100, 5, generator=g)
    directions = torch.stack([draw_directions(5, SETTINGS, g, s) for _ in range(3)])
    together = sigreg_mse(s, directions, SETTINGS)
    alone = torch.stack([sigreg_mse(s[r], directions[r], SETTINGS) for r in range(3)])
    torch.testing.assert_close(together, alone)


def test_directions_are_unit_vectors() -> None:
    _, directions = standard_sample(2, 7, seed=5)
    torch.testing.assert_close(directions.norm(dim=-1), torch.ones(64))


@pytest.mark.parametrize(
    "wrong", [{"frequencies": 60}, {"frequencies": 0}, {"directions": 0}, {"max_frequency": 0.0}]
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"SIGReg needs|square number"):
        SigregSettings(**wrong)  # type: ignore[arg-type]
