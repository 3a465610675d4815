"""The multilayer perceptron; R networks as one, parameters with a leading run axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from varjepa.downstream.batches import Batch, InputShape
from varjepa.downstream.noise import DropoutNoise
from varjepa.networks.stacked import StackedLinear
from varjepa.randomness import generator_for


@dataclass(frozen=True, slots=True)
class DeepSettings:
    """The hidden layers of MLP and of DCNv2's deep branch (Appendix D.6.4)."""

    hidden_layers: int = 2
    """how many"""
    hidden: int = 128
    """units in each"""
    dropout: float = 0.1
    """after each"""


class Deep(nn.Module):
    """Hidden layers: affine, ReLU, dropout.  # (R, B, inputs) → (R, B, hidden)"""

    def __init__(
        self, streams: Sequence[torch.Generator], inputs: int, settings: DeepSettings
    ) -> None:
        super().__init__()
        widths = [inputs] + [settings.hidden] * (settings.hidden_layers - 1)
        self.layers = nn.ModuleList(
            StackedLinear(streams, width, settings.hidden) for width in widths
        )
        self.dropout = settings.dropout

    def forward(self, value: Tensor, noise: DropoutNoise | None) -> Tensor:
        for layer in self.layers:
            value = layer(value).relu()
            if noise is not None:
                value = noise.drop(value, self.dropout)
        return value


class MLP(nn.Module):
    """Hidden layers and one affine output."""

    def __init__(
        self,
        seeds: Sequence[int],
        shape: InputShape,
        outputs: int,
        settings: DeepSettings = DeepSettings(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__()
        streams = [generator_for(seed, "downstream mlp") for seed in seeds]
        self.deep = Deep(streams, shape.numeric, settings)
        self.output = StackedLinear(streams, settings.hidden, outputs)

    def forward(self, batch: Batch, noise: DropoutNoise | None) -> Tensor:
        return self.output(self.deep(batch.numeric, noise))
