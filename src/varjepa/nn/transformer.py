"""A pre-norm transformer encoder for short sequences of tokens."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from varjepa.nn.kernels.cpu_block import cpu_block
from varjepa.nn.kernels.cpu_inference import attend_to_keys, can_infer, infer_blocks
from varjepa.nn.kernels.fused_block import can_fuse, fused_transformer

LONG_SEQUENCE = 128
"""From here on a fused attention kernel wins; below, its tiles are mostly padding."""


def attend(q: Tensor, k: Tensor, v: Tensor, valid: Tensor | None) -> Tensor:
    """softmax(q kᵀ / √d) v over the valid keys.

    Plain products for short sequences: fused kernels pad 6–40 tokens to tiles of 128.

    Shape: ``q (B, H, S, d)``, ``k``, ``v (B, H, T, d)``, ``valid (B, T)`` bool → ``(B, H, S, d)``.
    Every row needs at least one valid key.
    """
    bias = None if valid is None else _bias(valid, q.dtype)[:, None, None, :]
    if k.shape[-2] >= LONG_SEQUENCE:
        return attend_fused(q, k, v, bias, multiple=1 if q.device.type == "cpu" else 8)
    if q.device.type == "cpu" and can_infer(q):
        return attend_to_keys(q, k, v, bias)
    scores = (q * (1.0 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2)  # (B, H, S, T)
    if bias is not None:
        scores = scores + bias
    return scores.softmax(-1) @ v


def attend_fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, multiple: int) -> Tensor:
    """The same by torch's kernel, whose memory does not grow with S · T.

    On a GPU it wants heads of a multiple of 8 numbers and would otherwise be replaced by one whose
    memory does; zeros beside a head's numbers change neither scores nor values.
    """
    width = q.shape[-1]
    if spare := -width % multiple:
        q, k, v = (nn.functional.pad(part, (0, spare)) for part in (q, k, v))
    scale = 1.0 / math.sqrt(width)
    mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
    return mixed[..., :width]


def _bias(valid: Tensor, dtype: torch.dtype) -> Tensor:
    """0 for a valid key, a very negative number for the others.  # (B, T)"""
    lowest = torch.finfo(dtype).min / 2  # −inf would make NaN gradients of fully masked scores
    return torch.zeros(valid.shape, dtype=dtype, device=valid.device).masked_fill(~valid, lowest)


class SelfAttention(nn.Module):
    """Multi-head self-attention with one fused projection for q, k and v."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads = heads
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, tokens: Tensor, valid: Tensor | None, keep: int) -> Tensor:
        """Shape: ``(B, S, width)`` → ``(B, keep, width)``, of the last tokens."""
        rows, length, width = tokens.shape
        qkv = self.project_in(tokens)
        apart = qkv.view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = apart.permute(2, 0, 3, 1, 4)  # (B, H, S, d_head) each
        mixed = attend(q[:, :, -keep:], k, v, valid)
        return self.project_out(mixed.transpose(1, 2).reshape(rows, keep, width))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int, ff: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, ff), nn.GELU(), nn.Linear(ff, width))

    def forward(self, tokens: Tensor, valid: Tensor | None, keep: int) -> Tensor:
        if _is_short_on_cpu(tokens):
            bias = None if valid is None else _bias(valid, tokens.dtype)
            heads, eps = self.attention.heads, self.mlp_norm.eps
            return cpu_block(tokens, bias, heads, keep, eps, *self.parameters())
        attended = self.attention(self.attention_norm(tokens), valid, keep)
        tokens = tokens[:, -keep:] + attended  # (B, keep, width)
        return tokens + self.mlp(self.mlp_norm(tokens))


def _is_short_on_cpu(tokens: Tensor) -> bool:
    """Whether the hand-written block serves: its backward pass knows nothing of autocast."""
    if tokens.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    return tokens.shape[1] < LONG_SEQUENCE


class Transformer(nn.Module):
    """``depth`` blocks and a last norm.

    Tokens that are not valid are never attended to; what comes out at their own place means
    nothing. The last block computes only the tokens somebody asked for.
    """

    def __init__(self, width: int, depth: int, heads: int, ff: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads, ff) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, tokens: Tensor, valid: Tensor | None = None, keep: int | None = None
    ) -> Tensor:
        """The last ``keep`` tokens, by default all of them.

        Shape: ``tokens (B, S, width)``, ``valid (B, S)`` bool or None → ``(B, keep, width)``.
        """
        length = tokens.shape[1]
        keep = length if keep is None else keep
        if keep == 0:
            return tokens[:, :0]  # nobody asked
        if torch.is_autocast_enabled("cuda") and can_fuse(tokens, self):
            products = torch.get_autocast_dtype("cuda")
            return fused_transformer(tokens, valid, self, products)[:, -keep:]
        if _is_short_on_cpu(tokens) and can_infer(tokens):
            return self.norm(self._infer(tokens, valid, keep))
        for i, block in enumerate(self.blocks):
            tokens = block(tokens, valid, keep if i == len(self.blocks) - 1 else length)
        return self.norm(tokens)

    def _infer(self, tokens: Tensor, valid: Tensor | None, keep: int) -> Tensor:
        """All blocks at once, for nobody who wants gradients."""
        bias = None if valid is None else _bias(valid, tokens.dtype)
        first: Any = self.blocks[0]
        weights = [tuple(block.parameters()) for block in self.blocks]
        return infer_blocks(tokens, bias, first.attention.heads, keep, first.mlp_norm.eps, weights)
