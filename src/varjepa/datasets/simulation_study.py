"""The data generator of the simulation study (Section 4.1, Appendix C.2).

z ~ N(0, ς_z² I)    c ~ Bernoulli(1/2)    s_x | c ~ N(c δ, ς_x² I)
s_y | s_x, z ~ N(s_x + A z, ς_y² I)    x = h_x(s_x) + ε_x    y = h_y(s_y) + ε_y
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """Appendix C.2; h's weight scale is not given there (docs/simulation-search.md)."""

    d_obs: int = 32
    """dimension of x and y"""
    d_s: int = 16
    """dimension of s_x and s_y"""
    d_z: int = 8
    """dimension of z"""
    std_x: float = 1.0
    """ς_x, spread of s_x around its component"""
    std_y: float = 0.5
    """ς_y, spread of s_y around s_x + A z"""
    std_z: float = 1.0
    """ς_z"""
    shift: float = 2.0
    """δ_scale: the second component's mean in every coordinate"""
    noise: float = 0.3
    """τ_x = τ_y, observation noise"""
    map_hidden: int = 64
    """hidden width of h_x and h_y"""
    map_gains: tuple[float, float] = (1.0, 1.0)
    """weights of h's two layers are N(0, gain² / fan_in)"""


@dataclass(frozen=True, slots=True)
class PairedSample:
    """Observed pairs with the truth behind them."""

    x: Tensor  # (N, d_obs)
    y: Tensor  # (N, d_obs)
    c: Tensor  # (N,) mixture component, 0 or 1
    s_x: Tensor  # (N, d_s)
    z: Tensor  # (N, d_z)
    s_y: Tensor  # (N, d_s)


@dataclass(frozen=True, slots=True)
class FrozenMap:
    """h: a two-layer tanh perceptron, drawn once per run and never trained."""

    first: Tensor  # (d_s, hidden)
    second: Tensor  # (hidden, d_obs)

    def __call__(self, s: Tensor) -> Tensor:
        return torch.tanh(s @ self.first) @ self.second


@dataclass(frozen=True, slots=True)
class Process:
    """One draw of (A, h_x, h_y): one simulated world, from which any number of rows can come."""

    settings: ProcessSettings
    A: Tensor  # (d_s, d_z)
    h_x: FrozenMap
    h_y: FrozenMap

    def sample(self, rows: int, generator: torch.Generator) -> PairedSample:
        """Draw rows of this world."""
        o = self.settings

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        c = (torch.rand(rows, generator=generator) < 0.5).long()
        s_x = c.unsqueeze(-1) * o.shift + o.std_x * normal(rows, o.d_s)
        z = o.std_z * normal(rows, o.d_z)
        s_y = s_x + z @ self.A.T + o.std_y * normal(rows, o.d_s)
        x = self.h_x(s_x) + o.noise * normal(rows, o.d_obs)
        y = self.h_y(s_y) + o.noise * normal(rows, o.d_obs)
        return PairedSample(x, y, c, s_x, z, s_y)


def draw_process(settings: ProcessSettings, generator: torch.Generator) -> Process:
    """Draw A with entries N(0, 1/d_z) and the two frozen maps."""

    def weights(gain: float, rows: int, columns: int) -> Tensor:
        return gain / math.sqrt(rows) * torch.randn(rows, columns, generator=generator)

    def frozen_map() -> FrozenMap:
        first, second = settings.map_gains
        return FrozenMap(
            weights(first, settings.d_s, settings.map_hidden),
            weights(second, settings.map_hidden, settings.d_obs),
        )

    a = torch.randn(settings.d_s, settings.d_z, generator=generator) / math.sqrt(settings.d_z)
    return Process(settings, a, frozen_map(), frozen_map())
