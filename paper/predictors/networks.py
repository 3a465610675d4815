"""The five neural predictors of Section 4.2.

Packages of the extra ``downstream``, imported when a predictor asks for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from paper.predictors.inputs import Adapter, Batch, InputShape
from paper.predictors.stacking import DropoutNoise, Vmapped
from varjepa.errors import InputError
from varjepa.nn.stacked import StackedLinear
from varjepa.nn.transformer import attend
from varjepa.randomness import generator_for


def require(package: str, predictor: str) -> Any:
    """The package, or one sentence that says what to install."""
    try:
        return import_module(package)
    except ImportError as error:
        raise InputError(
            f"predictor {predictor} needs the package {package}: pip install 'varjepa[paper]'"
        ) from error


# --- The learned part in front of a predictor: tokens to whatever its body takes.


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


# --- The multilayer perceptron; R networks as one, parameters with a leading run axis.


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
        settings: DeepSettings = DeepSettings(),
    ) -> None:
        super().__init__()
        streams = [generator_for(seed, "downstream mlp") for seed in seeds]
        self.deep = Deep(streams, shape.numeric, settings)
        self.output = StackedLinear(streams, settings.hidden, outputs)

    def forward(self, batch: Batch, noise: DropoutNoise | None) -> Tensor:
        return self.output(self.deep(batch.numeric, noise))


# --- DCNv2: explicit feature crosses beside a perceptron; R networks as one.

LARGEST_CROSS = 8192
"""Inputs of a cross layer, whose weights are the square of that."""


class DCNv2(nn.Module):
    """Cross layers x ← x₀ ⊙ (W x + b) + x beside a deep branch, one affine output on both."""

    def __init__(
        self,
        seeds: Sequence[int],
        shape: InputShape,
        outputs: int,
        settings: DeepSettings = DeepSettings(),
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


# --- ResNet from the package ``rtdl_revisiting_models``, R networks as one.


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
    settings: ResNetSettings = ResNetSettings(),
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


# --- AutoInt: features as tokens that attend to each other; R networks as one.


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
        settings: AutoIntSettings = AutoIntSettings(),
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


# --- FT-Transformer from the package ``rtdl_revisiting_models``, R networks as one.


@dataclass(frozen=True, slots=True)
class FTTransformerSettings:
    """Appendix D.6.4 says "standard", so all else is the package's default for this depth."""

    blocks: int = 3
    """transformer blocks"""


def build_ft_transformer(
    seeds: Sequence[int],
    shape: InputShape,
    outputs: int,
    settings: FTTransformerSettings = FTTransformerSettings(),
) -> Vmapped:
    """R FT-Transformers."""
    rtdl = require("rtdl_revisiting_models", "ft_transformer")
    return Vmapped(seeds, lambda: FTTransformer(rtdl, shape, outputs, settings))


class FTTransformer(nn.Module):
    """The package's feature embeddings and backbone; embeddings from outside enter as tokens."""

    def __init__(
        self, rtdl: Any, shape: InputShape, outputs: int, settings: FTTransformerSettings
    ) -> None:
        super().__init__()
        options = rtdl.FTTransformer.get_default_kwargs(settings.blocks)
        options.pop("_is_default")
        width = options["d_block"]
        self.cls = nn.Parameter(torch.empty(1, 1, width).uniform_(-1, 1) * width**-0.5)
        self.numeric = rtdl.LinearEmbeddings(shape.numeric, width) if shape.numeric else None
        self.codes = rtdl.CategoricalEmbeddings(list(shape.levels), width) if shape.levels else None
        self.tokens: nn.Module | None = None
        if shape.tokens is not None:
            columns, token_width = shape.tokens
            self.tokens = nn.Linear(token_width, width)
            # tells columns apart, as the package's feature embeddings do with their biases
            self.bias = nn.Parameter(torch.empty(columns, width).uniform_(-1, 1) * width**-0.5)
        self.backbone: nn.Module = rtdl.FTTransformerBackbone(
            **options, d_out=outputs, n_tokens=None
        )

    def forward(self, numeric: Tensor, codes: Tensor, tokens: Tensor | None) -> Tensor:
        parts = [self.cls.expand(len(numeric), -1, -1)]
        if self.numeric is not None:
            parts.append(self.numeric(numeric))
        if self.codes is not None:
            parts.append(self.codes(codes))
        if self.tokens is not None and tokens is not None:
            parts.append(self.tokens(tokens) + self.bias)
        return self.backbone(torch.cat(parts, 1))


# --- A linear classifier or regression; R of them as one.


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
