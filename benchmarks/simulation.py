"""The simulation study as a plain loop over runs, compared with the stacked training.

Plain: one run after another, ``torch.nn.Linear``, SIGReg with a sine and a cosine for every (row,
direction, frequency), unfused AdamW. Both get the same initial weights, data, order and noise, so
the numbers can be compared, not only the clock.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from paper.simulation import SIMULATION_VARIANTS, SimulationSettings, Worlds, draw_worlds
from paper.simulation_training import SimulationObjective, draw_epoch, train
from varjepa.environment import describe_environment
from varjepa.models.simulation import SimulationVarJEPA
from varjepa.nn.stacked import ACTIVATIONS, StackedLinear, StackedMLP
from varjepa.randomness import generator_for
from varjepa.variational.elbo import weighted_loss
from varjepa.variational.model import infer, split_noise, terms_of
from varjepa.variational.sigreg import SigregSettings, frequency_grid

SAME = 1e-9
"""Relative difference of float64 weights up to which two training runs are the same computation."""


def compare_simulation(variant: str, runs: int, epochs: int) -> dict[str, Any]:
    """Time both in float32, then train both in float64 and compare every final weight."""
    _train_both(variant, 1, 1, torch.float32)  # the first use of torch is not timed
    plain_s, stacked_s, difference = _train_both(variant, runs, epochs, torch.float32)
    exact_difference = _train_both(variant, runs, min(epochs, 2), torch.float64)[-1]
    return {
        "variant": variant,
        "runs": runs,
        "epochs": epochs,
        "plain_seconds": round(plain_s, 3),
        "stacked_seconds": round(stacked_s, 3),
        "ratio": round(plain_s / stacked_s, 2),
        "largest_difference": exact_difference,
        "largest_difference_float32": difference,
        "seeds": list(range(runs)),
        "environment": describe_environment(),
    }


def _train_both(
    variant: str, runs: int, epochs: int, dtype: torch.dtype
) -> tuple[float, float, float]:
    """Seconds of the plain loop and of the stack; the largest difference of a weight.

    That is max |w_plain − w_stacked| over all weights, relative to the largest weight.
    """
    settings = SimulationSettings()
    settings = replace(settings, training=replace(settings.training, epochs=epochs))
    objective = SIMULATION_VARIANTS[variant].objective
    seeds = range(runs)
    worlds, _ = draw_worlds(seeds, settings)
    worlds = Worlds(worlds.x.to(dtype), worlds.y.to(dtype), worlds.c)
    weights = [generator_for(s, "weights") for s in seeds]
    stacked = SimulationVarJEPA(settings.model, weights).to(dtype)
    plain = [plain_copy(stacked, r) for r in range(runs)]

    start = time.perf_counter()
    for r, seed in enumerate(seeds):
        train_plainly(
            plain[r], worlds.x[r], worlds.y[r], objective, settings, generator_for(seed, "training")
        )
    between = time.perf_counter()
    train(
        stacked,
        worlds.x,
        worlds.y,
        objective,
        settings.training,
        settings.sigreg,
        [generator_for(s, "training") for s in seeds],
    )
    end = time.perf_counter()
    difference = max(_largest_difference(plain_copy(stacked, r), plain[r]) for r in range(runs))
    return between - start, end - between, difference


def plain_copy(source: SimulationVarJEPA, r: int) -> SimulationVarJEPA:
    """Run r of a stack as a model of its own, with ordinary layers and no run axis."""
    model = copy.deepcopy(source)
    activation = ACTIVATIONS[source.settings.activation]
    for name, child in source.named_children():
        assert isinstance(child, StackedMLP)
        setattr(model, name, _PlainMLP(child, r, activation))
    model.raw_sigma_x = nn.Parameter(source.raw_sigma_x[r].detach().clone())
    model.raw_sigma_y = nn.Parameter(source.raw_sigma_y[r].detach().clone())
    return model


class _PlainMLP(nn.Module):
    def __init__(self, source: StackedMLP, r: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.layers = nn.ModuleList()
        for stacked in source.layers:
            assert isinstance(stacked, StackedLinear)
            inputs, outputs = stacked.weight.shape[1:]
            layer = nn.Linear(inputs, outputs, dtype=stacked.weight.dtype)
            with torch.no_grad():
                layer.weight.copy_(stacked.weight[r].T)
                layer.bias.copy_(stacked.bias[r, 0])
            self.layers.append(layer)

    def forward(self, value: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            value = self.activation(layer(value))
        return self.layers[-1](value)


def train_plainly(
    model: SimulationVarJEPA,
    x: Tensor,
    y: Tensor,
    objective: SimulationObjective,
    settings: SimulationSettings,
    generator: torch.Generator,
) -> None:
    """Train one run, batch by batch, term by term.

    Shape: ``x``, ``y`` are ``(N, d_obs)``.
    """
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=settings.training.learning_rate,
        weight_decay=settings.training.weight_decay,
    )
    batch = settings.training.batch
    steps = math.ceil(len(x) / batch)
    for _ in range(settings.training.epochs):
        noise = draw_epoch(model, x.unsqueeze(0), steps, settings.sigreg, [generator])
        for step in range(steps):
            here = slice(step * batch, (step + 1) * batch)
            rows = noise.order[0, here]
            path = infer(model, x[rows], y[rows], split_noise(model, noise.latents[0, here]))
            loss = weighted_loss(terms_of(model, x[rows], y[rows], path), objective.elbo).mean()
            for weight, s in ((objective.sigreg_s_x, path.s_x), (objective.sigreg_s_y, path.s_y)):
                if weight:
                    directions = noise.directions[0, step]
                    loss = loss + weight * plain_sigreg(s, directions, settings.sigreg)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def plain_sigreg(s: Tensor, directions: Tensor, settings: SigregSettings) -> Tensor:
    """SIGReg-MSE by its definition: every sine and cosine of (row, direction, frequency)."""
    t = frequency_grid(settings, s)  # (T,)
    phase = (s @ directions.T).unsqueeze(-1) * t  # (B, A, T)
    real, imaginary = phase.cos().mean(0), phase.sin().mean(0)  # (A, T)
    return ((real - torch.exp(-0.5 * t.square())).square() + imaginary.square()).mean()


def _largest_difference(one: nn.Module, other: nn.Module) -> float:
    ours, theirs = (
        torch.cat([p.detach().flatten() for p in model.parameters()]) for model in (one, other)
    )
    return float((ours - theirs).abs().max() / theirs.abs().max())
