"""How much memory a file may grow to: a small file must not fill the machine.

Compression, dictionaries and run lengths let 2 MB on disk stand for 20 GB of text. What counts is
the size of the decoded cells, found without decoding them; what a file declares is only believed
where it speaks against the file.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from varjepa.errors import InputError

MOST_EXPANSION = 1000
"""Times its size on disk that a table may take in memory. Sorted, repetitive tables reach 100."""

ALWAYS_ALLOWED = 2**30
"""Bytes that any table may take."""


_ANY_LENGTH = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


class Room:
    """The memory that is left for one file's cells."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on_disk = path.stat().st_size
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.limit = max(ALWAYS_ALLOWED, min(MOST_EXPANSION * self.on_disk, memory))
        self.taken = 0

    def take(self, size: int) -> None:
        """Refuse the file when what was taken so far is too much."""
        self.taken += size
        if self.taken > self.limit:
            raise InputError(
                f"{self.path} has {self.on_disk / 1e6:,.1f} MB on disk but needs more than "
                f"{self.limit / 1e9:,.1f} GB in memory, so it is not read"
            )


def decoded_size(batch: pa.RecordBatch) -> int:
    """Bytes of a batch once every dictionary is written out."""
    return sum(_size(column) for column in batch.columns)


def _size(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _dictionary_size(column)
    if pa.types.is_struct(kind):
        return sum(_size(child) for child in column.flatten())
    if pa.types.is_map(kind):
        return 4 * len(column) + _size(column.keys) + _size(column.items)
    if pa.types.is_nested(kind) and hasattr(column, "flatten"):  # lists of every sort
        return 4 * len(column) + _size(column.flatten())
    return int(column.nbytes)


def _dictionary_size(column: pa.DictionaryArray) -> int:
    values = column.dictionary
    if not any(is_this(values.type) for is_this in _ANY_LENGTH):  # numbers: all of one size
        return len(column) * (int(values.nbytes) // max(1, len(values)) + 1)
    sizes = pc.binary_length(values)
    return 4 * len(column) + (pc.sum(pc.take(sizes, column.indices)).as_py() or 0)
