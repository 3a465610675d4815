"""Dropout from numbers that somebody passed in.

torch's dropout draws from one global stream, so a network trained beside others would see other
masks than alone. Here every seed has its own stream, and a pass consumes its numbers in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from varjepa.randomness import generator_for


class DropoutNoise:
    """Uniform numbers for one pass. Without any, it only counts how many the pass would use.

    Shape: ``uniform (R, n)`` for R stacked networks, ``(n,)`` for one.
    """

    def __init__(self, uniform: Tensor | None, runs: int = 1) -> None:
        self.uniform = uniform
        self.runs = runs
        self.used = 0  # per run

    def drop(self, value: Tensor, p: float) -> Tensor:
        """Zero a share p of the value's entries and scale up the others."""
        if p == 0.0:
            return value
        count = value.numel() // self.runs
        start, self.used = self.used, self.used + count
        if self.uniform is None:
            return value
        dropped = self.uniform[..., start : self.used].reshape(value.shape) < p
        return (value / (1.0 - p)).masked_fill(dropped, 0.0)


class NoisyDropout(nn.Module):
    """Stands in for ``torch.nn.Dropout`` inside a network that others wrote."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.noise: DropoutNoise | None = None

    def forward(self, value: Tensor) -> Tensor:
        return value if self.noise is None else self.noise.drop(value, self.p)


def replace_dropout(network: nn.Module) -> nn.Module:
    """The same network with every ``torch.nn.Dropout`` replaced."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(module, name, NoisyDropout(child.p))
    return network


def dropout_streams(
    seeds: Sequence[int], device: torch.device | str, purpose: str = "downstream dropout"
) -> list[torch.Generator]:
    """One stream per seed on the device that uses the numbers."""
    return [
        torch.Generator(device).manual_seed(generator_for(seed, purpose).initial_seed())
        for seed in seeds
    ]


def draw_noise(streams: Sequence[torch.Generator], numbers: int) -> DropoutNoise:
    """Fresh numbers for one pass of R networks."""
    if numbers == 0:
        return DropoutNoise(None, len(streams))
    uniform = torch.empty(len(streams), numbers, device=streams[0].device)
    for row, stream in zip(uniform, streams, strict=True):
        torch.rand(numbers, generator=stream, out=row, device=stream.device)
    return DropoutNoise(uniform, len(streams))
