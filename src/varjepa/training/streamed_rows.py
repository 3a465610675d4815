"""Tables larger than memory: an epoch is one window of the shuffled rows.

The next window is read and encoded during the steps of this one, so two are in memory.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import torch

from varjepa.tables import TableCodec
from varjepa.tables.codec import EncodedTable
from varjepa.tables.messages import collect_warnings
from varjepa.tables.shuffling import ShuffledFiles
from varjepa.training.processes import ALONE, World
from varjepa.training.step import SAMPLE, RowSource

WINDOW_BYTES = 1 << 25
"""Encoded rows of a window; two are held."""


class WindowedRows(RowSource):
    """Consecutive windows of an endless shuffled sequence of rows."""

    def __init__(
        self,
        files: ShuffledFiles,
        codec: TableCodec,
        size: int,
        epochs: int,
        sample: EncodedTable,
        world: World = ALONE,
    ) -> None:
        """``size``: rows of a window; ``epochs``: maximum number of windows."""
        self.files, self.codec, self.size, self.epochs = files, codec, size, epochs
        self._world = world
        self._next = codec.empty(size, has_missing(codec, files.files.rows))
        self._next_numbers = torch.zeros(size, dtype=torch.int64)
        rows = self._next.to(sample.num.device, copy=True)
        super().__init__(rows, self._next_numbers.clone(), sample.take(slice(0, SAMPLE)))
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="rows")
        self._reading: tuple[int, Future[None]] | None = None
        self._closed = threading.Event()

    def begin_epoch(self, epoch: int) -> None:
        with self._world.sharing_errors():  # also waits for the slowest process
            self._await(epoch)
        for mine, new in zip(self.rows.tensors, self._next.tensors, strict=True):
            mine.copy_(new)
        assert self.row_numbers is not None
        self.row_numbers.copy_(self._next_numbers)
        if epoch + 1 < self.epochs:
            self._reading = epoch + 1, self._reader.submit(self._fill, epoch + 1)

    def close(self) -> None:
        self._closed.set()
        self._reader.shutdown()

    def _await(self, epoch: int) -> None:
        """Wait until the next window is that of ``epoch``."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading[1].result()
        if reading is None or reading[0] != epoch:
            self._fill(epoch)

    def _fill(self, epoch: int) -> None:
        numbers, place = self._next_numbers.numpy(), 0
        for table, here in self.files.read(epoch * self.size, self.size):
            if self._closed.is_set():
                return
            with collect_warnings():  # they were shown when the codec was fitted
                self._next.write(place, self.codec.to_unit(table))
            numbers[place : place + len(here)] = here
            place += len(here)
        pa.default_memory_pool().release_unused()


def window_rows(codec: TableCodec, rows: int) -> int:
    """Rows of a window: as many as fit into ``WINDOW_BYTES``, at most all."""
    n_num, n_cat = len(codec.numeric), len(codec.categorical)
    return max(1, min(rows, WINDOW_BYTES // (5 * n_num + 9 * n_cat)))


def has_missing(codec: TableCodec, rows: int) -> bool:
    """Whether any cell of the table that the codec was fitted to encodes as MISSING."""
    return any(number.marginal.missing_share for number in codec.numeric) or any(
        sum(category.levels.counts) < rows for category in codec.categorical
    )
