"""What the two decoders share: one linear head per feature, one learned noise variance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from varjepa.models.rows import TableShape
from varjepa.models.var_t_jepa.settings import VarTJepaSettings
from varjepa.networks.heads import FeatureHeads
from varjepa.variational.gaussian import LOG_TWO_PI, at_least_float32, soft_clamp_log_var


@dataclass(frozen=True, slots=True)
class Decoded:
    """p(π_j | s_j) for every feature: Gaussian for numbers, categorical for categories."""

    mean: Tensor  # (B, F_num)
    log_var: Tensor  # () or (B, F_num): the numbers' noise variance
    log_probs: list[tuple[Tensor, Tensor]]  # per group of features: (G,), (B, G, L_max)

    def nll(self, x_num: Tensor, x_cat: Tensor) -> Tensor:
        """−log p of every cell, meaningful where the cell is observed.  # (B, D)"""
        squared = (x_num - self.mean).square() * (-self.log_var).exp()
        numeric = 0.5 * (squared + self.log_var + LOG_TWO_PI)
        parts = [numeric]
        for features, log_probs in self.log_probs:
            state = x_cat.index_select(1, features - x_num.shape[1])  # (B, G)
            # MISSING has probability 0; a finite stand-in keeps unobserved cells out of the way
            picked = log_probs.gather(-1, state.unsqueeze(-1)).squeeze(-1)
            parts.append(torch.where(state > 0, -picked, 0.0))
        cells = torch.cat(parts, dim=1)
        if len(self.log_probs) < 2:
            return cells
        grouped = torch.cat([features for features, _ in self.log_probs])
        return torch.cat(
            [numeric, cells[:, x_num.shape[1] :].index_select(1, grouped.argsort())], dim=1
        )


class Decoder(nn.Module):
    """Heads u_j and σ², which both decoders have of their own."""

    def __init__(self, shape: TableShape, settings: VarTJepaSettings) -> None:
        super().__init__()
        self.heads = FeatureHeads(shape.numeric, shape.levels, settings.d)
        self.raw_log_var = nn.Parameter(torch.tensor(math.log(settings.noise_variance)))
        self.min_log_var = math.log(settings.min_noise_variance)

    @property
    def log_var(self) -> Tensor:
        """Log σ², softly kept above its floor."""
        free = soft_clamp_log_var(self.raw_log_var)
        # log(e^free + e^floor), without a constant that would have to be copied to a GPU each time
        return self.min_log_var + nn.functional.softplus(free - self.min_log_var)

    def forward(self, s: Tensor, frozen: bool = False) -> Decoded:
        """Values at a latent for every feature; frozen heads learn nothing from them.

        Shape: ``s (B, D, d)``.
        """
        means = at_least_float32(self.heads.means(s, frozen))
        return Decoded(means, self.log_var, self.heads.log_probs(s, frozen))
