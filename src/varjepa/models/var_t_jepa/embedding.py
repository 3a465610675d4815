"""Rows to embeddings (Appendix D.5): every latent at its mean, all observed cells as context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

from varjepa.masking import FeatureMasks
from varjepa.models.var_t_jepa.model import Rows, VarTJepa
from varjepa.networks.row_slices import RowThreads
from varjepa.variational.gaussian import DiagonalGaussian

CPU_BLOCK = 128
"""Rows of one pass on a CPU: what one core has room for close by."""

GPU_TOKENS = 1 << 17
"""Tokens of one pass on a GPU: enough to keep it busy, a few hundred MB."""

T = TypeVar("T")


def whole_row_masks(rows: Rows, features: int) -> FeatureMasks:
    """Every observed cell is context; nothing is predicted."""
    device = rows.num.device
    everything = torch.arange(features, device=device).expand(len(rows), -1)
    nothing = torch.empty(len(rows), 1, 0, dtype=torch.long, device=device)
    return FeatureMasks(everything, rows.observed, nothing, None)


@torch.no_grad()
def embed_rows(model: VarTJepa, rows: Rows) -> DiagonalGaussian:
    """q(s_w | s_x, z, w) at s_x = mean, z = mean.  # (B, D, d)"""
    masks = whole_row_masks(rows, model.shape.features)
    s_x = model.q_s_x(rows, masks).mean
    return model.q_s_w(s_x, model.q_z(s_x, masks).mean, rows, masks)


def embed_in_blocks(model: VarTJepa, rows: Rows) -> DiagonalGaussian:
    """The same for any number of rows, with the memory of a block per core beside the result."""
    parts = list(map_blocks(lambda block: embed_rows(model, block), rows))
    return DiagonalGaussian(
        torch.cat([q.mean[:count] for q, count in parts]),
        torch.cat([q.log_var[:count] for q, count in parts]),
    )


def block_size(rows: Rows) -> int:
    """Rows of one pass; it depends on the table's width and the device, never on the rows."""
    if rows.num.device.type == "cpu":
        return CPU_BLOCK
    return max(64, 1 << (GPU_TOKENS // (rows.num.shape[1] + rows.cat.shape[1])).bit_length() - 1)


def map_blocks(work: Callable[[Rows], T], rows: Rows) -> Iterator[tuple[T, int]]:
    """Work on every block in order, on a CPU several at a time, and how many of its rows count.

    The last block is filled up with copies of its last row. In float32 a matrix product's rounding
    depends on its shape but not on a row's place in it, so with one shape for all blocks a row's
    result is the same to the last bit, whatever rows come with it.
    """
    device = rows.num.device
    size = block_size(rows)
    starts = [slice(start, start + size) for start in range(0, len(rows), size)]

    def one(here: slice) -> tuple[T, int]:
        index = torch.arange(here.start, here.stop, device=device).clamp_max(len(rows) - 1)
        return work(take_rows(rows, index)), min(size, len(rows) - here.start)

    if device.type != "cpu":
        yield from map(one, starts)
        return
    with RowThreads() as threads:
        yield from threads.map(one, starts)


def split_rows(rows: Rows, batch: int) -> Iterator[Rows]:
    """Consecutive slices of at most ``batch`` rows."""
    for start in range(0, len(rows), batch):
        yield take_rows(rows, slice(start, start + batch))


def take_rows(rows: Rows, index: Tensor | slice) -> Rows:
    """Some of the rows."""
    observed = None if rows.observed is None else rows.observed[index]
    return Rows(rows.num[index], rows.cat[index], observed)
