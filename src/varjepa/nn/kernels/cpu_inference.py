"""A transformer's blocks for short sequences on a CPU. Inference only: there is no backward pass.

The same mathematics as ``Block.forward``, to 1e-5. Most of the time is matrix products that no
rewriting makes faster, so what is gained is gained around them:

- A few rows at a time go through all blocks, in arrays that stay close by.
- The norms' weights go into the products behind them, and the products before them keep tokens at
  mean 0, so that of a norm only a division by the token's length is left.
- Bias, GELU and residual are added while a product's result is still in registers (oneDNN does
  that).
- The softmax is a bare power of two, several times faster than torch's own, wherever that is safe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

TOKENS = 2560
"""Tokens that go through all blocks together: more leave the cache, fewer wait for torch's calls"""

_LOG2_E = math.log2(math.e)
_LEAST, _MOST = 2.0**-100, 2.0**100
"""Sums of powers of two within these are far from under- and overflow, terms and all."""


def can_infer(tokens: Tensor) -> bool:
    """Whether gradients are off, numbers are float32, and torch was built with oneDNN."""
    if torch.is_grad_enabled() or tokens.dtype != torch.float32:
        return False
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def infer_blocks(
    tokens: Tensor,
    bias: Tensor | None,
    heads: int,
    keep: int,
    eps: float,
    blocks: Sequence[Sequence[Tensor]],
) -> Tensor:
    """The last ``keep`` tokens after all blocks, less their mean, which the norm behind takes away.

    A block is its weights as in ``run_block``. Rows go in parts of one size, the last of which may
    overlap the one before, so that a row's result does not depend on its place.

    Shape: ``(B, S, width)``, ``bias (B, S)`` per key, 0 or very low → ``(B, keep, width)``.
    """
    rows, length, width = tokens.shape
    size = _part(rows, length)
    layers = _fold(blocks, heads)
    every = Attention(tokens, size, length, length, heads)
    last = every if keep == length else Attention(tokens, size, length, keep, heads)
    tiny = tokens.new_full((1, 1), width * eps)
    result = tokens.new_empty(rows, keep, width)
    for start in range(0, rows, size or 1):
        stop = min(rows, start + size)
        here = slice(stop - size, stop)
        x = (tokens[here] - tokens[here].mean(-1, keepdim=True)).view(-1, width)  # (b · S, width)
        low = None if bias is None else bias[here, :, None]
        for layer in layers[:-1]:
            x = _infer_block(x, layer, every, low, tiny)
        result[here] = _infer_block(x, layers[-1], last, low, tiny).view(size, keep, width)
    return result


def _part(rows: int, length: int) -> int:
    """Rows of a part, equal ones where rows are a power of two.

    A multiple of 16, where there are so many: a product computes what is left over of its rows in
    another way, with other last bits.
    """
    parts = 1 << (-(-rows * length // TOKENS) - 1).bit_length()
    return min(rows, -(-rows // (16 * parts)) * 16)


class _Layer(NamedTuple):
    """A block's weights with the norms folded in."""

    w_qkv: Tensor  # (width, 3 · width)
    b_qkv: Tensor
    w_out: Tensor  # (width, width)
    b_out: Tensor
    w_up: Tensor  # (ff, width)
    b_up: Tensor
    w_down: Tensor  # (width, ff)
    b_down: Tensor


def _fold(blocks: Sequence[Sequence[Tensor]], heads: int) -> list[_Layer]:
    """norm(x) = √width · γ ⊙ x / |x| + β for x of mean 0; scores become exponents of 2."""
    stacked = [torch.stack(list(each)) for each in zip(*blocks, strict=True)]  # (L, ...)
    g1, b1, w_qkv, b_qkv, w_out, b_out, g2, b2, w_up, b_up, w_down, b_down = stacked
    width = g1.shape[1]
    for gain, shift, w, b in ((g1, b1, w_qkv, b_qkv), (g2, b2, w_up, b_up)):
        b += (w @ shift.unsqueeze(-1)).squeeze(-1)
        w *= width**0.5 * gain.unsqueeze(1)
    for queries in (w_qkv[:, :width], b_qkv[:, :width]):
        queries *= (width // heads) ** -0.5 * _LOG2_E
    for added in (w_out, b_out, w_down, b_down):
        added -= added.mean(1, keepdim=True)
    folded = (w_qkv.mT, b_qkv, w_out, b_out, w_up, b_up, w_down, b_down)
    return [_Layer(*each) for each in zip(*folded, strict=True)]


def _infer_block(
    x: Tensor, o: _Layer, attention: Attention, bias: Tensor | None, tiny: Tensor
) -> Tensor:
    """Compute x + attention(norm(x)), then x + mlp(norm(x)), of the last tokens asked for."""
    linear = torch.ops.mkldnn._linear_pointwise
    torch.addmm(o.b_qkv, _unit(x, tiny), o.w_qkv, out=attention.qkv)
    y = linear.binary(attention.attend(bias), attention.asked_of(x), o.w_out, o.b_out, "add")
    active = linear(_unit(y, tiny), o.w_up, o.b_up, "gelu", [], "none")
    return linear.binary(active, y, o.w_down, o.b_down, "add")


def _unit(x: Tensor, tiny: Tensor) -> Tensor:
    """X / √(|x|² + tiny)"""
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * torch.addcmul(tiny, size, size, out=size).rsqrt_()


class Attention:
    """softmax(q kᵀ) v of ``qkv``, for the last ``asked`` tokens of each row, heads side by side.

    It keeps its arrays, and every view of them that it needs: a torch call costs microseconds, and
    making views would be most of the calls.
    """

    def __init__(self, like: Tensor, rows: int, length: int, asked: int, heads: int) -> None:
        width = like.shape[-1]
        self.shape, self.asked = (rows, length, width), asked
        self.qkv = like.new_empty(rows * length, 3 * width)  # to be written to
        q, k, v = self.qkv.view(rows, length, 3, heads, -1).permute(2, 3, 0, 1, 4)  # (H, B, S, ·)
        self.p = like.new_empty(heads, rows, length, asked)  # scores, then their powers
        self.mixed = like.new_empty(heads, rows, asked, width // heads)
        self.together = like.new_empty(rows * asked, width)
        # head by head on strided matrices: cheaper than copies that bring heads together
        self.scoring = list(zip(k, q[:, :, length - asked :].mT, self.p, strict=True))
        self.mixing = list(zip(self.p.mT, v, self.mixed, strict=True))
        self.parts = list(self.mixed.view(heads, rows * asked, -1))

    def asked_of(self, x: Tensor) -> Tensor:
        """(B · S, width) → (B · asked, width)"""
        _, length, width = self.shape
        if self.asked == length:
            return x
        return x.view(self.shape)[:, length - self.asked :].reshape(-1, width)

    def attend(self, bias: Tensor | None) -> Tensor:
        """Shape: ``bias (B, S, 1)`` → ``(B · asked, width)``, overwritten by the next call."""
        self._score(bias)
        total = self.p.exp2_().sum(2)  # (H, B, asked)
        if not _is_safe(total):
            wild = _wild(total)
            powers = self.p.clone()
            self._score(bias)
            powers[wild] = (self.p[wild] / _LOG2_E).softmax(1)  # of (wild, S, asked)
            self.p.copy_(powers)
            total[wild] = 1.0
        for p, v, out in self.mixing:
            torch.bmm(p, v, out=out)
        self.mixed *= total.reciprocal_().unsqueeze(-1)
        return torch.cat(self.parts, 1, out=self.together)

    def _score(self, bias: Tensor | None) -> None:
        """Keys × queries, so that sums over keys run over contiguous queries."""
        for k, q, out in self.scoring:
            torch.bmm(k, q, out=out)
        if bias is not None:
            self.p += bias


def attend_to_keys(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(q kᵀ / √d + bias) v

    Shape: ``q (B, H, S, d)``, ``k``, ``v (B, H, T, d)``, ``bias (B, 1, 1, T)`` → ``(B, H, S, d)``.
    """
    scores = (q * (q.shape[-1] ** -0.5 * _LOG2_E)) @ k.mT  # (B, H, S, T)
    if bias is not None:
        scores += bias
    p = torch.exp2(scores)
    total = p.sum(3)
    if not _is_safe(total):
        wild = _wild(total)
        p[wild] = (scores[wild] / _LOG2_E).softmax(2)
        total[wild] = 1.0
    return (p @ v).div_(total.unsqueeze(-1))


def _is_safe(total: Tensor) -> bool:
    """Whether sums of powers stayed within float32, all of them."""
    low, high = (end.item() for end in torch.aminmax(total))
    return low > _LEAST and high < _MOST  # NaN is not


def _wild(total: Tensor) -> Tensor:
    """Where a softmax has to do it.

    Decided per row and head, so that no row's result depends on another's.  # (..., Q) → (...)
    """
    return ~((total > _LEAST) & (total < _MOST)).all(-1)
