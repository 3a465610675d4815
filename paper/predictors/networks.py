"""The predictors' networks, R seeds of one as one network: parameters have a leading axis R.

torch's dropout draws from one global stream, so a network trained next to others would see other
masks than alone. Here every seed has its own stream, and a pass consumes its numbers in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from itertools import accumulate
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from paper.predictors.inputs import Adapter, Batch, InputShape
from varjepa.errors import InputError
from varjepa.nn.stacked import StackedLinear
from varjepa.nn.transformer import attend
from varjepa.randomness import generator_for, seeded_weights


def require(package: str, predictor: str) -> Any:
    """The package, or one sentence that says what to install."""
    try:
        return import_module(package)
    except ImportError as error:
        raise InputError(
            f"predictor {predictor} needs the package {package}: pip install 'varjepa[paper]'"
        ) from error


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
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(module, name, NoisyDropout(child.p))
    return network


def dropout_streams(
    seeds: Sequence[int], device: torch.device | str, purpose: str = "downstream dropout"
) -> list[torch.Generator]:
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


# --- Networks that others wrote, R of them as one through ``torch.func``.


class Vmapped(nn.Module):
    """One network per seed; parameters and buffers carry a leading axis R.

    ``build`` makes an ordinary network that maps (numeric, codes, tokens) of one run to
    ``(B, outputs)``. Its initial weights depend on the seed alone, and its dropout takes the
    numbers it is given, so a network is the same whoever else is in the stack.
    """

    def __init__(self, seeds: Sequence[int], build: Callable[[], nn.Module]) -> None:
        super().__init__()
        networks = []
        for seed in seeds:
            with seeded_weights(seed):
                networks.append(replace_dropout(build()))
        parameters, buffers = stack_module_state(networks)
        self.names = list(parameters)
        self.stacked = nn.ParameterList(parameters.values())
        self.buffer_names = list(buffers)
        for name, value in buffers.items():
            self.register_buffer(_flat(name), value)
        # only its structure is used; in a tuple, so that its parameters are not counted as ours
        self._skeleton = (deepcopy(networks[0]).to("meta"),)
        self._dropouts = [
            module for module in self._skeleton[0].modules() if isinstance(module, NoisyDropout)
        ]

    def train(self, mode: bool = True) -> Self:
        self._skeleton[0].train(mode)
        return super().train(mode)

    def forward(self, batch: Batch, noise: DropoutNoise | None) -> Tensor:
        parameters = dict(zip(self.names, self.stacked, strict=True))
        buffers = {name: self.get_buffer(_flat(name)) for name in self.buffer_names}
        uniform = None if noise is None else noise.uniform

        def single(
            parameters: dict[str, Tensor],
            buffers: dict[str, Tensor],
            numeric: Tensor,
            codes: Tensor,
            tokens: Tensor | None,
            uniform: Tensor | None,
        ) -> Tensor:
            own = None if noise is None else DropoutNoise(uniform)
            for dropout in self._dropouts:
                dropout.noise = own
            result = functional_call(
                self._skeleton[0], (parameters, buffers), (numeric, codes, tokens)
            )
            if noise is not None and own is not None:
                noise.used += own.used
            return result

        axes = (0, 0, 0, 0, None if batch.tokens is None else 0, None if uniform is None else 0)
        stacked: Callable[..., Tensor] = vmap(single, in_dims=axes)
        return stacked(parameters, buffers, batch.numeric, batch.codes, batch.tokens, uniform)


def _flat(name: str) -> str:
    return name.replace(".", "__")


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


# --- The networks of Appendix D.6.4

HIDDEN = 128
"""units of a hidden layer (MLP, DCNv2), and numbers of a token (AutoInt)"""
DROPOUT = 0.1
"""in all of them"""


class Deep(nn.Module):
    """Hidden layers: affine, ReLU, dropout.  # (R, B, inputs) → (R, B, hidden)"""

    def __init__(
        self, streams: Sequence[torch.Generator], inputs: int, hidden: int = HIDDEN
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            StackedLinear(streams, width, hidden) for width in (inputs, hidden)
        )

    def forward(self, value: Tensor, noise: DropoutNoise | None) -> Tensor:
        for layer in self.layers:
            value = layer(value).relu()
            if noise is not None:
                value = noise.drop(value, DROPOUT)
        return value


class MLP(nn.Module):
    def __init__(
        self, seeds: Sequence[int], shape: InputShape, outputs: int, hidden: int = HIDDEN
    ) -> None:
        super().__init__()
        streams = [generator_for(seed, "downstream mlp") for seed in seeds]
        self.deep = Deep(streams, shape.numeric, hidden)
        self.output = StackedLinear(streams, hidden, outputs)

    def forward(self, batch: Batch, noise: DropoutNoise | None) -> Tensor:
        return self.output(self.deep(batch.numeric, noise))


LARGEST_CROSS = 8192
"""Inputs of a cross layer, whose weights are the square of that."""


class DCNv2(nn.Module):
    """Cross layers x ← x₀ ⊙ (W x + b) + x, a deep branch, one affine output on both."""

    def __init__(self, seeds: Sequence[int], shape: InputShape, outputs: int) -> None:
        super().__init__()
        width = shape.numeric
        if width > LARGEST_CROSS:
            raise InputError(
                f"dcn_v2 would need {width} × {width} weights for each cross layer; "
                "choose the adapter principal or column, or drop columns."
            )
        streams = [generator_for(seed, "downstream dcn_v2") for seed in seeds]
        self.cross = nn.ModuleList(StackedLinear(streams, width, width) for _ in range(2))
        self.deep = Deep(streams, width)
        self.output = StackedLinear(streams, width + HIDDEN, outputs)

    def forward(self, batch: Batch, noise: DropoutNoise | None) -> Tensor:
        x = x_0 = batch.numeric
        for layer in self.cross:
            x = torch.addcmul(x, x_0, layer(x))
        return self.output(torch.cat([x, self.deep(x_0, noise)], -1))


def build_resnet(seeds: Sequence[int], shape: InputShape, outputs: int, **options: Any) -> Vmapped:
    rtdl = require("rtdl_revisiting_models", "resnet")
    return Vmapped(seeds, lambda: ResNet(rtdl, shape, outputs, **options))


class ResNet(nn.Module):
    """The package's ResNet with the paper's output dimension, and an affine output."""

    def __init__(
        self,
        rtdl: Any,
        shape: InputShape,
        outputs: int,
        blocks: int = 3,
        width: int = 128,
        hidden: int = 256,
        dropout: float = DROPOUT,
    ) -> None:
        super().__init__()
        self.body: nn.Module = rtdl.ResNet(
            d_in=shape.numeric,
            d_out=width,
            n_blocks=blocks,
            d_block=width,
            d_hidden=hidden,
            d_hidden_multiplier=None,
            dropout1=dropout,
            dropout2=dropout,
        )
        self.output = nn.Linear(width, outputs)

    def forward(self, numeric: Tensor, codes: Tensor, tokens: Tensor | None) -> Tensor:
        return self.output(self.body(numeric))


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

    def __init__(self, streams: Sequence[torch.Generator], width: int) -> None:
        super().__init__()
        self.project = StackedLinear(streams, width, 4 * width)

    def forward(self, tokens: Tensor, noise: DropoutNoise | None) -> Tensor:
        runs, rows, length, width = tokens.shape
        projected = self.project(tokens.flatten(1, 2)).view(runs * rows, length, 4, width)
        heads = projected[:, :, :3].unflatten(-1, (2, -1))  # two heads
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # (R·B, H, T, d_head) each
        mixed = attend(q, k, v, None).transpose(1, 2).reshape(tokens.shape)
        if noise is not None:
            mixed = noise.drop(mixed, DROPOUT)
        return (mixed + projected[:, :, 3].view(tokens.shape)).relu()


class AutoInt(nn.Module):
    """Tokens, interaction layers, one affine output on all tokens."""

    def __init__(
        self, seeds: Sequence[int], shape: InputShape, outputs: int, width: int = HIDDEN
    ) -> None:
        super().__init__()
        streams = [generator_for(seed, "downstream autoint") for seed in seeds]
        self.tokenizer = StackedTokenizer(streams, shape, width)
        self.layers = nn.ModuleList(Interaction(streams, width) for _ in range(3))
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


def build_ft_transformer(
    seeds: Sequence[int], shape: InputShape, outputs: int, blocks: int = 3
) -> Vmapped:
    """R FT-Transformers; "standard", so all but the depth is the package's default."""
    rtdl = require("rtdl_revisiting_models", "ft_transformer")
    return Vmapped(seeds, lambda: FTTransformer(rtdl, shape, outputs, blocks))


class FTTransformer(nn.Module):
    """The package's feature embeddings and backbone; embeddings from outside enter as tokens."""

    def __init__(self, rtdl: Any, shape: InputShape, outputs: int, blocks: int) -> None:
        super().__init__()
        options = rtdl.FTTransformer.get_default_kwargs(blocks)
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


class LinearProbe(nn.Module):
    def __init__(self, seeds: Sequence[int], shape: InputShape, outputs: int) -> None:
        super().__init__()
        self.output = StackedLinear(
            [generator_for(seed, "downstream linear_probe") for seed in seeds],
            shape.numeric,
            outputs,
        )

    def forward(self, batch: Batch, noise: DropoutNoise | None) -> Tensor:
        return self.output(batch.numeric)
