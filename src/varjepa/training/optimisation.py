"""Schedules of the KL weights (Appendix D.3.2) and of the learning rate; AdamW and its moments.

The paper writes annealing in steps in its equation and in epochs in its table. Settings are shares
of all epochs, converted once, when a schedule is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from varjepa.settings import Training
from varjepa.variational.elbo import ElboTerms


def kl_factors(step: int, durations: tuple[float, float, float]) -> tuple[float, float, float]:
    """Factors min(t / T, 1) on the final weights of kl_sx, kl_z and kl_sy.

    ``durations`` are their T in optimiser steps; 0: full weight from the start. t = ``step`` + 1
    counts the current step, so that no weight is ever exactly 0: an objective of KL terms alone has
    a gradient from the start.
    """
    sx, z, sy = (1.0 if t <= 0 else min((step + 1) / t, 1.0) for t in durations)
    return sx, z, sy


def annealed(terms: ElboTerms, factors: Tensor) -> ElboTerms:
    """The KL terms times their factors (3,); the likelihoods as they are."""
    sx, z, sy = factors
    return replace(terms, kl_sx=sx * terms.kl_sx, kl_z=z * terms.kl_z, kl_sy=sy * terms.kl_sy)


def warm_up_cosine(step: int, warm_up: float, total: int) -> float:
    """Factor on the learning rate: linear to 1 over the warm-up, then a half cosine to 0."""
    if step < warm_up:
        return (step + 1) / (warm_up + 1)
    done = (step - warm_up) / max(1.0, total - warm_up)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""AdamW's names of a weight's moments."""


def make_optimiser(model: nn.Module, settings: Training, device: torch.device) -> torch.optim.AdamW:
    """AdamW without decay on vectors; on a GPU the rate is a tensor, which CUDA graphs read."""
    learned = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in learned if p.dim() > 1]
    vectors = [p for p in learned if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if device.type == "cuda":
        rate = torch.tensor(settings.learning_rate, device=device)
        return torch.optim.AdamW(groups, lr=rate, fused=True, capturable=True)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)


def set_rate(optimiser: torch.optim.Optimizer, rate: float | Tensor) -> None:
    """Change the learning rate, in place where it is a tensor."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(rate) if isinstance(rate, Tensor) else group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def moments_of(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The moments by weight and kind; a weight that never had a gradient has none."""
    return {
        f"{name}.{kind}": moment
        for name, weight in model.named_parameters()
        for kind, moment in optimiser.state.get(weight, {}).items()
    }


def restore_moments(
    optimiser: torch.optim.Optimizer, model: nn.Module, saved: Mapping[str, Tensor]
) -> None:
    """Set moments from saved ones, in place if they exist: CUDA graphs refer to them."""
    for name, weight in model.named_parameters():
        state = optimiser.state
        if f"{name}.step" in saved and not state.get(weight):
            state[weight] = {
                kind: torch.zeros(() if kind == "step" else weight.shape, device=weight.device)
                for kind in MOMENTS
            }
        for kind, moment in state.get(weight, {}).items():
            value = saved.get(f"{name}.{kind}", torch.zeros_like(moment))
            if value.shape != moment.shape:
                raise ValueError(f"{name}.{kind} has another shape")
            moment.copy_(value)
