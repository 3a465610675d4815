"""A training step as one CUDA graph: small networks wait for launches, not for arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from varjepa.downstream.noise import DropoutNoise

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
