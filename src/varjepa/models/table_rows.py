"""Encoded rows, which every model on tables works on, a block or a slice at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from varjepa.nn.kernels.row_threads import RowThreads
from varjepa.tables.encoded import EncodedTable

CPU_TOKENS = 5120
"""Tokens of one pass on a CPU: what a core has room for close by, enough to hide torch's calls."""

GPU_TOKENS = 1 << 17
"""Tokens of one pass on a GPU: enough to keep it busy, a few hundred MB."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableShape:
    """What the networks need to know of a table: numeric features come first."""

    numeric: int
    """number of numeric features"""
    levels: tuple[int, ...] = ()
    """states of each categorical feature, MISSING included"""

    @property
    def features(self) -> int:
        """D_feat"""
        return self.numeric + len(self.levels)


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


def mean_over(cells: Tensor, valid: Tensor | None) -> Tensor:
    """Mean over all axes but the first, of the valid cells; 0 where a row has none.  # (B,)"""
    cells = cells.flatten(1)
    if valid is None:
        return cells.mean(-1) if cells.shape[1] else cells.new_zeros(len(cells))
    valid = valid.flatten(1)
    # where, not a product: what stands in an invalid cell may be anything, even inf
    total = torch.where(valid, cells, 0.0).sum(-1)
    return total / valid.sum(-1).clamp_min(1)
