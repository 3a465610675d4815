"""Parquet files as one table that is never in memory as a whole: read from its start, or anywhere.

All have the same columns; a column that a file has no value of may have no type there. A file that
changes or goes away between two readings is refused by name.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.tables.quoting import listed, quoted
from varjepa.tables.stream_parquet import parquet_fingerprint
from varjepa.tables.streaming import StreamedTable, find_tables
from varjepa.tables.table_files import explained, extension_of

BLOCK_ROWS = 1 << 15
"""Rows in memory at a time; fewer where they are large."""


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Files of one table, in the order of their names; their rows are numbered through."""

    source: str
    """As the user called them."""

    files: tuple[StreamedTable, ...]

    schema: pa.Schema
    """Columns to learn from, with types that fit every file."""

    labels: str | None = None
    """A column of class labels, which is not learned from."""

    @classmethod
    def find(cls, source: str | os.PathLike[str], labels: str | None = None) -> TableFiles:
        """A folder of Parquet files, a pattern such as ``logs/*.parquet``, or one file."""
        text = os.fspath(source)
        files = tuple(find_tables(text))
        for file in files:
            if extension_of(file.path) != ".parquet":
                raise InputError(
                    f"{file.path} is not a .parquet file; only those are read as one table"
                )
        table = cls(text, files, _common_schema(files))
        if not table.rows:
            raise InputError(f"{text} has no rows")
        return table if labels is None else table.labelled(labels)

    def labelled(self, name: str) -> TableFiles:
        """The same with one of its columns as labels."""
        if name not in self.schema.names:
            raise InputError(f"{self.source} has no column {quoted(name)}")
        schema = self.schema.remove(self.schema.get_field_index(name))
        if not len(schema):
            raise InputError(f"{self.source} has no column besides {quoted(name)}")
        return replace(self, schema=schema, labels=name)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def cells(self) -> int:
        return self.rows * len(self.schema)

    def starts(self) -> NDArray[np.int64]:
        """Number of each file's first row."""
        return np.cumsum([0, *(file.rows for file in self.files)])[:-1]

    def blocks(self, columns: Sequence[str], rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
        """Some columns of all rows in order, at most ``rows`` at a time."""
        for number in range(len(self.files)):
            yield from self.file_blocks(number, columns, rows)

    def file_blocks(
        self, number: int, columns: Sequence[str], rows: int = BLOCK_ROWS, start: int = 0
    ) -> Iterator[pa.Table]:
        """The same of one file, from its row ``start`` on."""
        file, types = self.files[number], pa.schema([self._field(name) for name in columns])
        with naming(file):
            refuse_changed(file)
            found = start
            for block in file.blocks(list(columns), rows, start):
                found += block.num_rows
                yield block if block.schema == types else block.cast(types)
            if found != file.rows:
                raise InputError("it has lost rows while it was read")

    def _field(self, name: str) -> pa.Field:
        if name == self.labels:
            return self.files[0].schema.field(name)
        return self.schema.field(name)


def are_files(source: object) -> bool:
    """Whether a user means several files: a folder, or a pattern that is no file's name."""
    if not isinstance(source, str | os.PathLike):
        return False
    text = os.fspath(source)
    if not isinstance(text, str):
        return False
    path = Path(text)
    return path.is_dir() or (glob.has_magic(text) and not path.exists())


def refuse_changed(file: StreamedTable) -> None:
    """A file must still be what it was when it was found."""
    with explained(file.path):
        size = file.path.stat().st_size
        if size != file.bytes or parquet_fingerprint(file.path) != file.fingerprint:
            raise InputError("it has changed since it was first read")


@contextmanager
def naming(file: StreamedTable) -> Iterator[None]:
    """Errors name the file, which a block of rows does not know."""
    try:
        yield
    except InputError as error:
        if str(file.path) in str(error):
            raise
        raise InputError(f"{file.path}: {error}") from error


def _common_schema(files: Sequence[StreamedTable]) -> pa.Schema:
    """Columns in the order of the first file; types that all files have, but for empty ones."""
    first = files[0]
    types = dict(zip(first.schema.names, first.schema.types, strict=True))
    typed = dict.fromkeys(types, first)  # whose types these are
    for file in files[1:]:
        for lacking, having in ((file, first), (first, file)):
            odd = [name for name in having.schema.names if name not in lacking.schema.names]
            if odd:
                raise InputError(
                    f"{lacking.path} has no column {listed(odd)}, unlike {having.path}: files of "
                    "one table have the same columns"
                )
        for name in types:
            kind = file.schema.field(name).type
            if kind == types[name] or pa.types.is_null(kind):
                continue
            if not pa.types.is_null(types[name]):
                raise InputError(
                    f"column {quoted(name)} of {file.path} holds {kind} values, and of "
                    f"{typed[name].path} {types[name]}: files of one table have the same types"
                )
            types[name], typed[name] = kind, file
    return pa.schema(types)
