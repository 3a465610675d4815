"""Claims about the stacked training.

1. Fast equals right: the stacked runs end with the weights of a plain loop (float64, every term of
   the objective on).
2. A run does not depend on which other runs are in its stack.
3. Training lowers the objective, and on_epoch counts.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from benchmarks.simulation import plain_copy, train_plainly
from paper.simulation import SIMULATION_VARIANTS, SimulationSettings, draw_worlds
from paper.simulation_training import train
from varjepa.models.simulation import SimulationVarJEPA
from varjepa.randomness import generator_for
from varjepa.variational.bounds import elbo

BASE = SimulationSettings()
SETTINGS = replace(
    BASE,
    train_rows=600,  # a full batch and a short one
    evaluation_rows=100,
    training=replace(BASE.training, epochs=3),
)


def streams(seeds: list[int], purpose: str) -> list[torch.Generator]:
    return [generator_for(s, purpose) for s in seeds]


def fresh(seeds: list[int]) -> tuple[SimulationVarJEPA, Tensor, Tensor]:
    rows, _ = draw_worlds(seeds, SETTINGS)
    model = SimulationVarJEPA(SETTINGS.model, streams(seeds, "weights")).double()
    return model, rows.x.double(), rows.y.double()


def trained(seeds: list[int], variant: str) -> SimulationVarJEPA:
    model, x, y = fresh(seeds)
    objective = SIMULATION_VARIANTS[variant].objective
    train(model, x, y, objective, SETTINGS.training, SETTINGS.sigreg, streams(seeds, "training"))
    return model


def assert_same_weights(one: torch.nn.Module, other: torch.nn.Module, rtol: float = 1e-7) -> None:
    for mine, their in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, their, rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("variant", list(SIMULATION_VARIANTS))
def test_stacked_equals_plain(variant: str) -> None:
    seeds = [3, 5]
    start, x, y = fresh(seeds)
    stacked = trained(seeds, variant)
    for r, seed in enumerate(seeds):
        plain = plain_copy(start, r)
        objective = SIMULATION_VARIANTS[variant].objective
        train_plainly(plain, x[r], y[r], objective, SETTINGS, generator_for(seed, "training"))
        assert_same_weights(plain_copy(stacked, r), plain)


def test_a_run_does_not_depend_on_its_neighbours() -> None:
    assert_same_weights(plain_copy(trained([1, 2, 4], "D"), 1), plain_copy(trained([2], "D"), 0))


def test_training_raises_the_elbo_and_counts_epochs() -> None:
    model, x, y = fresh([1])
    g = torch.Generator().manual_seed(0)
    epochs: list[int] = []
    with torch.no_grad():
        before = elbo(model, x, y, g).mean()
    train(
        model,
        x,
        y,
        SIMULATION_VARIANTS["A"].objective,
        SETTINGS.training,
        SETTINGS.sigreg,
        streams([1], "training"),
        epochs.append,
    )
    with torch.no_grad():
        after = elbo(model, x, y, g).mean()
    assert epochs == [1, 2, 3]
    assert after > before
