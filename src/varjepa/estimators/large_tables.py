"""Tables in Parquet files: held in memory where their encoded rows fit, else streamed.

Either way the files are read a block at a time, so that never more than that is there decoded.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.randomness import generator_for
from varjepa.tables import EncodedTable, Kind, Scaling, TableCodec
from varjepa.tables.many_files import TableFiles, are_files
from varjepa.tables.remarks import Remarks, gathering_remarks
from varjepa.tables.summaries import Room

HELD_CELLS = 1 << 25
"""Cells of a table that is held in memory; each takes 5 bytes, a category's 9, and twice that for a
while. So the largest such table takes hardly more than a streamed one."""

HELD_BYTES = 1 << 28
"""Bytes of its files at most: few cells may be much text, of which a codec holds the levels."""

MOST_VALIDATION = 10_000
"""Rows held out of a streamed table at most: more would not pick another moment."""

PROBE_ROWS = 8192
"""Rows of a streamed table that a probe may learn from; the collapse alarm looks at some."""


def table_files(X: Any) -> TableFiles | None:
    """The files that a user means: several, or one that is too large to be read at once."""
    if isinstance(X, TableFiles):
        return X
    if are_files(X):
        return TableFiles.find(X)
    if isinstance(X, str | os.PathLike) and Path(X).suffix.lower() == ".parquet":
        with suppress(InputError):  # reading it will say so
            found = TableFiles.find(X)
            return found if is_streamed(found) else None
    return None


def is_streamed(files: TableFiles) -> bool:
    """Whether there is too much to hold."""
    return files.cells > HELD_CELLS or files.bytes > HELD_BYTES


def fit_codec(
    files: TableFiles,
    kinds: Mapping[str, Kind] | None,
    scaling: Scaling,
    max_levels: int,
) -> TableCodec:
    """The codec of all rows; within bounded memory where they are streamed."""
    room = Room() if is_streamed(files) else None
    codec = TableCodec.fit_blocks(
        files.schema, files.rows, files.blocks, kinds, scaling, max_levels, room
    )
    hand_back_memory()
    if room is not None:
        _warn_of_rare_levels(files, codec)
    return codec


def read_encoded(files: TableFiles, codec: TableCodec) -> EncodedTable:
    """All rows, as encoding the whole table would have given them."""
    n_num, n_cat = len(codec.numeric), len(codec.categorical)
    whole = EncodedTable(
        torch.zeros(files.rows, n_num),
        torch.zeros(files.rows, n_cat, dtype=torch.int64),
        torch.zeros(files.rows, n_num + n_cat, dtype=torch.bool),
    )
    place = 0
    with gathering_remarks() as remarks:
        for block in files.blocks(files.schema.names):
            unit = codec.to_unit(block)
            rows = slice(place, place + block.num_rows)
            whole.x_num.numpy()[rows] = unit.x_num
            whole.x_cat.numpy()[rows] = unit.x_cat
            whole.observed.numpy()[rows] = unit.observed
            place += block.num_rows
    Remarks(unseen=remarks.unseen).warn(stacklevel=3)  # infinite ones: said by the codec
    return whole


def read_labels(files: TableFiles) -> NDArray[Any] | None:
    """The labels of all rows, where there is a column of them."""
    if files.labels is None:
        return None
    parts = [
        block[files.labels].to_numpy(zero_copy_only=False) for block in files.blocks([files.labels])
    ]
    return np.concatenate(parts)


def hand_back_memory() -> None:
    """Let the system have what reading has freed; the steps ask for memory of other shapes.

    Arrow keeps its own, and so does glibc in a process that was told to.
    """
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError, TypeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _warn_of_rare_levels(files: TableFiles, codec: TableCodec) -> None:
    """What encoding every row would have remarked: levels too rare for the codec."""
    rare = {
        category.column: files.rows
        - sum(category.levels.counts)
        - round(category.missing_share * files.rows)
        for category in codec.categorical
    }
    Remarks(unseen=rare).warn(stacklevel=3)


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """Rows drawn from the whole table: the first to judge by, the others to learn from."""

    encoded: EncodedTable
    labels: NDArray[Any] | None
    held_out: NDArray[np.int64]
    """row numbers that training leaves out, sorted"""

    @property
    def judges(self) -> torch.Tensor:
        """Which of the rows are held out; where none is, those learned from."""
        count = len(self.held_out)
        return torch.arange(count) if count else self.learns

    @property
    def learns(self) -> torch.Tensor:
        return torch.arange(len(self.held_out), len(self.encoded))


def draw_rows(
    files: TableFiles, codec: TableCodec, y: NDArray[Any] | None, share: float, seed: int
) -> DrawnRows:
    """Draw and read rows to hold out, a ``share`` of all but not too many, and some to learn from.

    ``y``: labels of all rows, where they are not a column of the files.
    """
    count = min(MOST_VALIDATION, int(files.rows * share))
    wanted = min(files.rows, count + PROBE_ROWS)
    drawn = draw_numbers(files.rows, wanted, generator_for(seed, "split"))
    ascending = np.sort(drawn)
    encoded, labels = _read_numbers(files, codec, ascending)
    order = np.searchsorted(ascending, drawn)  # as drawn, so that the first few are of any place
    if y is not None:
        labels = y[drawn]
    elif labels is not None:
        labels = labels[order]
    return DrawnRows(encoded.rows(torch.from_numpy(order)), labels, np.sort(drawn[:count]))


def draw_numbers(rows: int, count: int, generator: torch.Generator) -> NDArray[np.int64]:
    """So many different row numbers in random order, without a list of all there are."""
    if rows < 4 * count:
        return torch.randperm(rows, generator=generator)[:count].numpy()
    found = torch.randint(rows, (2 * count + 100,), generator=generator).numpy()
    _, first = np.unique(found, return_index=True)
    return found[np.sort(first)[:count]]


def _read_numbers(
    files: TableFiles, codec: TableCodec, numbers: NDArray[np.int64]
) -> tuple[EncodedTable, NDArray[Any] | None]:
    """Some rows by their numbers, which ascend, and their labels."""
    parts, labels = [], []
    with gathering_remarks():
        for block in _pick(files, numbers):
            if files.labels is not None:
                labels.append(block[files.labels].to_numpy(zero_copy_only=False))
            parts.append(codec.encode(block.select(files.schema.names)))
    encoded = EncodedTable(
        torch.cat([part.x_num for part in parts]),
        torch.cat([part.x_cat for part in parts]),
        torch.cat([part.observed for part in parts]),
    )
    return encoded, np.concatenate(labels) if labels else None


def _pick(files: TableFiles, numbers: NDArray[np.int64]) -> Iterator[pa.Table]:
    labels = [] if files.labels is None else [files.labels]
    start = 0
    for block in files.blocks([*files.schema.names, *labels]):
        ends = np.searchsorted(numbers, (start, start + block.num_rows))
        here = numbers[slice(*ends)]
        if len(here):
            yield block.take(here - start)
        start += block.num_rows
