"""Rows of a file that is read forward, any stretch of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from varjepa.errors import InputError


class ForwardRows:
    """Goes on at once where the last stretch ended, and enters the file anew anywhere else."""

    def __init__(
        self, path: Path, read: Callable[[int], Iterator[pa.Table]], skipped: int = 0
    ) -> None:
        """``read`` gives blocks from a row on; up to ``skipped`` rows are read over instead."""
        self.path, self._enter, self._skipped = path, read, skipped
        self._place = -1
        """of the row that comes next; −1: not reading yet"""
        self._blocks: Iterator[pa.Table] = iter(())
        self._rest: pa.Table | None = None

    def take(self, start: int, stop: int) -> Iterator[pa.Table]:
        """The rows from ``start`` to ``stop`` in pieces."""
        if self._place < 0 or not 0 <= start - self._place <= self._skipped:
            self._blocks, self._place, self._rest = self._enter(start), start, None
        while self._place < stop:
            block = self._rest if self._rest is not None else next(self._blocks, None)
            if block is None:
                raise InputError(f"{self.path} has lost rows while it was read")
            count = min(len(block), stop - self._place)
            self._rest = block.slice(count) if count < len(block) else None
            over = max(0, start - self._place)
            self._place += count
            if over < count:
                yield block.slice(over, count - over)
