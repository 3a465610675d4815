"""What kind of table a file holds, what is wrong with it, and how much memory it may grow to.

A small file must not fill the machine. Compression, dictionaries and run lengths let 2 MB on disk
stand for 20 GB of text. What counts is the size of the decoded cells, found without decoding them;
what a file declares is only believed where it speaks against the file.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from varjepa.errors import InputError
from varjepa.tables.values import is_text_or_bytes

Format = Literal["CSV", "Parquet", "Arrow"]

_FORMATS: dict[str, Format] = {
    ".csv": "CSV",
    ".tsv": "CSV",
    ".parquet": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".csv.gz": "CSV",
    ".tsv.gz": "CSV",
}
_MAGIC: tuple[tuple[bytes, Format], ...] = ((b"PAR1", "Parquet"), (b"ARROW1", "Arrow"))
MAGIC = tuple(magic for magic, _ in _MAGIC)
GZIP = b"\x1f\x8b"

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""Such as s3://bucket/name, of which a Path keeps only one slash; not C:/name."""


def format_of(path: Path) -> Format:
    """By the extension; a Parquet or Arrow file that is called CSV is what it is."""
    extension = "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else [path.suffix])
    by_name = _FORMATS.get(extension.lower())
    if by_name is None:
        known = ", ".join(_FORMATS)
        raise InputError(f"cannot tell what kind of table {path} is; known extensions: {known}")
    if by_name == "CSV" and path.is_file():  # a pipe would wait
        with explained(path), path.open("rb") as file:
            head = file.read(8)
        return next((kind for magic, kind in _MAGIC if head.startswith(magic)), by_name)
    return by_name


def refuse_address(text: str) -> None:
    """Files are read through the system, which knows no buckets."""
    if _ADDRESS.match(text) and not Path(text).exists():
        whole = text if "://" in text else text.replace(":/", "://", 1)
        raise InputError(
            f"{whole} is an address, not a path; mount it as a folder, or copy its files, and give "
            "their path"
        )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """What goes wrong while a file is read, in one sentence."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a table")
        yield
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"cannot read {path}: {os.strerror(error.errno)}") from error
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(f"{path} is not a complete {format_of(path)} file: {reason}") from error


MOST_EXPANSION = 1000
"""Times its size on disk that a table may take in memory. Sorted, repetitive tables reach 100."""

ALWAYS_ALLOWED = 2**30
"""Bytes that any table may take."""


def skip_rows(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if rows < len(batch):
            yield batch.slice(rows)
        rows = max(0, rows - len(batch))


class ExpansionLimit:
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
    if not is_text_or_bytes(values.type):  # numbers: all of one size
        return len(column) * (int(values.nbytes) // max(1, len(values)) + 1)
    sizes = pc.binary_length(values)
    return 4 * len(column) + (pc.sum(pc.take(sizes, column.indices)).as_py() or 0)
