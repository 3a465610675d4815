"""Rows of large files in random order, over and over: what is read when, and the reading itself.

Parquet is entered at its row groups and read forward. So every pass takes the groups in a random
order and reads a few of them at a time, a stretch of each in turn; whoever holds a window of what
comes and shuffles it has rows from many places of the table. Any window can be read by itself: it
is a matter of its place in the sequence and the seed alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from varjepa.randomness import generator_for
from varjepa.tables.columnar_files import group_rows
from varjepa.tables.streaming import ForwardRows, TableFiles, naming, refuse_changed
from varjepa.tables.table_files import explained

STRETCH = 1 << 13
"""Rows read of one group before it is another's turn."""

AT_ONCE = 4
"""Groups that are read in turn; each that is open has a page of every column in memory."""


@dataclass(frozen=True, slots=True)
class Group:
    """A row group, or small ones next to each other: rows ``start`` to ``stop`` of a file."""

    file: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some rows of a group, read at one go."""

    group: int
    start: int
    stop: int


def find_groups(files: TableFiles) -> list[Group]:
    """All rows in groups, in the table's order; each has a stretch at least, or ends its file."""
    groups = []
    for number, file in enumerate(files.files):
        with naming(file.path), explained(file.path):
            refuse_changed(file)
            sizes = group_rows(file.path)
        start = stop = 0
        for size in sizes:
            stop += size
            if stop - start >= STRETCH or stop == file.rows > start:
                groups.append(Group(number, start, stop))
                start = stop
    return groups


def shuffled_stretches(groups: list[Group], generator: torch.Generator) -> Iterator[Stretch]:
    """Every row once: groups in random order, ``AT_ONCE`` of them in turn."""
    waiting = torch.randperm(len(groups), generator=generator).tolist()[::-1]
    places: dict[int, int] = {}  # of the open groups, in the order of their turns
    while waiting or places:
        while waiting and len(places) < AT_ONCE:
            number = waiting.pop()
            places[number] = groups[number].start
        for number, start in list(places.items()):
            stop = min(start + STRETCH, groups[number].stop)
            yield Stretch(number, start, stop)
            if stop == groups[number].stop:
                del places[number]
            else:
                places[number] = stop


class ShuffledFiles:
    """All rows but those left out, in a new order every pass; passes follow each other."""

    def __init__(self, files: TableFiles, left_out: NDArray[np.int64], seed: int) -> None:
        """``left_out``: row numbers, sorted."""
        self.files, self.left_out, self.seed = files, left_out, seed
        self.groups = find_groups(files)
        self._starts = files.starts()
        self._pass = -1
        self._stretches: list[Stretch] = []
        """of the pass that was read last"""
        self._ends = np.zeros(0, dtype=np.int64)
        """rows of that pass up to the end of each stretch"""
        self._open: OrderedDict[int, ForwardRows] = OrderedDict()

    def __len__(self) -> int:
        """Rows of one pass."""
        return self.files.rows - len(self.left_out)

    def read(self, start: int, count: int) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
        """Rows ``start`` to ``start + count`` of the endless sequence, with their row numbers."""
        while count:
            number, place = divmod(start, len(self))
            if number != self._pass:
                self._start_pass(number)
            i = int(np.searchsorted(self._ends, place, side="right"))
            before = int(self._ends[i - 1]) if i else 0
            stretch = self._stretches[i]
            rows = self._rows(stretch)[place - before :][:count]
            yield from self._read(stretch.group, rows)
            start, count = start + len(rows), count - len(rows)

    def _start_pass(self, number: int) -> None:
        generator = generator_for(self.seed, f"order of pass {number}")
        stretches = list(shuffled_stretches(self.groups, generator))
        first = self._starts[[self.groups[s.group].file for s in stretches]]
        ends = np.array([(s.start, s.stop) for s in stretches]) + first[:, None]
        inside = np.diff(np.searchsorted(self.left_out, ends), axis=1)[:, 0]
        self._ends = (ends[:, 1] - ends[:, 0] - inside).cumsum()
        self._pass, self._stretches = number, stretches

    def _rows(self, stretch: Stretch) -> NDArray[np.int64]:
        """Numbers of a stretch's rows that are not left out."""
        first = int(self._starts[self.groups[stretch.group].file])
        start, stop = first + stretch.start, first + stretch.stop
        low, high = np.searchsorted(self.left_out, (start, stop))
        return np.delete(np.arange(start, stop), self.left_out[low:high] - start)

    def _read(
        self, group: int, rows: NDArray[np.int64]
    ) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
        """Rows of one group by their numbers, which ascend."""
        number = self.groups[group].file
        reader = self._open.pop(group, None) or _open_group(self.files, self.groups[group])
        self._open[group] = reader
        while len(self._open) > AT_ONCE:
            self._open.popitem(last=False)
        first = int(self._starts[number])
        start, stop = int(rows[0]) - first, int(rows[-1]) + 1 - first
        with naming(self.files.files[number].path):
            for table in reader.take(start, stop):
                here = rows[slice(*np.searchsorted(rows - first, (start, start + len(table))))]
                if len(here):
                    whole = len(here) == len(table)
                    yield table if whole else table.take(here - first - start), here
                start += len(table)


def _open_group(files: TableFiles, group: Group) -> ForwardRows:
    """Knows the files, not who reads them: in a circle its pages would wait for the collector."""
    names = files.schema.names
    return ForwardRows(
        files.files[group.file].path,
        lambda row: files.file_blocks(group.file, names, STRETCH, row, group.stop),
        skipped=STRETCH,
    )
