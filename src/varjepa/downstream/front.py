"""The learned part in front of a predictor: tokens to whatever its body takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from varjepa.downstream.adapters import Adapter
from varjepa.downstream.batches import Batch, InputShape
from varjepa.networks.stacked import StackedLinear
from varjepa.randomness import generator_for


class FrontEnd(nn.Module):
    """Applies an adapter for R networks; ``shape`` describes what comes out.

    A mean over tokens is taken once for all rows when they are encoded, so nothing is left here.
    """

    def __init__(self, seeds: Sequence[int], adapter: Adapter, shape: InputShape) -> None:
        super().__init__()
        self.adapter = adapter
        self.shape = shape
        self.project: StackedLinear | None = None
        if shape.tokens is None or adapter == "tokens":
            return
        columns, width = shape.tokens
        if adapter == "linear":
            streams = [generator_for(seed, "downstream adapter") for seed in seeds]
            self.project = StackedLinear(streams, columns * width, columns)
        added = columns if adapter == "linear" else columns * width
        self.shape = replace(shape, numeric=shape.numeric + added, tokens=None)

    def forward(self, batch: Batch) -> Batch:
        if batch.tokens is None or self.adapter == "tokens":
            return batch
        flat = batch.tokens.flatten(2)  # (R, B, D·d)
        if self.project is not None:
            flat = self.project(flat)  # (R, B, D)
        numeric = torch.cat([batch.numeric, flat], -1) if batch.numeric.shape[-1] else flat
        return Batch(numeric, batch.codes, None)
