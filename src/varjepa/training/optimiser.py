"""AdamW as every training uses it, and its memory: the moments of every weight."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from varjepa.training.settings import TrainingSettings

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""AdamW's names for them."""


def make_optimiser(
    model: nn.Module, settings: TrainingSettings, device: torch.device
) -> torch.optim.AdamW:
    """AdamW without decay on vectors; on a GPU the rate is a tensor, for recordings to read."""
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
    """Put saved moments back; where there are some already, in place: recordings know the place."""
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
