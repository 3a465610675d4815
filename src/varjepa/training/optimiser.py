"""AdamW, with Muon for the matrices of linear maps.

Muon follows the momentum of a matrix's gradient with all its singular values set to 1, so that no
direction waits for the others to be learned (Jordan et al. 2024; the scale that makes its steps as
large as AdamW's is Liu et al. 2025's). On tables it needs half of AdamW's steps or fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn

from varjepa.settings import Training

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""AdamW's names of a weight's moments."""

MUON_RATE = 2.0
"""Muon's learning rate as a multiple of AdamW's."""

MOMENTUM = 0.95

TOGETHER = 3
"""Weights of one shape that a core steps in one product: enough to hide torch's calls, and parts
enough for several cores. On one core, or a GPU, all weights of a shape are stepped together."""

MapWork = Callable[..., Iterable[None]]

POLYNOMIALS = (
    (8.3837, -24.7659, 18.3571),
    (4.0434, -3.0114, 0.5695),
    (3.5056, -2.6267, 0.5257),
    (2.4901, -1.8343, 0.4368),
)
"""a·x + b·x³ + c·x⁵, one after the other: each is nearest to 1 on the interval to which those
before it bring singular values of .003 to 1. The last ends within .8 to 1.2, close enough."""


def orthogonalise(matrices: Tensor) -> Tensor:
    """Each matrix with its singular values replaced by about 1.  # (n, rows, columns)"""
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for a, b, c in POLYNOMIALS:
        square = torch.bmm(x, x.mT)
        polynomial = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.mT if is_tall else x


class Muon:
    """Weights of one shape are stepped together."""

    def __init__(self, matrices: Mapping[str, nn.Parameter], weight_decay: float) -> None:
        self.weight_decay = weight_decay
        self.groups: dict[torch.Size, list[str]] = {}
        for name, weight in matrices.items():
            self.groups.setdefault(weight.shape, []).append(name)
        self.weights = dict(matrices)
        self.momentum = {
            shape: torch.zeros(len(names), *shape, device=matrices[names[0]].device)
            for shape, names in self.groups.items()
        }

    def step(self, rate: float | Tensor, is_bad: Tensor, over_cores: MapWork | None = None) -> None:
        """One step; nothing changes where ``is_bad``. ``over_cores`` maps parts of the work."""

        def one(part: tuple[torch.Size, slice]) -> None:
            self._step_some(*part, rate, is_bad)

        parts = [
            (shape, slice(start, start + size))
            for shape, names in self.groups.items()
            for size in [TOGETHER if over_cores else len(names)]
            for start in range(0, len(names), size)
        ]
        for _ in (over_cores or map)(one, parts):
            pass

    @torch.no_grad()
    def _step_some(
        self, shape: torch.Size, some: slice, rate: float | Tensor, is_bad: Tensor
    ) -> None:
        weights: list[Tensor] = [self.weights[name] for name in self.groups[shape][some]]
        gradient = torch.stack([w.new_zeros(shape) if w.grad is None else w.grad for w in weights])
        momentum = self.momentum[shape][some]
        momentum.copy_(torch.where(is_bad, momentum, momentum.lerp(gradient, 1 - MOMENTUM)))
        direction = orthogonalise(gradient.lerp(momentum, MOMENTUM))
        change = direction * (0.2 * max(shape) ** 0.5) * rate
        decay = torch.where(is_bad, 1.0, 1 - rate * self.weight_decay)
        torch._foreach_mul_(weights, decay)
        torch._foreach_sub_(weights, list(torch.where(is_bad, 0.0, change)))

    def tensors(self) -> dict[str, Tensor]:
        """The momentum of every weight by name."""
        return {
            f"{name}.momentum": self.momentum[shape][i]
            for shape, names in self.groups.items()
            for i, name in enumerate(names)
        }


class Optimiser:
    """One step of all weights of a model, at a rate that a CUDA graph can read."""

    def __init__(self, model: nn.Module, settings: Training, device: torch.device) -> None:
        learned = {name: w for name, w in model.named_parameters() if w.requires_grad}
        by_muon = muon_matrices(model, learned) if settings.optimiser == "muon" else {}
        others = [w for name, w in learned.items() if name not in by_muon]
        groups = [
            {"params": [w for w in others if w.dim() > 1], "weight_decay": settings.weight_decay},
            {"params": [w for w in others if w.dim() <= 1], "weight_decay": 0.0},
        ]
        rate = settings.learning_rate
        if device.type == "cuda":  # the rate is a tensor, which CUDA graphs read
            on_device = torch.tensor(rate, device=device)
            self.adamw = torch.optim.AdamW(groups, lr=on_device, fused=True, capturable=True)
        else:
            self.adamw = torch.optim.AdamW(groups, lr=rate, fused=True)
        self.muon = Muon(by_muon, settings.weight_decay) if by_muon else None
        self.learned = learned

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for weight in self.learned.values():
            weight.grad = None

    def step(self, rate: float | Tensor, is_bad: Tensor, over_cores: MapWork | None = None) -> None:
        """Change the weights, unless the step ``is_bad``; ``over_cores`` as in :class:`Muon`."""
        for group in self.adamw.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].copy_(rate) if isinstance(rate, Tensor) else group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self.adamw.found_inf = is_bad.float()  # type: ignore[attr-defined]  # fused: skip the step
        self.adamw.step()
        if self.muon is not None:
            self.muon.step(MUON_RATE * rate, is_bad, over_cores)

    def tensors(self) -> dict[str, Tensor]:
        """Moments by weight and kind; a weight that never had a gradient has none."""
        return {
            **{
                f"{name}.{kind}": moment
                for name, weight in self.learned.items()
                for kind, moment in self.adamw.state.get(weight, {}).items()
            },
            **({} if self.muon is None else self.muon.tensors()),
        }

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Set moments from saved ones, in place if they exist: CUDA graphs refer to them."""
        state = self.adamw.state
        for name, weight in self.learned.items():
            if f"{name}.step" in saved and not state.get(weight):
                state[weight] = {
                    kind: torch.zeros(() if kind == "step" else weight.shape, device=weight.device)
                    for kind in MOMENTS
                }
        for name, moment in self.tensors().items():
            value = saved.get(name, torch.zeros_like(moment))
            if value.shape != moment.shape:
                raise ValueError(f"{name} has another shape")
            moment.copy_(value)


def muon_matrices(model: nn.Module, learned: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """The matrices of all linear maps; tokens and the heads of features are not among them."""
    matrices = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)}
    return {name: weight for name, weight in learned.items() if id(weight) in matrices}


POWER = 8.0


class AveragedModel:
    """A copy of a model whose weights are averages over the training, the latest tenth most of all.

    Step t counts with t^8, so nothing depends on how long the training will be. With a constant
    rate, this does what a falling one would.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = deepcopy(model).eval().requires_grad_(False)
        self.weights = dict(model.named_parameters())
        self.averages = dict(self.model.named_parameters())
        self.steps = torch.zeros((), device=next(model.parameters()).device)

    @torch.no_grad()
    def add(self) -> None:
        """Count the current weights."""
        self.steps += 1.0
        share = (POWER + 1.0) / (self.steps + POWER)
        averages: list[Tensor] = list(self.averages.values())
        weights: list[Tensor] = [self.weights[name] for name in self.averages]
        shares: list[Tensor] = [share] * len(averages)
        torch._foreach_lerp_(averages, weights, shares)

    def tensors(self) -> dict[str, Tensor]:
        """Its state."""
        return {**self.averages, "steps": self.steps}
