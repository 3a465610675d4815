"""A transformer block for short sequences on a CPU, when nobody will ask for gradients.

The same mathematics as ``Block.forward``, to 1e-5. Four fifths of the time is matrix products, so
what is gained is gained around them: bias, GELU and residual are added while a product's result is
still in registers (oneDNN does that), and the softmax is a bare power of two, several times faster
than torch's own, wherever that is safe.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LOG2_E = math.log2(math.e)
_LEAST, _MOST = 2.0**-100, 2.0**100
"""Sums of powers of two within these are far from under- and overflow, terms and all."""


def can_infer(tokens: Tensor) -> bool:
    """Whether nobody wants gradients, and torch was built with oneDNN, for this kind of number."""
    if torch.is_grad_enabled() or tokens.dtype != torch.float32:
        return False
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def infer_block(
    tokens: Tensor, bias: Tensor | None, heads: int, keep: int, eps: float, *weights: Tensor
) -> Tensor:
    """The last ``keep`` tokens of x + attention(norm(x)), then x + mlp(norm(x)).

    ``weights`` as in ``cpu_block``. Shape: ``(B, S, width)``, ``bias (B, S)`` per key →
    ``(B, keep, width)``.
    """
    g1, b1, w_qkv, b_qkv, w_out, b_out, g2, b2, w_up, b_up, w_down, b_down = weights
    rows, length, width = tokens.shape
    linear = torch.ops.mkldnn._linear_pointwise
    x_hat = torch.layer_norm(tokens, (width,), g1, b1, eps).view(-1, width)  # (B · S, width)
    qkv = linear(x_hat, w_qkv, b_qkv, "none", [], "").view(rows, length, 3 * width)
    mixed = attend_without_gradient(qkv, heads, bias, keep).view(-1, width)  # (B · keep, width)
    x = tokens[:, length - keep :].reshape(-1, width)
    y = linear.binary(mixed, x, w_out, b_out, "add")
    y_hat = torch.layer_norm(y, (width,), g2, b2, eps)
    active = linear(y_hat, w_up, b_up, "gelu", [], "none")
    result: Tensor = linear.binary(active, y, w_down, b_down, "add")
    return result.view(rows, keep, width)


def attend_without_gradient(qkv: Tensor, heads: int, bias: Tensor | None, queries: int) -> Tensor:
    """softmax(q kᵀ / √d_head + bias) v for the last ``queries`` tokens, heads side by side.

    The bias of a key is 0, or so low that it counts for nothing. Shape: ``qkv (B, S, 3 · width)``,
    ``bias (B, S)`` → ``(B, queries, width)``.
    """
    rows, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    d_head = width // heads
    q, k, v = (part.split(d_head, -1) for part in qkv.split(width, -1))  # H × (B, S, d_head) each
    scores = qkv.new_empty(heads, rows, length, queries)
    nothing, scale = qkv.new_empty(()), d_head**-0.5 * _LOG2_E
    for h in range(heads):  # on strided matrices: cheaper than copies that bring heads together
        last = q[h][:, length - queries :].mT
        torch.baddbmm(nothing, k[h], last, beta=0, alpha=scale, out=scores[h])
    if bias is not None:
        scores += bias[:, :, None]
    p, total = _powers(scores, 2)
    mixed = qkv.new_empty(heads, rows, queries, d_head)
    for h in range(heads):
        torch.bmm(p[h].mT, v[h], out=mixed[h])
    together = qkv.new_empty(rows, queries, heads, d_head)
    torch.div(mixed.permute(1, 2, 0, 3), total.permute(1, 2, 0).unsqueeze(-1), out=together)
    return together.view(rows, queries, width)


def attend_to_keys(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(q kᵀ / √d + bias) v

    Shape: ``q (B, H, S, d)``, ``k``, ``v (B, H, T, d)``, ``bias (B, 1, 1, T)`` → ``(B, H, S, d)``.
    """
    scores = (q * (q.shape[-1] ** -0.5 * _LOG2_E)) @ k.mT  # (B, H, S, T)
    if bias is not None:
        scores += bias
    p, total = _powers(scores, 3)
    return (p @ v).div_(total.unsqueeze(-1))


def _powers(scores: Tensor, keys: int) -> tuple[Tensor, Tensor]:
    """2^scores, and their sums over the axis of keys.

    Where the sums leave float32, a softmax and sums of 1 instead. Which it is, is decided per row
    and head, so that no row's result depends on another's.
    """
    p = torch.exp2(scores)
    total = p.sum(keys)
    low, high = (end.item() for end in torch.aminmax(total))
    if not (low > _LEAST and high < _MOST):  # also NaN
        wild = ~((total > _LEAST) & (total < _MOST)).all(-1)  # over queries
        p[wild] = (scores[wild] / _LOG2_E).softmax(keys - 1)  # of (wild, ·, ·)
        total[wild] = 1.0
    return p, total
