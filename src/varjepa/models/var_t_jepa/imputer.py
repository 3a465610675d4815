"""A second, wider predictor outside the objective, for filling holes and judging cells."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from varjepa.models.rows import TableShape
from varjepa.models.var_t_jepa.decoder import Decoded
from varjepa.models.var_t_jepa.predictor import Predictor
from varjepa.models.var_t_jepa.settings import VarTJepaSettings
from varjepa.models.var_t_jepa.target_decoder import TargetDecoder
from varjepa.variational.gaussian import DiagonalGaussian, soft_clamp_log_var

_START_LOG_VAR = -3.0
"""A standard deviation of .22 on a column that spans [0, 1]."""

_PACE = 10.0
"""How much faster than other parameters the noise moves: Adam would take thousands of steps."""


class Imputer(nn.Module):
    """r(s_y | s_x, z), trained to predict *values*: −log ∫ p(y | s_y) r(s_y | s_x, z) ds_y.

    The objective's own predictor p(s_y | s_x, z) is a prior: it is narrow, and has to be, because
    the posterior's spread is only informative while the prior leaves something open. That makes it
    a poor guess of values. This one reads the same context latents, is as wide as they are, and
    learns from the cells themselves. It takes them, and the decoder, as they are: no gradient
    leaves it, so the rest of the model is trained exactly as without it.

    Numbers get one noise variance per feature here, since draws need each column's own.
    """

    def __init__(self, shape: TableShape, settings: VarTJepaSettings) -> None:
        super().__init__()
        o = settings
        self.predictor = Predictor(
            shape,
            replace(
                o,
                predictor_width=o.imputer_width,
                predictor_depth=o.imputer_depth,
                predictor_heads=o.imputer_heads,
                predictor_ff=o.imputer_ff,
            ),
        )
        self.raw_log_var = nn.Parameter(torch.full((shape.numeric,), _START_LOG_VAR / _PACE))

    @property
    def log_var(self) -> Tensor:
        """Noise of every numeric feature.  # (F_num,)"""
        return soft_clamp_log_var(_PACE * self.raw_log_var)

    def forward(
        self,
        s_x: Tensor,
        z: Tensor,
        context: Tensor,
        valid: Tensor | None,
        target: Tensor,
        target_valid: Tensor | None,
    ) -> DiagonalGaussian:
        """As the predictor's."""
        r: DiagonalGaussian = self.predictor(
            s_x.detach(), z.detach(), context, valid, target, target_valid
        )
        return r

    def decode(self, decoder: TargetDecoder, s: Tensor) -> Decoded:
        """p(value | s) with this module's noise; the decoder itself learns nothing from it.

        Shape: ``s (B, D, d)``, a latent for every feature.
        """
        decoded: Decoded = decoder(s, frozen=True)
        return replace(decoded, log_var=self.log_var)
