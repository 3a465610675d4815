"""Claims: the comparison times both ways and shows that they are the same computation."""

from __future__ import annotations

import pytest
import torch

from benchmarks.simulation import SimulationBench, compare_simulation, plain_sigreg
from varjepa.variational.sigreg import SigregSettings, draw_directions, sigreg_mse


def test_comparison_is_honest() -> None:
    result = compare_simulation(SimulationBench(variant="D", runs=2, epochs=1))
    assert result["largest_difference"] < 1e-9
    assert result["plain_seconds"] > 0
    assert result["ratio"] == pytest.approx(
        result["plain_seconds"] / result["stacked_seconds"], rel=0.05
    )


def test_plain_sigreg_is_sigreg() -> None:
    g = torch.Generator().manual_seed(0)
    settings = SigregSettings()
    s = torch.randn(50, 4, generator=g, dtype=torch.float64)
    directions = draw_directions(4, settings, g, s)
    torch.testing.assert_close(
        plain_sigreg(s, directions, settings), sigreg_mse(s, directions, settings)
    )
