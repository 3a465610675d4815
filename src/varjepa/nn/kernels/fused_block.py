"""A transformer over short sequences in six kernel launches, forward and backward together.

With 6–48 tokens a row, the plain transformer is hundreds of kernels that each do too little to pay
for their launch. Here a program takes a few whole sequences through all layers at once. One H200,
forward and backward in a CUDA graph, microseconds (8 layers of width 64 twice, 4 of width 16;
benchmarks/results/bench-fused.json):

=====================  ===============  =====
rows × tokens × width  plain, bfloat16  fused
=====================  ===============  =====
512 × 20 × 64                     3331    577
512 × 6 × 64                      2191    265
2048 × 12 × 16                    2499    324
=====================  ===============  =====
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from varjepa.nn.kernels.fused_kernels import (
    backward_kernel,
    element_type,
    finish_kernel,
    forward_kernel,
    gradient_kernel,
)

if TYPE_CHECKING:
    from varjepa.nn.transformer import Transformer

WIDTHS = (16, 32, 64)
"""Widths whose weights and tiles fit a program."""

SPLIT = 512
"""Fewest tokens over which a program sums a weight gradient."""
SPLITS = 12
"""Maximum number of parts into which the tokens are split for that: enough to fill a GPU, and a
constant, so that sums are ordered alike on every one."""

_INDEX_LIMIT = 2**31
_TRITON = importlib.util.find_spec("triton") is not None


@dataclass(frozen=True, slots=True)
class Launch:
    """How a pass over a transformer is cut into programs."""

    tile: int
    """Tokens a program holds, a power of two; sequences are never cut."""
    chunk: int = 64
    """Maximum number of hidden units of the mlp taken at once."""
    warps: int = 4
    stages: int = 1
    """How far ahead the mlp's weights are fetched."""
    registers: int | None = None
    """Maximum number of registers per thread: fewer let more programs run at once."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the kernels are compiled for."""

    heads: int
    ff: int
    depth: int
    eps: float
    products: torch.dtype
    forward: Launch
    backward: Launch


def choose_launches(rows: int, length: int, width: int) -> tuple[Launch, Launch]:
    """Forward and backward as measured on an H200.

    Small tiles waste less of the machine on few tokens, large ones do more work a program. An H200
    holds two programs a multiprocessor, 264 at once; such a wave of width 64 takes backward 99 µs
    with tiles of 16 and 290 with tiles of 64 (8 layers).
    """
    if width == 16:  # narrow enough for four programs a multiprocessor
        return Launch(64, registers=128), Launch(64, registers=128)
    if (
        width == 64
        and length <= 16
        and 99 * _waves(rows, length, 16) < 290 * _waves(rows, length, 64)
    ):
        return Launch(16), Launch(16)
    return Launch(64), Launch(64)


def _waves(rows: int, length: int, tile: int) -> int:
    return _ceil(_ceil(rows, tile // length), 264)


def can_fuse(tokens: Tensor, transformer: Transformer) -> bool:
    """Whether ``fused_transformer`` takes this input: on a GPU, short, narrow and not enormous."""
    rows, length, width = tokens.shape
    ff, depth = _hidden(transformer), len(transformer.blocks)
    return (
        tokens.is_cuda
        and why_not_fused(tokens.device) is None
        and width in WIDTHS
        and length <= 64
        and ff % 16 == 0
        and rows > 0
        and depth * rows * length * max(3 * width, ff) < _INDEX_LIMIT
        and all(p.dtype == torch.float32 for p in transformer.parameters())
    )


def why_not_fused(device: torch.device) -> str | None:
    """Why a GPU cannot take the fused path at all; None where it can."""
    if not _TRITON:
        return "Triton is not installed"
    old = torch.cuda.get_device_capability(device) < (8, 0)
    return "the GPU's compute capability is below 8.0" if old else None


def fused_transformer(
    tokens: Tensor,
    valid: Tensor | None,
    transformer: Transformer,
    products: torch.dtype = torch.bfloat16,
    launches: tuple[Launch, Launch] | None = None,
) -> Tensor:
    """What ``transformer(tokens, valid)`` gives, with operands of matrix products in ``products``.

    Sums, norms, softmax and the residual stream are float32. Gradients reach the tokens and every
    parameter; they do not depend on scheduling, so runs repeat bit for bit. Float32 products are
    for checks: on a GPU they compile slowly and run on no matrix unit.

    Shape: ``tokens (B, S, width)``, ``valid (B, S)`` bool or None → ``(B, S, width)``.
    """
    forward, backward = launches or choose_launches(*tokens.shape)
    shape = _Shape(
        heads=transformer.blocks[0].attention.heads,  # type: ignore[union-attr, arg-type]
        ff=_hidden(transformer),
        depth=len(transformer.blocks),
        eps=transformer.norm.eps,
        products=products,
        forward=forward,
        backward=backward,
    )
    parameters = tuple(transformer.parameters())
    save = torch.is_grad_enabled() and any(p.requires_grad for p in (tokens, *parameters))
    return _FusedTransformer.apply(tokens, valid, shape, save, *parameters)


class _FusedTransformer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        valid: Tensor | None,
        shape: _Shape,
        save: bool,
        *parameters: Tensor,
    ) -> Tensor:
        length, width = tokens.shape[1:]
        x = tokens.float().contiguous()
        total = x.numel() // width
        # the bytes themselves: a copy would be one more launch
        seen = None if valid is None else valid.contiguous().view(torch.uint8)
        vectors = torch.cat([p.reshape(-1) for p in parameters])
        matrices = vectors.to(shape.products)
        y = torch.empty_like(x)
        kept = _tape(x, total, width, shape) if save else (x,) * 6
        per_tile = shape.forward.tile // length * length
        forward_kernel[(_ceil(total, per_tile),)](
            x, y, matrices, vectors, x if seen is None else seen, *kept,
            total, length, per_tile, shape.depth,
            **_options(shape, width, shape.forward),
            MASKED=seen is not None,
            SAVE=save,
        )  # fmt: skip
        ctx.save_for_backward(matrices, vectors, seen, *(kept if save else ()))
        ctx.shape, ctx.sizes = shape, [p.shape for p in parameters]
        ctx.tokens_dtype = tokens.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        shape: _Shape = ctx.shape
        matrices, vectors, seen, *kept = ctx.saved_tensors
        hats, inverses, projections, normalisers, mixtures, hiddens = kept
        length, width = dy.shape[1:]
        dy = dy.float().contiguous()
        total = dy.numel() // width
        per_tile = shape.backward.tile // length * length
        dx = torch.empty_like(dy)
        douts = hats.new_empty((2 * shape.depth, total, width))
        dprojections, dhiddens = torch.empty_like(projections), torch.empty_like(hiddens)
        backward_kernel[(_ceil(total, per_tile),)](
            dy, dx, matrices, vectors, dy if seen is None else seen,
            hats, inverses, projections, normalisers, hiddens, douts, dprojections, dhiddens,
            total, length, per_tile, shape.depth,
            **_options(shape, width, shape.backward),
            MASKED=seen is not None,
        )  # fmt: skip
        per_split = max(SPLIT, _ceil(total, SPLITS))
        splits = _ceil(total, per_split)
        partials = vectors.new_empty((splits, vectors.numel()))
        chunk = _chunk(shape, 64)
        gradient_kernel[(5 + 2 * shape.ff // chunk, shape.depth, splits)](
            partials, dy, hats, mixtures, hiddens, douts, dprojections, dhiddens,
            total, per_split, shape.depth,
            D=width, FF=shape.ff, CHUNK=chunk, STEP=64,
            DOT=element_type(shape.products),
            num_warps=4,
            num_stages=3,
        )  # fmt: skip
        flat = torch.empty_like(vectors)
        finish_kernel[(4, shape.depth + 1, width // 16)](
            partials, flat, vectors, splits, shape.depth,
            D=width, FF=shape.ff, BLOCK=256, SLAB=16,
            num_warps=4,
        )  # fmt: skip
        return dx.to(ctx.tokens_dtype), None, None, None, *_unflatten(flat, ctx.sizes)


def _tape(x: Tensor, total: int, width: int, shape: _Shape) -> tuple[Tensor, ...]:
    """What backward reads again: cheaper to keep than to compute twice."""
    depth, dtype = shape.depth, shape.products
    return (
        x.new_empty((2 * depth + 1, total, width), dtype=dtype),  # standardised rows
        x.new_empty((2 * depth + 1, total)),  # one over their deviation
        x.new_empty((3 * depth, total, width), dtype=dtype),  # q, k, v
        x.new_empty((depth, shape.heads, total)),  # log Σ exp of the scores
        x.new_empty((depth, total, width), dtype=dtype),  # attention's answer
        x.new_empty((depth, total, shape.ff), dtype=dtype),  # mlp before GELU
    )


def _options(shape: _Shape, width: int, launch: Launch) -> dict[str, Any]:
    return {
        "D": width,
        "FF": shape.ff,
        "HEADS": shape.heads,
        "EPS": shape.eps,
        "SCALE": (width // shape.heads) ** -0.5,
        "T": launch.tile,
        "CHUNK": _chunk(shape, launch.chunk),
        "DOT": element_type(shape.products),
        "num_warps": launch.warps,
        "num_stages": launch.stages,
        "maxnreg": launch.registers,
    }


def _chunk(shape: _Shape, limit: int) -> int:
    """The largest power of two up to ``limit`` that divides the hidden units."""
    return min(limit, shape.ff & -shape.ff)


def _hidden(transformer: Transformer) -> int:
    return transformer.blocks[0].mlp[0].out_features  # type: ignore[index, union-attr]


def _unflatten(flat: Tensor, sizes: Sequence[torch.Size]) -> list[Tensor]:
    parts = flat.split([size.numel() for size in sizes])
    return [part.view(size) for part, size in zip(parts, sizes, strict=True)]


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
