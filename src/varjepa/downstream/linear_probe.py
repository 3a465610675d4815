"""A linear classifier or regression; R of them as one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from varjepa.downstream.batches import Batch, InputShape
from varjepa.downstream.noise import DropoutNoise
from varjepa.networks.stacked import StackedLinear
from varjepa.randomness import generator_for


class LinearProbe(nn.Module):
    """One affine map."""

    def __init__(self, seeds: Sequence[int], shape: InputShape, outputs: int) -> None:
        super().__init__()
        self.output = StackedLinear(
            [generator_for(seed, "downstream linear_probe") for seed in seeds],
            shape.numeric,
            outputs,
        )

    def forward(self, batch: Batch, noise: DropoutNoise | None) -> Tensor:
        return self.output(batch.numeric)
