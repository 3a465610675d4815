"""A pre-norm transformer encoder for short sequences of tokens, in plain torch: the reference.

Faster ways to compute the same, and the choice among them, are in :mod:`varjepa.nn.kernels`.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.functional import linear

from varjepa.nn.kernels import attend_fast, key_bias, transform_fast


def attend(q: Tensor, k: Tensor, v: Tensor, valid: Tensor | None) -> Tensor:
    """softmax(q kᵀ / √d) v over the valid keys.

    Shape: ``q (B, H, S, d)``, ``k``, ``v (B, H, T, d)``, ``valid (B, T)`` bool → ``(B, H, S, d)``.
    Every row needs at least one valid key.
    """
    bias = None if valid is None else key_bias(valid, q.dtype)[:, None, None, :]
    fast = attend_fast(q, k, v, bias)
    if fast is not None:
        return fast
    scores = (q * (1.0 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2)  # (B, H, S, T)
    if bias is not None:
        scores = scores + bias
    return scores.softmax(-1) @ v


class SelfAttention(nn.Module):
    """Multi-head self-attention with one fused projection for q, k and v."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads = heads
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, tokens: Tensor, valid: Tensor | None, keep: int, known: int) -> Tensor:
        """Shape: ``(B, S, width)`` → ``(B, keep, width)``, of the last tokens."""
        rows, length, width = tokens.shape
        if known == length:
            q, k, v = self._by_heads(self.project_in(tokens))  # (B, H, S, d_head) each
            q = q[:, :, -keep:]
        else:  # keys and values of the known tokens alone
            weight, bias = self.project_in.weight, self.project_in.bias
            (q,) = self._by_heads(linear(tokens[:, -keep:], weight[:width], bias[:width]))
            k, v = self._by_heads(linear(tokens[:, :known], weight[width:], bias[width:]))
        mixed = attend(q, k, v, valid)
        return self.project_out(mixed.transpose(1, 2).reshape(rows, keep, width))

    def _by_heads(self, projected: Tensor) -> Tensor:
        """Shape: ``(B, S, n · width)`` → ``(n, B, H, S, d_head)``."""
        width = self.project_out.in_features
        apart = projected.unflatten(-1, (projected.shape[-1] // width, self.heads, -1))
        return apart.permute(2, 0, 3, 1, 4)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int, ff: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, ff), nn.GELU(), nn.Linear(ff, width))

    def forward(self, tokens: Tensor, valid: Tensor | None, keep: int, known: int) -> Tensor:
        attended = self.attention(self.attention_norm(tokens), valid, keep, known)
        tokens = tokens[:, -keep:] + attended  # (B, keep, width)
        return tokens + self.mlp(self.mlp_norm(tokens))


class Transformer(nn.Module):
    """``depth`` blocks and a last norm.

    Tokens that are not valid are never attended to; the output at their own place means nothing.
    The last block computes only the tokens that are kept.
    """

    def __init__(self, width: int, depth: int, heads: int, ff: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads, ff) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(
        self,
        tokens: Tensor,
        valid: Tensor | None = None,
        keep: int | None = None,
        known: int | None = None,
    ) -> Tensor:
        """The last ``keep`` tokens, by default all of them.

        Only the first ``known`` tokens are attended to, by default all of them; ``valid`` says
        which of these are.

        Shape: ``tokens (B, S, width)``, ``valid (B, known)`` bool or None → ``(B, keep, width)``.
        """
        length = tokens.shape[1]
        keep = length if keep is None else keep
        known = length if known is None else known
        if keep == 0:
            return tokens[:, :0]
        fast = transform_fast(self, tokens, valid, keep, known)
        if fast is not None:
            return fast
        for i, block in enumerate(self.blocks):
            tokens = block(tokens, valid, keep if i == len(self.blocks) - 1 else length, known)
        return self.norm(tokens)
