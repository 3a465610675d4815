"""Features to tokens (Eq. context-tokenization): one token per feature.

    numeric      W_num · x + b_j + e_type + e_pos_j      W_num shared by all numeric features
    categorical  Embed_j(x) + e_type + e_pos_j
    missing      MISSING + e_pos_j

Columns have no order, so "position" is a learned vector per feature. Features are numbered numeric
first, then categorical.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_INIT_STD = 0.02
_NUMERIC, _CATEGORICAL = 0, 1


class FeatureTokenizer(nn.Module):
    """Tokens of complete rows.

    All categorical features share one table of vectors, feature j's levels starting at an offset:
    one lookup instead of one per feature.
    """

    offsets: Tensor

    def __init__(self, numeric: int, levels: Sequence[int], width: int) -> None:
        """``levels[j]`` counts the states of categorical feature j, MISSING included."""
        super().__init__()
        features = numeric + len(levels)
        self.numeric = numeric
        self.weight = nn.Parameter(torch.randn(width) * _INIT_STD)
        self.bias = nn.Parameter(torch.randn(numeric, width) * _INIT_STD)
        self.embedding = nn.Parameter(torch.randn(max(1, sum(levels)), width) * _INIT_STD)
        self.kind = nn.Parameter(torch.randn(2, width) * _INIT_STD)
        self.position = nn.Parameter(torch.randn(features, width) * _INIT_STD)
        self.missing = nn.Parameter(torch.randn(width) * _INIT_STD)
        starts = torch.tensor([0, *levels], dtype=torch.long).cumsum(0)[: len(levels)]
        self.register_buffer("offsets", starts, persistent=False)

    def forward(self, x_num: Tensor, x_cat: Tensor, observed: Tensor | None) -> Tensor:
        """Shape: ``x_num (B, F_num)``, ``x_cat (B, F_cat)``, ``observed (B, F)`` → ``(B, F, d)``.

        ``observed`` None says that no cell is missing.
        """
        numeric = x_num.unsqueeze(-1) * self.weight + (self.bias + self.kind[_NUMERIC])
        categorical = (
            nn.functional.embedding(x_cat + self.offsets, self.embedding) + self.kind[_CATEGORICAL]
        )
        tokens = torch.cat([numeric, categorical], dim=1)  # (B, F, d)
        if observed is not None:
            tokens = torch.where(observed.unsqueeze(-1), tokens, self.missing)
        return tokens + self.position
