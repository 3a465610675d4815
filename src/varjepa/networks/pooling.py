"""Attention pooling: any number of tokens to a fixed number, whatever their order."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from varjepa.networks.transformer import attend


class AttentionPooling(nn.Module):
    """Learned queries attend to the tokens.

    Shape: ``tokens (B, S, width)``, ``valid (B, S)`` → ``(B, pooled, width)``.
    """

    def __init__(self, width: int, pooled: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads = heads
        self.queries = nn.Parameter(torch.randn(pooled, width) * width**-0.5)
        self.project_in = nn.Linear(width, 2 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, tokens: Tensor, valid: Tensor | None) -> Tensor:
        rows, length, width = tokens.shape
        kv = self.project_in(tokens).view(rows, length, 2, self.heads, width // self.heads)
        k, v = kv.permute(2, 0, 3, 1, 4)  # (B, H, S, d_head) each
        q = self.queries.view(1, -1, self.heads, width // self.heads).transpose(1, 2)
        mixed = attend(q.expand(rows, -1, -1, -1), k, v, valid)  # (B, H, pooled, d_head)
        return self.project_out(mixed.transpose(1, 2).reshape(rows, -1, width))
