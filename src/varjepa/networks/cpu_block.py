"""A transformer block for short sequences on a CPU, its backward pass written by hand.

The same mathematics as ``Block.forward``. What is gained: short attention, gradients that are
summed and passed on in place, and half as many calls, which counts when a call takes microseconds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from varjepa.networks.short_attention import attend_shortly, attend_shortly_backward

_aten = torch.ops.aten


def cpu_block(
    tokens: Tensor, bias: Tensor | None, heads: int, keep: int, eps: float, *weights: Tensor
) -> Tensor:
    """The last ``keep`` tokens of x + attention(norm(x)), then x + mlp(norm(x)).

    ``weights``: weight and bias of attention norm, q-k-v, attention's output, mlp norm, mlp in, mlp
    out. Shape: ``(B, S, width)``, ``bias (B, S)`` per key → ``(B, keep, width)``.
    """
    learning = torch.is_grad_enabled()  # inside of apply it never is
    result: Tensor = _Block.apply(learning, tokens, bias, heads, keep, eps, *weights)
    return result


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
        # without a backward pass nobody needs its input again
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
    result: tuple[Tensor, Tensor, Tensor] = _aten.native_layer_norm_backward(
        grad, x, (x.shape[-1],), mean, rstd, weight, bias, everything
    )
    return result
