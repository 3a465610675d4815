"""A transformer block for short sequences on a CPU, forward and backward by hand.

The same mathematics as ``Block.forward``. A table's row is 3 to 60 tokens. There the products are
so small that a general kernel spends its time on copies and on softmaxes over short last axes.
Three remedies: scores are kept transposed, keys × queries, so that the softmax runs down the
columns and its inner loop is over contiguous queries; where a token is narrow, the heads are not
taken apart at all; gradients are summed and passed on in place, in half as many calls of torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_aten = torch.ops.aten

NARROW = 32
"""Width up to which one product over all heads, mostly with zeros, beats one product per head."""

Kept = tuple[Tensor, ...]
"""What the backward pass needs of the forward pass."""


def attend_shortly(
    qkv: Tensor, heads: int, bias: Tensor | None, queries: int
) -> tuple[Tensor, Kept]:
    """softmax(q kᵀ / √d_head + bias) v for the last ``queries`` tokens, heads side by side.

    Shape: ``qkv (B, S, 3 · width)``, ``bias (B, S)`` per key → ``(B, queries, width)``.
    """
    forward = _together if qkv.shape[-1] <= 3 * NARROW else _apart
    return forward(qkv, heads, bias, queries)


def attend_shortly_backward(grad: Tensor, kept: Kept, heads: int) -> Tensor:
    """The gradient of qkv.  # (B, queries, width) → (B, S, 3 · width)"""
    return _together_backward(grad, kept, heads) if len(kept) == 4 else _apart_backward(grad, kept)


def _apart(qkv: Tensor, heads: int, bias: Tensor | None, queries: int) -> tuple[Tensor, Kept]:
    """One copy brings q, k and v into B · H small matrices each."""
    rows, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    apart = qkv.view(rows, length, 3, heads, -1).permute(2, 0, 3, 1, 4).contiguous()
    q, k, v = apart.view(3, rows * heads, length, -1)  # (B · H, S, d_head) each
    scores = _scaled(k, q[:, -queries:].mT, width // heads)  # (B · H, S, Q)
    if bias is not None:
        scores.view(rows, heads, length, queries).add_(bias[:, None, :, None])
    p = scores.softmax(1)
    mixed = torch.bmm(p.mT, v).view(rows, heads, queries, -1)
    return mixed.transpose(1, 2).reshape(rows, queries, width), (apart, p)


def _apart_backward(grad: Tensor, kept: Kept) -> Tensor:
    apart, p = kept
    _, rows, heads, length, d_head = apart.shape
    queries = grad.shape[1]
    q, k, v = apart.view(3, rows * heads, length, d_head)
    grad = grad.view(rows, queries, heads, d_head).transpose(1, 2)
    grad = grad.reshape(rows * heads, queries, d_head)
    grads = torch.empty_like(apart)
    grad_q, grad_k, grad_v = grads.view(3, rows * heads, length, d_head)
    torch.bmm(p, grad, out=grad_v)
    grad_scores = _softmax_backward(torch.bmm(v, grad.mT), p, 1)  # (B · H, S, Q)
    grad_q[:, : length - queries] = 0.0
    # not straight into its place: torch computes into gaps matrix by matrix
    grad_q[:, length - queries :] = _scaled(grad_scores.mT, k, d_head)
    _scaled(grad_scores, q[:, -queries:], d_head, out=grad_k)
    return grads.permute(1, 3, 0, 2, 4).reshape(rows, length, -1)


def _together(qkv: Tensor, heads: int, bias: Tensor | None, queries: int) -> tuple[Tensor, Kept]:
    """Every key once per head, zero outside that head: H · S keys of full width, no transposes.

    Four times the arithmetic at four heads, but in one product per row instead of four tiny ones.
    """
    rows, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = qkv.split(width, dim=-1)  # (B, S, width) each
    mine = torch.eye(heads, dtype=qkv.dtype).repeat_interleave(width // heads, 1)[:, None]
    spread_k = (k.unsqueeze(1) * (mine * (width // heads) ** -0.5)).view(rows, -1, width)
    spread_v = (v.unsqueeze(1) * mine).view(rows, -1, width)  # (B, H · S, width)
    q = q[:, -queries:]
    scores = torch.bmm(spread_k, q.mT).view(rows, heads, length, queries)
    if bias is not None:
        scores += bias[:, None, :, None]
    p = scores.softmax(2).view(rows, heads * length, queries)
    return torch.bmm(p.mT, spread_v), (q, spread_k, spread_v, p)


def _together_backward(grad: Tensor, kept: Kept, heads: int) -> Tensor:
    q, spread_k, spread_v, p = kept
    rows, queries, width = grad.shape
    length = p.shape[1] // heads
    parts = (rows, heads, length, queries)
    grads = grad.new_empty(rows, length, 3, heads, width // heads)
    grads[:, :, 2] = _own_head(torch.bmm(p, grad), heads)
    grad_p = torch.bmm(spread_v, grad.mT)
    grad_scores = _softmax_backward(grad_p.view(parts), p.view(parts), 2)
    grad_scores = grad_scores.view(rows, heads * length, queries)
    flat = grads.view(rows, length, 3 * width)
    flat[:, : length - queries, :width] = 0.0
    flat[:, length - queries :, :width] = torch.bmm(grad_scores.mT, spread_k)
    own = _own_head(torch.bmm(grad_scores, q), heads)
    torch.mul(own, (width // heads) ** -0.5, out=grads[:, :, 1])
    return flat


def _own_head(spread: Tensor, heads: int) -> Tensor:
    """Of every key's H copies, each the entries of its own head.  # → (B, S, H, d_head)"""
    rows, _, width = spread.shape
    both = spread.view(rows, heads, -1, heads, width // heads)
    return both.diagonal(0, 1, 3).transpose(2, 3)


def _scaled(a: Tensor, b: Tensor, d_head: int, out: Tensor | None = None) -> Tensor:
    """A b / √d_head in one pass."""
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=d_head**-0.5, out=out)


def _softmax_backward(grad: Tensor, p: Tensor, dim: int) -> Tensor:
    """Gradient of the scores: p ⊙ (grad − Σ grad ⊙ p)."""
    return _aten._softmax_backward_data(grad, p, dim, p.dtype)


# --- The whole block.


def run_block(
    tokens: Tensor, bias: Tensor | None, heads: int, keep: int, eps: float, *weights: Tensor
) -> Tensor:
    """The last ``keep`` tokens of x + attention(norm(x)), then x + mlp(norm(x)).

    ``weights``: weight and bias of attention norm, q-k-v, attention's output, mlp norm, mlp in, mlp
    out. Shape: ``(B, S, width)``, ``bias (B, S)`` per key → ``(B, keep, width)``.
    """
    learning = torch.is_grad_enabled()  # inside of apply it never is
    return _Block.apply(learning, tokens, bias, heads, keep, eps, *weights)


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        learning: bool,
        tokens: Tensor,
        bias: Tensor | None,
        heads: int,
        keep: int,
        eps: float,
        *weights: Tensor,
    ) -> Tensor:
        g1, b1, w_qkv, b_qkv, w_out, b_out, g2, b2, w_up, b_up, w_down, b_down = weights
        rows, length, width = tokens.shape
        x = tokens.reshape(-1, width)  # (B · S, width)
        x_hat, mean1, rstd1 = torch.native_layer_norm(x, (width,), g1, b1, eps)
        qkv = torch.addmm(b_qkv, x_hat, w_qkv.T).view(rows, length, 3 * width)
        mixed, kept = attend_shortly(qkv, heads, bias, keep)
        mixed = mixed.view(-1, width)  # (B · keep, width)
        y = torch.addmm(b_out, mixed, w_out.T)
        y.view(rows, keep, width).add_(tokens[:, length - keep :])
        y_hat, mean2, rstd2 = torch.native_layer_norm(y, (width,), g2, b2, eps)
        up = torch.addmm(b_up, y_hat, w_up.T)
        # without a backward pass its input is not needed again
        active = torch.nn.functional.gelu(up) if learning else _aten.gelu_(up)
        result = torch.addmm(b_down, active, w_down.T).add_(y)
        ctx.save_for_backward(
            *weights, x, x_hat, mean1, rstd1, mixed, y, y_hat, mean2, rstd2, up, active, *kept
        )
        ctx.heads, ctx.rows = heads, rows
        return result.view(rows, keep, width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        g1, b1, w_qkv, _, w_out, _, g2, b2, w_up, _, w_down, _, *saved = ctx.saved_tensors
        x, x_hat, mean1, rstd1, mixed, y, y_hat, mean2, rstd2, up, active, *kept = saved
        rows, keep, width = grad.shape
        grad = grad.reshape(-1, width)  # (B · keep, width)

        d_down = grad.T @ active, grad.sum(0)
        d_up = grad @ w_down  # (B · keep, ff)
        _aten.gelu_backward.grad_input(d_up, up, grad_input=d_up)
        d_w_up = d_up.T @ y_hat, d_up.sum(0)
        d_y, *d_norm2 = _norm_backward(d_up @ w_up, y, mean2, rstd2, g2, b2)
        d_y += grad

        d_out = d_y.T @ mixed, d_y.sum(0)
        d_mixed = (d_y @ w_out).view(rows, keep, width)
        d_qkv = attend_shortly_backward(d_mixed, tuple(kept), ctx.heads).view(-1, 3 * width)
        d_w_qkv = d_qkv.T @ x_hat, d_qkv.sum(0)
        d_x, *d_norm1 = _norm_backward(d_qkv @ w_qkv, x, mean1, rstd1, g1, b1)
        d_x = d_x.view(rows, -1, width)
        d_x[:, d_x.shape[1] - keep :] += d_y.view(rows, keep, width)
        d_weights = (*d_norm1, *d_w_qkv, *d_out, *d_norm2, *d_w_up, *d_down)
        return None, d_x, None, None, None, None, *d_weights


def _norm_backward(
    grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a layer norm's input, weight and bias."""
    everything = (True, True, True)
    return _aten.native_layer_norm_backward(
        grad, x, (x.shape[-1],), mean, rstd, weight, bias, everything
    )
