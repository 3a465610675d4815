"""Where a training's rows come from: all are in memory, or a window of them that moves on."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from varjepa.models.rows import Rows, take_rows

SAMPLE = 1024
"""Rows that the collapse alarm looks at."""


class RowSource(Protocol):
    """The rows of every epoch."""

    @property
    def rows(self) -> Rows:
        """Those of the epoch that has begun: always the same tensors, for recordings know them."""

    @property
    def sample(self) -> Rows:
        """A few rows of the table, the same at any time."""

    def begin_epoch(self, epoch: int) -> None:
        """Have the rows of epoch 0, 1, …; any may come after any."""

    def places(self, index: Tensor) -> Tensor:
        """Where in the user's table some of the epoch's rows are."""

    def close(self) -> None:
        """There is no further epoch."""


class HeldRows(RowSource):
    """A table in memory: every epoch has all its rows."""

    def __init__(self, rows: Rows, row_numbers: Tensor | None = None) -> None:
        self._rows, self._numbers = rows, row_numbers

    @property
    def rows(self) -> Rows:
        return self._rows

    @property
    def sample(self) -> Rows:
        return take_rows(self._rows, slice(0, SAMPLE))

    def begin_epoch(self, epoch: int) -> None:
        pass

    def places(self, index: Tensor) -> Tensor:
        return index if self._numbers is None else self._numbers.cpu()[index]

    def close(self) -> None:
        pass


def as_source(rows: Rows | RowSource, row_numbers: Tensor | None = None) -> RowSource:
    """Rows as a source; a source as it is."""
    return HeldRows(rows, row_numbers) if isinstance(rows, Rows) else rows
