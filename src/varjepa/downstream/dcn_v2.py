"""DCNv2: explicit feature crosses beside a perceptron; R networks as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from varjepa.downstream.batches import Batch, InputShape
from varjepa.downstream.mlp import Deep, DeepSettings
from varjepa.downstream.noise import DropoutNoise
from varjepa.errors import InputError
from varjepa.networks.stacked import StackedLinear
from varjepa.randomness import generator_for

LARGEST_CROSS = 8192
"""Inputs of a cross layer, whose weights are the square of that."""


class DCNv2(nn.Module):
    """Cross layers x ← x₀ ⊙ (W x + b) + x beside a deep branch, one affine output on both."""

    def __init__(
        self,
        seeds: Sequence[int],
        shape: InputShape,
        outputs: int,
        settings: DeepSettings = DeepSettings(),  # noqa: B008 - frozen
        cross_layers: int = 2,
    ) -> None:
        super().__init__()
        width = shape.numeric
        if width > LARGEST_CROSS:
            raise InputError(
                f"dcn_v2 would need {width} × {width} weights for each cross layer; "
                "choose the adapter principal or column, or drop columns."
            )
        streams = [generator_for(seed, "downstream dcn_v2") for seed in seeds]
        self.cross = nn.ModuleList(
            StackedLinear(streams, width, width) for _ in range(cross_layers)
        )
        self.deep = Deep(streams, width, settings)
        self.output = StackedLinear(streams, width + settings.hidden, outputs)

    def forward(self, batch: Batch, noise: DropoutNoise | None) -> Tensor:
        x = x_0 = batch.numeric
        for layer in self.cross:
            x = torch.addcmul(x, x_0, layer(x))
        return self.output(torch.cat([x, self.deep(x_0, noise)], -1))
