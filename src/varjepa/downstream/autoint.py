"""AutoInt: features as tokens that attend to each other; R networks as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from varjepa.downstream.batches import Batch, InputShape
from varjepa.downstream.noise import DropoutNoise
from varjepa.networks.stacked import StackedLinear
from varjepa.networks.transformer import attend
from varjepa.randomness import generator_for


@dataclass(frozen=True, slots=True)
class AutoIntSettings:
    """Appendix D.6.4."""

    width: int = 128
    """of a token"""
    heads: int = 2
    """of an attention layer"""
    layers: int = 3
    """attention layers"""
    dropout: float = 0.1
    """on what an attention layer adds"""


class StackedTokenizer(nn.Module):
    """Numbers, codes and embeddings to tokens of one width.

    A number scales its column's vector, a code picks one, an embedding is projected; every column
    has a bias of its own.

    Shape: a batch of R networks → ``(R, B, F + C + D, width)``.
    """

    def __init__(self, streams: Sequence[torch.Generator], shape: InputShape, width: int) -> None:
        super().__init__()
        self.width = width
        columns = 0 if shape.tokens is None else shape.tokens[0]
        self.length = shape.numeric + len(shape.levels) + columns
        self.scale = _vectors(streams, shape.numeric, width)  # (R, F, width)
        self.levels = _vectors(streams, sum(shape.levels), width)  # (R, Σ levels, width)
        self.bias = _vectors(streams, self.length, width)  # (R, F + C + D, width)
        self.project = None
        if shape.tokens is not None:
            self.project = StackedLinear(streams, shape.tokens[1], width)
        # where a column's levels begin in the table of all runs
        starts = torch.tensor([0, *accumulate(shape.levels)][:-1], dtype=torch.long)
        runs = torch.arange(len(streams)).view(-1, 1, 1) * sum(shape.levels)
        self.first: Tensor
        self.register_buffer("first", runs + starts)  # (R, 1, C)

    def forward(self, batch: Batch) -> Tensor:
        parts = []
        if batch.numeric.shape[-1]:
            parts.append(batch.numeric.unsqueeze(-1) * self.scale.unsqueeze(1))
        if batch.codes.shape[-1]:
            parts.append(
                nn.functional.embedding(batch.codes + self.first, self.levels.flatten(0, 1))
            )
        if batch.tokens is not None and self.project is not None:
            runs, rows, columns, _ = batch.tokens.shape
            projected = self.project(batch.tokens.flatten(1, 2))
            parts.append(projected.view(runs, rows, columns, self.width))
        return torch.cat(parts, 2) + self.bias.unsqueeze(1)


class Interaction(nn.Module):
    """relu(attention(tokens) + W tokens), with one product for q, k, v and W."""

    def __init__(
        self, streams: Sequence[torch.Generator], width: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads = heads
        self.dropout = dropout
        self.project = StackedLinear(streams, width, 4 * width)

    def forward(self, tokens: Tensor, noise: DropoutNoise | None) -> Tensor:
        runs, rows, length, width = tokens.shape
        projected = self.project(tokens.flatten(1, 2)).view(runs * rows, length, 4, width)
        heads = projected[:, :, :3].unflatten(-1, (self.heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # (R·B, H, T, d_head) each
        mixed = attend(q, k, v, None).transpose(1, 2).reshape(tokens.shape)
        if noise is not None:
            mixed = noise.drop(mixed, self.dropout)
        return (mixed + projected[:, :, 3].view(tokens.shape)).relu()


class AutoInt(nn.Module):
    """Tokens, interaction layers, one affine output on all tokens."""

    def __init__(
        self,
        seeds: Sequence[int],
        shape: InputShape,
        outputs: int,
        settings: AutoIntSettings = AutoIntSettings(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__()
        streams = [generator_for(seed, "downstream autoint") for seed in seeds]
        width = settings.width
        self.tokenizer = StackedTokenizer(streams, shape, width)
        self.layers = nn.ModuleList(
            Interaction(streams, width, settings.heads, settings.dropout)
            for _ in range(settings.layers)
        )
        self.output = StackedLinear(streams, self.tokenizer.length * width, outputs)

    def forward(self, batch: Batch, noise: DropoutNoise | None) -> Tensor:
        tokens = self.tokenizer(batch)
        for layer in self.layers:
            tokens = layer(tokens, noise)
        return self.output(tokens.flatten(2))


def _vectors(streams: Sequence[torch.Generator], count: int, width: int) -> nn.Parameter:
    """Uniform within ±1/√width, so that a token's entries start at a linear layer's scale."""
    drawn = [torch.rand(count, width, generator=stream) for stream in streams]
    return nn.Parameter((2.0 * torch.stack(drawn) - 1.0) / math.sqrt(width))
