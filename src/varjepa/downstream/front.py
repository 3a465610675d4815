"""The learned part in front of a predictor: tokens to whatever its body takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

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
        self.project: nn.Module | None = None
        if shape.tokens is None or adapter == "tokens":
            return
        columns, width = shape.tokens
        streams = [generator_for(seed, "downstream adapter") for seed in seeds]
        if adapter == "linear":
            self.project = nn.Sequential(
                nn.Flatten(2), StackedLinear(streams, columns * width, columns)
            )
        elif adapter == "column":
            self.project = OneNumberEach(streams, columns, width)
        added = columns * width if self.project is None else columns
        self.shape = replace(shape, numeric=shape.numeric + added, tokens=None)

    def forward(self, batch: Batch) -> Batch:
        if batch.tokens is None or self.adapter == "tokens":
            return batch
        # (R, B, D, d) → (R, B, D·d) or (R, B, D)
        flat = batch.tokens.flatten(2) if self.project is None else self.project(batch.tokens)
        numeric = torch.cat([batch.numeric, flat], -1) if batch.numeric.shape[-1] else flat
        return Batch(numeric, batch.codes, None)


class OneNumberEach(nn.Module):
    """A Linear(d → 1) for every token, of R networks; initialised as ``torch.nn.Linear`` is.

    Shape: ``(R, B, D, d)`` → ``(R, B, D)``.
    """

    def __init__(self, generators: Sequence[torch.Generator], columns: int, width: int) -> None:
        super().__init__()
        drawn = [torch.rand(columns, width + 1, generator=g) for g in generators]
        both = (2.0 * torch.stack(drawn) - 1.0) / math.sqrt(width)  # (R, D, d + 1)
        self.weight = nn.Parameter(both[..., :width].contiguous())
        self.bias = nn.Parameter(both[..., width].unsqueeze(1).contiguous())  # (R, 1, D)

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.einsum("rbcd,rcd->rbc", tokens, self.weight) + self.bias
