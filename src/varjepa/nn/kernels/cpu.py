"""The transformer for short sequences on a CPU: a block with gradients, all blocks for inference.

A table's row is 3 to 60 tokens. There the products are so small that general kernels spend their
time on copies, on softmaxes over short last axes and on torch's calls.

With gradients (:func:`run_block`, backward by hand): scores are kept transposed, keys × queries, so
that the softmax runs down the columns and its inner loop is over contiguous queries; where a token
is narrow, the heads are not taken apart at all; gradients are summed and passed on in place.

Without (:func:`infer_blocks`, to 1e-5): a few rows at a time go through all blocks, in arrays that
stay in the cache; the norms' weights go into the products behind them, and the products before them
keep tokens at mean 0, so that of a norm only a division by the token's length is left; oneDNN adds
bias, GELU and residual to a product; the softmax is a bare power of two where that is safe.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from varjepa.tables.codec import EncodedTable

# --- Forward and backward.


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


# --- Inference only.


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


# --- Rows over the cores: a batch in slices, each on one core from its first product to its last
# gradient. torch's own way is to split every operation over all cores and to wait for the slowest
# each time; in a step of thousands of short operations that waiting is half the time, and on a busy
# machine nearly all of it. Slices depend on the table's width only and are summed in order, so a
# result is the same to the last bit for any number of cores.


SLICE_TOKENS = 2560
"""Maximum tokens of a slice: few enough for arrays of a few MB, enough to hide torch's calls."""

P = TypeVar("P")
T = TypeVar("T")


def slices_of(rows: int, tokens: int) -> list[slice]:
    """Consecutive slices of equal size, for rows of so many tokens.

    Where rows allow, their number is a power of two, so that 2, 4 or 8 cores end together.
    """
    count = 1 << max(0, (-(-rows * tokens // SLICE_TOKENS) - 1).bit_length())
    size = max(1, -(-rows // count))
    return [slice(start, min(rows, start + size)) for start in range(0, rows, size)]


@contextmanager
def one_thread() -> Iterator[None]:
    """No operation of this thread is split over cores: short ones would mostly wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class RowThreads:
    """One thread per core, each computing on that core alone; close it after use.

    With a single core no thread is started. Grad mode and autocast belong to a thread: work that
    needs either sets it itself.
    """

    def __init__(self, cores: int | None = None) -> None:
        """``cores`` None takes as many as torch uses in this thread."""
        self.cores = torch.get_num_threads() if cores is None else cores
        self._pool: ThreadPoolExecutor | None = None
        if self.cores > 1:
            before = torch.get_num_threads()
            started = threading.Barrier(self.cores + 1)

            def start() -> None:
                torch.set_num_threads(1)  # of this thread, and the default of threads to come
                torch.get_num_threads()  # a thread takes up the default at its first use of it
                started.wait()

            self._pool = ThreadPoolExecutor(self.cores, "varjepa-rows")
            try:
                for _ in range(self.cores):
                    self._pool.submit(start)
                started.wait()
            except BaseException:  # Ctrl-C: let the threads that wait go
                started.abort()
                self.close()
                raise
            finally:
                torch.set_num_threads(before)

    def map(self, work: Callable[[P], T], slices: Sequence[P]) -> Iterator[T]:
        """Results in the order of the slices, or other parts, the first as soon as it is there."""
        if self._pool is not None and len(slices) > 1:
            yield from self._pool.map(work, slices)
            return
        with one_thread():  # the same arithmetic, to the last bit
            yield from (work(rows) for rows in slices)

    def backward(
        self,
        work: Callable[[slice], tuple[Tensor, T]],
        slices: Sequence[slice],
        parameters: Iterable[Tensor],
    ) -> list[T]:
        """Add the gradients of Σ over slices of what ``work`` returns first to ``grad``.

        The second thing it returns is handed back, a list over slices.
        """
        learned = [p for p in parameters if p.requires_grad]

        def one(rows: slice) -> tuple[tuple[Tensor | None, ...], T]:
            total, kept = work(rows)
            return torch.autograd.grad(total, learned, allow_unused=True), kept

        everything = []
        for gradients, kept in self.map(one, slices):
            used = [(p, g) for p, g in zip(learned, gradients, strict=True) if g is not None]
            first = [(p, g) for p, g in used if p.grad is None]
            later = [(p.grad, g) for p, g in used if p.grad is not None]
            if later:
                torch._foreach_add_(*(list(each) for each in zip(*later, strict=True)))
            for parameter, gradient in first:
                parameter.grad = gradient
            everything.append(kept)
        return everything

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def __enter__(self) -> RowThreads:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


CPU_TOKENS = 5120
"""Tokens of one pass on a CPU: what fits into a core's cache, enough to hide torch's calls."""

GPU_TOKENS = 1 << 17
"""Tokens of one pass on a GPU: enough to keep it busy, a few hundred MB."""


def block_size(features: int, device: torch.device) -> int:
    """Rows of one pass; it depends on the table's width and the device, never on the rows."""
    on_cpu = device.type == "cpu"
    fitting = (CPU_TOKENS if on_cpu else GPU_TOKENS) // features
    rounded = 1 << fitting.bit_length() >> 1  # down to a power of two
    return min(512, max(16, rounded)) if on_cpu else max(64, rounded)


def map_blocks(work: Callable[[EncodedTable], T], rows: EncodedTable) -> Iterator[tuple[T, int]]:
    """Work on every block in order, on a CPU several at a time, and how many of its rows count.

    The last block is filled up with copies of its last row. In float32 a matrix product's rounding
    depends on its shape but not on a row's place in it, so with one shape for all blocks a row's
    result is the same to the last bit, whatever rows come with it.
    """
    device = rows.num.device
    size = block_size(rows.num.shape[1] + rows.cat.shape[1], device)
    starts = [slice(start, start + size) for start in range(0, len(rows), size)]

    def one(here: slice) -> tuple[T, int]:
        index = torch.arange(here.start, here.stop, device=device).clamp_max(len(rows) - 1)
        return work(rows.take(index)), min(size, len(rows) - here.start)

    if device.type != "cpu":
        yield from map(one, starts)
        return
    with RowThreads() as threads:
        yield from threads.map(one, starts)
