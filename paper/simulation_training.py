"""Training and probing of the simulation study's stacked models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from varjepa.models.simulation import SimulationVarJEPA
from varjepa.nn.stacked import StackedMLP, take_per_run
from varjepa.variational.elbo import ElboWeights, weighted_loss
from varjepa.variational.model import Inference, infer, split_noise, terms_of
from varjepa.variational.sigreg import SigregSettings, draw_directions, sigreg_mse


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """The simulation study's probe (Appendix D.6.5)."""

    epochs: int = 50
    """passes over the training rows"""
    batch: int = 512
    """rows per step"""
    learning_rate: float = 3e-3
    """AdamW"""
    weight_decay: float = 1e-4
    """AdamW"""
    hidden: int = 64
    """width of one hidden ReLU layer; 0 makes the probe linear"""


def fit_probe(
    features: Tensor,
    labels: Tensor,
    classes: int,
    settings: ProbeSettings,
    generators: Sequence[torch.Generator],
) -> StackedMLP:
    """Fit one probe per run.

    Shape: ``features (R, N, d)``, ``labels (R, N)``; the probe maps ``(R, B, d)`` to logits
    ``(R, B, classes)``.
    """
    probe = StackedMLP(
        generators,
        inputs=features.shape[-1],
        outputs=classes,
        hidden=settings.hidden,
        hidden_layers=1 if settings.hidden else 0,
        activation="relu",
    ).to(features.device, features.dtype)
    optimiser = _adamw(probe, settings)
    rows = features.shape[1]
    for _ in range(settings.epochs):
        order = torch.stack([torch.randperm(rows, generator=g) for g in generators])
        order = order.to(features.device)
        for step in range(math.ceil(rows / settings.batch)):
            here = order[:, step * settings.batch : (step + 1) * settings.batch]
            logits = probe(take_per_run(features, here))  # (R, B, classes)
            losses = nn.functional.cross_entropy(
                logits.transpose(1, 2), take_per_run(labels, here), reduction="none"
            )
            optimiser.zero_grad()
            losses.mean(-1).sum().backward()  # a sum over runs: runs do not share a gradient
            optimiser.step()
    return probe


def _adamw(model: nn.Module, settings: ProbeSettings | SimulationTraining) -> torch.optim.AdamW:
    rate, decay = settings.learning_rate, settings.weight_decay
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, fused=True)


@torch.no_grad()
def probe_accuracy(probe: StackedMLP, features: Tensor, labels: Tensor) -> Tensor:
    """Share of rows whose most likely class is right, per run.  # (R,)"""
    return (probe(features).argmax(-1) == labels).to(features.device, features.dtype).mean(-1)


# --- Training of the simulation study's model: R runs at once, each with its own data and noise.


@dataclass(frozen=True, slots=True)
class SimulationObjective:
    """What is minimised: weighted ELBO terms plus λ · SIGReg on the batch's sampled latents."""

    elbo: ElboWeights = ElboWeights()
    """the α of Eq. (VarJEPA-Loss)"""
    sigreg_s_x: float = 0.0
    """λ_{s_x}"""
    sigreg_s_y: float = 0.0
    """λ_{s_y}"""


@dataclass(frozen=True, slots=True)
class SimulationTraining:
    """Appendix D.6.5."""

    epochs: int = 40
    """passes over the training rows"""
    batch: int = 512
    """rows per step; the last step of an epoch takes what is left"""
    learning_rate: float = 1e-3
    """AdamW, constant"""
    weight_decay: float = 1e-6
    """AdamW"""


@dataclass(frozen=True, slots=True)
class EpochNoise:
    """All random numbers of one epoch, drawn in one place; run r's come from generator r."""

    order: Tensor  # (R, N) a permutation of the rows per run
    latents: Tensor  # (R, N, 2d + d_z)
    directions: Tensor  # (R, steps, A, d) for SIGReg


def draw_epoch(
    model: SimulationVarJEPA,
    x: Tensor,
    steps: int,
    sigreg: SigregSettings,
    generators: Sequence[torch.Generator],
) -> EpochNoise:
    """Draw an epoch's numbers; SIGReg's too where no SIGReg is used, so that all variants of a run
    see the same order and noise.
    """
    rows = x.shape[1]
    width = 2 * model.d + model.d_z
    like = x[0]
    return EpochNoise(
        order=torch.stack([torch.randperm(rows, generator=g) for g in generators]),
        latents=torch.stack(
            [torch.randn(rows, width, generator=g, dtype=x.dtype) for g in generators]
        ),
        directions=torch.stack(
            [
                torch.stack([draw_directions(model.d, sigreg, g, like) for _ in range(steps)])
                for g in generators
            ]
        ),
    )


def objective_value(
    model: SimulationVarJEPA,
    x: Tensor,
    y: Tensor,
    walk: Inference,
    objective: SimulationObjective,
    directions: Tensor,
    sigreg: SigregSettings,
) -> Tensor:
    """The loss of each run on one batch.  # (R,)"""
    loss = weighted_loss(terms_of(model, x, y, walk), objective.elbo).mean(-1)
    if objective.sigreg_s_x:
        loss = loss + objective.sigreg_s_x * sigreg_mse(walk.s_x, directions, sigreg)
    if objective.sigreg_s_y:
        loss = loss + objective.sigreg_s_y * sigreg_mse(walk.s_y, directions, sigreg)
    return loss


def train(
    model: SimulationVarJEPA,
    x: Tensor,
    y: Tensor,
    objective: SimulationObjective,
    settings: SimulationTraining,
    sigreg: SigregSettings,
    generators: Sequence[torch.Generator],
    on_epoch: Callable[[int], None] = lambda epoch: None,
) -> None:
    """Train R runs in place; ``on_epoch(e)`` is called after e = 1, 2, … epochs.

    Runs share nothing but the arithmetic: the loss is a sum over runs, so the gradient and AdamW's
    elementwise update of one run do not depend on the others.

    Shape: ``x``, ``y`` are ``(R, N, d_obs)``.
    """
    optimiser = _adamw(model, settings)
    steps = math.ceil(x.shape[1] / settings.batch)
    for epoch in range(1, settings.epochs + 1):
        noise = draw_epoch(model, x, steps, sigreg, generators)
        for step in range(steps):
            here = slice(step * settings.batch, (step + 1) * settings.batch)
            x_b, y_b = take_per_run(x, noise.order[:, here]), take_per_run(y, noise.order[:, here])
            walk = infer(model, x_b, y_b, split_noise(model, noise.latents[:, here]))
            loss = objective_value(
                model, x_b, y_b, walk, objective, noise.directions[:, step], sigreg
            )
            optimiser.zero_grad()
            loss.sum().backward()
            optimiser.step()
        on_epoch(epoch)
