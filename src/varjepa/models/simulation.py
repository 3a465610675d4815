"""The MLP Var-JEPA of the simulation study (Appendix D.1), R independent runs in one module.

Satisfies :class:`varjepa.variational.model.VarJepa`; every tensor has a leading run axis R.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from varjepa.nn.stacked import ACTIVATIONS, StackedMLP
from varjepa.variational.gaussian import SCALES, DiagonalGaussian, Scale, soft_clamp_log_var


@dataclass(frozen=True, slots=True)
class SimulationModelSettings:
    """Shape of the networks. The paper gives width 128 and "depth 2"; paper/LOG.md
    says how the rest was settled.
    """

    d_obs: int = 32
    """dimension of x and of y"""
    d: int = 16
    """dimension of s_x and of s_y"""
    d_z: int = 8
    """dimension of z"""
    hidden: int = 128
    """width of the hidden layers"""
    hidden_layers: int = 1
    """hidden layers in each network; the paper's depth 2 counts the linear maps"""
    activation: str = "silu"
    """gelu, relu, silu or tanh"""
    scale: Scale = "log_var"
    """what the networks emit for a variance"""
    noise_scale: Scale = "log_std"
    """what the learned σ_x and σ_y are stored as"""

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}")
        if not {self.scale, self.noise_scale} <= set(SCALES):
            raise ValueError(f"scale and noise_scale must be among {SCALES}")


class SimulationVarJEPA(nn.Module):
    """Six small networks, one per density; observation noise is learned, one σ² per decoder."""

    def __init__(
        self, settings: SimulationModelSettings, generators: Sequence[torch.Generator]
    ) -> None:
        super().__init__()
        self.settings = settings
        d_obs, d, d_z = settings.d_obs, settings.d, settings.d_z

        def mlp(inputs: int, outputs: int) -> StackedMLP:
            return StackedMLP(
                generators,
                inputs,
                outputs,
                settings.hidden,
                settings.hidden_layers,
                settings.activation,
            )

        self.context_encoder = mlp(d_obs, 2 * d)
        self.auxiliary_encoder = mlp(d, 2 * d_z)
        self.target_posterior = mlp(d + d_z + d_obs, 2 * d)
        self.predictor = mlp(d + d_z, 2 * d)
        self.context_decoder = mlp(d, d_obs)
        self.target_decoder = mlp(d, d_obs)
        runs = len(generators)
        self.raw_sigma_x = nn.Parameter(torch.zeros(runs, 1, 1))
        self.raw_sigma_y = nn.Parameter(torch.zeros(runs, 1, 1))

    @property
    def d(self) -> int:
        return self.settings.d

    @property
    def d_z(self) -> int:
        return self.settings.d_z

    def q_s_x(self, x: Tensor) -> DiagonalGaussian:
        """q(s_x | x)"""
        return self._gaussian(self.context_encoder(x))

    def q_z(self, s_x: Tensor) -> DiagonalGaussian:
        """q(z | s_x)"""
        return self._gaussian(self.auxiliary_encoder(s_x))

    def q_s_y(self, s_x: Tensor, z: Tensor, y: Tensor) -> DiagonalGaussian:
        """q(s_y | s_x, z, y)"""
        return self._gaussian(self.target_posterior(torch.cat([s_x, z, y], -1)))

    def p_s_y(self, s_x: Tensor, z: Tensor) -> DiagonalGaussian:
        """p(s_y | s_x, z)"""
        return self._gaussian(self.predictor(torch.cat([s_x, z], -1)))

    def p_x(self, s_x: Tensor) -> DiagonalGaussian:
        """p(x | s_x)"""
        return self._observation(self.context_decoder(s_x), self.raw_sigma_x)

    def p_y(self, s_y: Tensor) -> DiagonalGaussian:
        """p(y | s_y)"""
        return self._observation(self.target_decoder(s_y), self.raw_sigma_y)

    def _gaussian(self, head: Tensor) -> DiagonalGaussian:
        return DiagonalGaussian.from_head(head, self.settings.scale)

    def _observation(self, mean: Tensor, raw_sigma: Tensor) -> DiagonalGaussian:
        log_var = soft_clamp_log_var(raw_sigma, self.settings.noise_scale)
        return DiagonalGaussian(mean, log_var.expand_as(mean))
