"""Fast paths of the transformer, and the one place that decides when one is taken.

The reference is :mod:`varjepa.nn.transformer` in plain torch. A fast path computes the same numbers
up to rounding; each is tested against the reference, which runs alone inside of
:func:`reference_only`. The first path of this table whose conditions hold is taken.

===================  =========================================================================
path                 when
===================  =========================================================================
``fused_block``      a whole transformer on a GPU under autocast: Triton installed, width 16, 32
                     or 64, at most 64 tokens a row (``can_fuse``)
``attend_long``      attention over ``LONG_SEQUENCE`` keys or more: torch's own fused kernel
reference            everything else
===================  =========================================================================

Next to these, ``tf32`` lets float32 products use a GPU's tensor cores, and
:mod:`varjepa.nn.row_threads` gives every CPU core rows of its own; both are called by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from varjepa.nn.transformer import Transformer

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

    if not len(tokens) or not can_fuse(tokens, net):
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


def key_bias(valid: Tensor, dtype: torch.dtype) -> Tensor:
    """0 for a valid key, a very negative number for the others.  # (B, T)"""
    lowest = torch.finfo(dtype).min / 2  # −inf would make NaN gradients of fully masked scores
    return torch.zeros(valid.shape, dtype=dtype, device=valid.device).masked_fill(~valid, lowest)
