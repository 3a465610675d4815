"""Rows over the cores of a CPU: a batch in slices, a table in blocks.

Each slice stays on one core from its first product to its last gradient. torch's own way is to
split every operation over all cores and to wait for the slowest each time; in a step of thousands
of short operations that waiting is half the time, and on a busy machine nearly all of it. Slices
depend on the table's width only and are summed in order, so a result is the same to the last bit
for any number of cores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

import torch
from torch import Tensor

from varjepa.tables.codec import EncodedTable

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
