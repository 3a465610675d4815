"""Several networks of one shape trained as one: a leading axis R holds independent copies.

Five small networks cost about as much as one when their products are batched. Copies never mix:
copy r sees only slice r of its input, and its parameters come from generator r, so a copy is
the same whatever else is in the stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "relu": nn.functional.relu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
}


class StackedLinear(nn.Module):
    """R affine maps in one batched product, initialised as ``torch.nn.Linear`` is.

    Shape: ``(R, B, inputs)`` → ``(R, B, outputs)``.
    """

    def __init__(self, generators: Sequence[torch.Generator], inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        uniform = [torch.rand(outputs, inputs + 1, generator=g) for g in generators]
        both = (2.0 * torch.stack(uniform) - 1.0) * bound  # (R, outputs, inputs + 1)
        # stored transposed and contiguous, the way the batched product reads it
        self.weight = nn.Parameter(both[..., :inputs].transpose(1, 2).contiguous())
        self.bias = nn.Parameter(both[..., inputs].unsqueeze(1).contiguous())

    def forward(self, value: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, value, self.weight)


class StackedMLP(nn.Module):
    """R perceptrons: ``hidden_layers`` layers of ``hidden`` units, then one linear output."""

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        inputs: int,
        outputs: int,
        hidden: int,
        hidden_layers: int,
        activation: str,
    ) -> None:
        super().__init__()
        widths = [inputs] + [hidden] * hidden_layers + [outputs]
        self.layers = nn.ModuleList(StackedLinear(generators, a, b) for a, b in pairwise(widths))
        self.activation = ACTIVATIONS[activation]

    def forward(self, value: Tensor) -> Tensor:
        *hidden, output = self.layers
        for layer in hidden:
            value = self.activation(layer(value))
        return output(value)


def take_per_run(value: Tensor, rows: Tensor) -> Tensor:
    """Pick rows (R, B) of each run from value (R, N, ...).  # (R, B, ...)"""
    runs = torch.arange(value.shape[0], device=value.device).unsqueeze(-1)
    return value[runs, rows]
