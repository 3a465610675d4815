"""Claims: the comparison times both ways and shows that they are the same computation.

The command writes its figures, and refuses wrong input in one sentence.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.simulation import compare_simulation, plain_sigreg
from benchmarks.speed import main
from tests.cli.test_shell import Captured, assert_refused, exit_code
from varjepa.variational.sigreg import SigregSettings, draw_directions, sigreg_mse


def test_comparison_is_honest() -> None:
    result = compare_simulation("D", runs=2, epochs=1)
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


def test_bench_writes_its_figures(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "bench.json"
    assert run("simulation", "--runs", 2, "--epochs", 1, "--json", path) == 0
    assert json.loads(path.read_text(encoding="utf-8"))["ratio"] > 0
    assert "faster" in capsys.readouterr().out


def test_wrong_options(tmp_path: Path, capsys: Captured) -> None:
    assert_refused(capsys, run("simulation", "--json", tmp_path), "--json")
    assert_refused(capsys, run("simulation", "--variant", "Q"), "--variant 'Q'")


def run(*arguments: object) -> int:
    return exit_code(main, arguments)
