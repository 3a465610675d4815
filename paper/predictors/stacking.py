"""Several seeds of a network as one: vmapped weights, noise per seed, recorded steps.

Dropout from numbers that somebody passed in.

torch's dropout draws from one global stream, so a network trained beside others would see other
masks than alone. Here every seed has its own stream, and a pass consumes its numbers in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from paper.predictors.inputs import Batch
from varjepa.randomness import generator_for, seeded_weights


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


# --- A training step as one CUDA graph: small networks wait for launches, not for arithmetic.

Step = Callable[[Tensor, DropoutNoise], None]
"""Takes positions (R, B) and dropout numbers, and changes weights in place."""

WARM_UP = 3
"""Steps before the capture, so that library and optimiser state exists; they train too."""


class GraphedStep:
    """The same step. Batches of the first one's shape are replayed, others (an epoch's last batch)
    run as they are.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.here: Tensor | None = None
        self.uniform: Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0
        self.side = torch.cuda.Stream()

    def __call__(self, here: Tensor, noise: DropoutNoise) -> None:
        if self.here is None:
            self.here = torch.empty_like(here)
            self.uniform = None if noise.uniform is None else torch.empty_like(noise.uniform)
        if here.shape != self.here.shape:
            self.step(here, noise)
            return
        if self.calls < WARM_UP:
            self.calls += 1
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                self.step(here, noise)
            torch.cuda.current_stream().wait_stream(self.side)
            return
        self.here.copy_(here)
        if self.uniform is not None and noise.uniform is not None:
            self.uniform.copy_(noise.uniform)
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):  # records, does not run
                self.step(self.here, DropoutNoise(self.uniform, noise.runs))
        self.graph.replay()
