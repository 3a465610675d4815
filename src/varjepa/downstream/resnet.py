"""ResNet from the package ``rtdl_revisiting_models``, R networks as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from varjepa.downstream.batches import InputShape
from varjepa.downstream.optional import require
from varjepa.downstream.vmapped import Vmapped


@dataclass(frozen=True, slots=True)
class ResNetSettings:
    """Appendix D.6.4."""

    blocks: int = 3
    """residual blocks"""
    width: int = 128
    """of a block's input and output, and of the last layer before the affine output"""
    hidden: int = 256
    """inside a block"""
    dropout: float = 0.1
    """hidden and residual"""


def build_resnet(
    seeds: Sequence[int],
    shape: InputShape,
    outputs: int,
    settings: ResNetSettings = ResNetSettings(),  # noqa: B008 - frozen
) -> Vmapped:
    """R residual networks."""
    rtdl = require("rtdl_revisiting_models", "resnet")
    return Vmapped(seeds, lambda: ResNet(rtdl, shape, outputs, settings))


class ResNet(nn.Module):
    """The package's ResNet with the paper's output dimension, and an affine output."""

    def __init__(
        self, rtdl: Any, shape: InputShape, outputs: int, settings: ResNetSettings
    ) -> None:
        super().__init__()
        self.body: nn.Module = rtdl.ResNet(
            d_in=shape.numeric,
            d_out=settings.width,
            n_blocks=settings.blocks,
            d_block=settings.width,
            d_hidden=settings.hidden,
            d_hidden_multiplier=None,
            dropout1=settings.dropout,
            dropout2=settings.dropout,
        )
        self.output = nn.Linear(settings.width, outputs)

    def forward(self, numeric: Tensor, codes: Tensor, tokens: Tensor | None) -> Tensor:
        return self.output(self.body(numeric))
