"""A pre-norm transformer encoder for short sequences of tokens, and the fast paths it may take.

The reference is in plain torch. A fast path computes the same numbers up to rounding; each is
tested against the reference, which runs alone inside of :func:`reference_only`. The first path of
this table whose conditions hold is taken.

===================  =========================================================================
path                 when
===================  =========================================================================
``fused_block``      a whole transformer on a GPU under autocast: Triton installed, width 16, 32
                     or 64, at most 64 tokens a row (``nn/kernels``, ``can_fuse``)
``attend_long``      attention over ``LONG_SEQUENCE`` keys or more: torch's own fused kernel
reference            everything else
===================  =========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


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


def key_bias(valid: Tensor, dtype: torch.dtype) -> Tensor:
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


# --- The one place that decides which fast path is taken, if any.

LONG_SEQUENCE = 128
"""From here on torch's fused attention kernel wins; below, its tiles are mostly padding."""

_is_enabled = True


@contextmanager
def reference_only() -> Iterator[None]:
    """No fast path is taken inside of this, in the whole process: for tests and comparisons."""
    global _is_enabled
    before, _is_enabled = _is_enabled, False
    try:
        yield
    finally:
        _is_enabled = before


def describe_kernels(device: torch.device) -> dict[str, str]:
    """Which fast paths a device can take, in words; the reference takes what is left."""
    memory = "attention whose memory grows with the tokens, not their square"
    long = {"attend_long": f"yes, from {LONG_SEQUENCE} tokens a row: {memory}"}
    if device.type == "cpu":
        return long
    from varjepa.nn.kernels.fused_block import WIDTHS, why_not_fused

    reason = why_not_fused(device)
    widths = ", ".join(map(str, sorted(WIDTHS)))
    return {
        "fused_block": f"no: {reason}" if reason else f"yes, under autocast, of width {widths}",
        **long,
    }


def attend_fast(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor | None:
    """What ``attend`` returns, by a fast path; None where the reference has to do it.

    Shape: as ``attend``; ``bias (B, 1, 1, T)``.
    """
    if not _is_enabled or k.shape[-2] < LONG_SEQUENCE:
        return None
    return attend_long(q, k, v, bias, multiple=1 if q.device.type == "cpu" else 8)


def transform_fast(
    net: Transformer, tokens: Tensor, valid: Tensor | None, keep: int, known: int
) -> Tensor | None:
    """What the transformer returns, by a fast path; None where there is none."""
    if not _is_enabled or not tokens.is_cuda or not torch.is_autocast_enabled("cuda"):
        return None
    from varjepa.nn.kernels.fused_block import can_fuse, fused_transformer  # needs Triton

    if not can_fuse(tokens, net):
        return None
    if known < tokens.shape[1]:
        valid = tokens.new_ones((len(tokens), known), dtype=torch.bool) if valid is None else valid
        valid = nn.functional.pad(valid, (0, tokens.shape[1] - known), value=False)
    return fused_transformer(tokens, valid, net, torch.get_autocast_dtype("cuda"))[:, -keep:]


def attend_long(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, multiple: int) -> Tensor:
    """Attention by torch's kernel, whose memory does not grow with S · T.

    On a GPU it wants heads of a multiple of 8 numbers and would otherwise be replaced by one whose
    memory does; zeros behind a head's numbers change neither scores nor values.
    """
    width = q.shape[-1]
    if spare := -width % multiple:
        q, k, v = (nn.functional.pad(part, (0, spare)) for part in (q, k, v))
    scale = 1.0 / math.sqrt(width)
    mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
    return mixed[..., :width]
