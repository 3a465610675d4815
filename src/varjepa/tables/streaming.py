"""Tables larger than memory: their columns at once, their rows a block at a time.

A source is a file, a folder of Parquet files, or a pattern such as ``logs/2024-*.parquet``. Blocks
hold what :func:`read_table` would give for the same rows: the same columns, types and order.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.tables.columnar_files import (
    BLOCK_BYTES,
    arrow_blocks,
    arrow_schema,
    has_no_value,
    parquet_blocks,
    parquet_fingerprint,
    parquet_schema,
)
from varjepa.tables.csv_files import CsvFile
from varjepa.tables.messages import listed, quoted, suggestion
from varjepa.tables.reading import read_table
from varjepa.tables.table_files import decoded_size, explained, format_of, refuse_address
from varjepa.tables.values import refuse_unsupported, wider_type

_UNSEEN = (".", "_")
"""Beginnings of names that engines give to files that are not data."""


@dataclass(frozen=True, slots=True)
class StreamedTable:
    """One file of a source: what is known of it before its rows are read."""

    path: Path
    name: str
    """Its place within the source, with "/" between folders."""
    schema: pa.Schema
    """Names and types as blocks have them."""
    rows: int
    bytes: int
    fingerprint: str
    """SHA-256 of the content; of a Parquet file, of its footer."""

    def blocks(
        self, columns: Sequence[str], rows: int, start: int = 0, stop: int | None = None
    ) -> Iterator[pa.Table]:
        """Some columns of the rows from ``start`` to ``stop``, at most ``rows`` at a time.

        Only the block itself is held in memory. Fewer rows come where these would be large.
        """
        with explained(self.path):
            batches = self._batches(columns, rows, start)
            if stop is not None:
                batches = _first_rows(batches, stop - start)
            for table in _joined(batches, rows):
                yield read_table(table).select(columns)

    def _batches(self, columns: Sequence[str], rows: int, start: int) -> Iterator[pa.RecordBatch]:
        kind = format_of(self.path)
        if kind == "Parquet":
            return parquet_blocks(self.path, columns, rows, start)
        if kind == "CSV":
            return CsvFile.find(self.path).blocks(self.schema, columns, start)
        return arrow_blocks(self.path, columns, start)


def find_tables(
    source: str | os.PathLike[str], apart_from: Path | None = None
) -> list[StreamedTable]:
    """The files of a source, in the order of their names.

    ``apart_from``: a folder that is written to, whose files are no input wherever it lies.
    """
    text = os.fspath(source)
    refuse_address(text)
    path = Path(text)
    if path.is_dir():
        files = [(p.relative_to(path), p) for p in _data_files(path, path.rglob("*.parquet"))]
        if not files:
            raise InputError(f"{path} holds no .parquet file")
    elif glob.has_magic(text) and not path.exists():
        root = _fixed_folder(path)
        # a set, for some patterns match a file more than once
        matches = {Path(match) for match in glob.glob(text, recursive=True)}  # noqa: PTH207
        files = [(p.relative_to(root), p) for p in _data_files(root, matches)]
        if not files:
            raise InputError(f"no file matches {text}")
    else:
        files = [(Path(path.name), path)]
    if apart_from is not None:
        ours = apart_from.resolve()
        files = [(name, path) for name, path in files if ours not in path.resolve().parents]
        if not files:
            raise InputError(f"{text} holds no file but those of {apart_from}, the output")
    return [inspect_table(path, name.as_posix()) for name, path in files]


def inspect_table(path: Path, name: str) -> StreamedTable:
    """What a file holds. Of a Parquet file only the footer is read, every other is read through."""
    kind = format_of(path)
    with naming(path), explained(path):
        if kind == "Parquet":
            schema, rows = parquet_schema(path)
            fingerprint = parquet_fingerprint(path)
        else:
            is_csv = kind == "CSV"
            schema, rows = CsvFile.find(path).schema() if is_csv else arrow_schema(path)
            with path.open("rb") as file:
                fingerprint = hashlib.file_digest(file, "sha256").hexdigest()
        tidy = read_table(schema.empty_table()).schema
        return StreamedTable(path, name, tidy, rows, path.stat().st_size, fingerprint)


def _data_files(folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Sorted, without those that are called otherwise than data, or lie in a folder that is."""
    return sorted(
        path
        for path in paths
        if path.is_file()
        and not any(name.startswith(_UNSEEN) for name in path.relative_to(folder).parts)
    )


def _fixed_folder(pattern: Path) -> Path:
    """What stands before the first part with a wildcard."""
    parts = pattern.parts
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return Path(*parts[:first])


def _first_rows(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """So many rows; batches after them are not asked for."""
    while rows > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, rows)
        rows -= len(batch)


def _joined(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Small batches together and large ones in pieces: ``rows`` rows, or as many as have limit."""
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        per_row = decoded_size(batch) // max(1, len(batch)) + 1
        while len(batch):
            piece = batch.slice(0, min(rows - count, max(1, (BLOCK_BYTES - size) // per_row)))
            batch = batch.slice(len(piece))
            waiting.append(piece)
            count, size = count + len(piece), size + len(piece) * per_row
            if count == rows or size >= BLOCK_BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, count, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


# --- Parquet files as one table, read from its start or anywhere
#
# All files have the same columns, if perhaps of other types: those of the table hold the values of
# all files. A file that changes or goes away between two readings is refused by name.


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


BLOCK_ROWS = 1 << 15
"""Rows in memory at a time; fewer where they are large."""

Watch = Callable[[Iterator[pa.Table], int], Iterator[pa.Table]]
"""Gives back blocks that have so many rows in all, and may show how far they are."""


def unwatched(blocks: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    return blocks


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Files of one table, in the order of their names; their rows are numbered through."""

    source: str
    """As the user called them."""
    files: tuple[StreamedTable, ...]
    types: pa.Schema
    """All columns, with types that fit every file."""
    labels: str | None = None
    """A column of class labels, which is not learned from."""
    watch: Watch = unwatched
    """Through which the blocks of every reading of all rows go."""

    @classmethod
    def find(cls, source: str | os.PathLike[str], labels: str | None = None) -> TableFiles:
        """A folder of Parquet files, a pattern such as ``logs/*.parquet``, or one file."""
        text = os.fspath(source)
        files = tuple(find_tables(text))
        for file in files:
            if format_of(file.path) != "Parquet":
                raise InputError(
                    f"{file.path} is not a .parquet file; only those are read as one table"
                )
        table = cls(text, files, _common_schema(files))
        if not table.rows:
            raise InputError(f"{text} has no rows")
        return table if labels is None else table.labelled(labels)

    def labelled(self, name: str) -> TableFiles:
        """The same with one of its columns as labels."""
        if name not in self.types.names:
            raise InputError(
                f"{self.source} has no column {quoted(name)}{suggestion(name, self.types.names)}"
            )
        if len(self.types) == 1:
            raise InputError(f"{self.source} has no column besides {quoted(name)}")
        refuse_unsupported(name, self.types.field(name).type)
        return replace(self, labels=name)

    def without(self, names: Sequence[str]) -> TableFiles:
        """The same with fewer columns."""
        fields = [field for field in self.types if field.name not in names]
        return replace(self, types=pa.schema(fields))

    @property
    def schema(self) -> pa.Schema:
        """Columns to learn from."""
        if self.labels is None:
            return self.types
        return self.types.remove(self.types.get_field_index(self.labels))

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def cells(self) -> int:
        return self.rows * len(self.schema)

    @property
    def bytes(self) -> int:
        """Size of the files, in which values are compressed."""
        return sum(file.bytes for file in self.files)

    def starts(self) -> NDArray[np.int64]:
        """Number of each file's first row."""
        return np.cumsum([0, *(file.rows for file in self.files)])[:-1]

    def blocks(self, columns: Sequence[str], rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
        """Some columns of all rows in order, at most ``rows`` at a time."""
        files = range(len(self.files))
        blocks = (block for i in files for block in self.file_blocks(i, columns, rows))
        return self.watch(blocks, self.rows)

    def file_blocks(
        self,
        number: int,
        columns: Sequence[str],
        rows: int = BLOCK_ROWS,
        start: int = 0,
        stop: int | None = None,
    ) -> Iterator[pa.Table]:
        """The same of one file, from its row ``start`` to ``stop``."""
        file, types = self.files[number], pa.schema([self.types.field(name) for name in columns])
        stop = file.rows if stop is None else stop
        with naming(file.path):
            refuse_changed(file)
            place = start
            for block in file.blocks(list(columns), rows, start, stop):
                place += block.num_rows
                yield block if block.schema == types else _as_types(block, types)
            if place != stop:
                raise InputError("it has lost rows while it was read")


def pick_rows(blocks: Iterable[pa.Table], numbers: NDArray[np.int64]) -> Iterator[pa.Table]:
    """Some rows of consecutive blocks, by their numbers, which ascend."""
    start = 0
    for block in blocks:
        here = numbers[slice(*np.searchsorted(numbers, (start, start + block.num_rows)))]
        if len(here):
            yield block.take(pa.array(here - start))
        start += block.num_rows


def refuse_changed(file: StreamedTable) -> None:
    """A file must still be what it was when it was found."""
    with explained(file.path):
        size = file.path.stat().st_size
        if size != file.bytes or parquet_fingerprint(file.path) != file.fingerprint:
            raise InputError("it has changed since it was first read")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors name the file, which a block of rows does not know."""
    try:
        yield
    except InputError as error:
        if type(error) is not InputError or str(path) in str(error):
            raise
        raise InputError(f"{path}: {error}") from error


def _common_schema(files: Sequence[StreamedTable]) -> pa.Schema:
    """Columns in the order of the first file; types that fit every file that has rows."""
    first, filled = files[0], [file for file in files if file.rows]
    for file in files[1:]:
        for lacking, having in ((file, first), (first, file)):
            known = set(lacking.schema.names)
            odd = [name for name in having.schema.names if name not in known]
            if odd:
                raise InputError(
                    f"{lacking.path} has no column {listed(odd)}, unlike {having.path}: files of "
                    "one table have the same columns"
                )
    return pa.schema({name: _fitting_type(name, filled) for name in first.schema.names})


def _fitting_type(name: str, files: Sequence[StreamedTable]) -> pa.DataType:
    try:
        return _common_type(name, files)
    except InputError:  # pandas writes a column without a value as floats, whatever it is elsewhere
        return _common_type(name, [file for file in files if not has_no_value(file.path, name)])


def _common_type(name: str, files: Sequence[StreamedTable]) -> pa.DataType:
    common, widened_for = pa.null(), None
    for file in files:
        kind = file.schema.field(name).type
        wide = common if kind == common else wider_type(common, kind)
        if wide is None:
            assert widened_for is not None
            raise InputError(
                f"column {quoted(name)} of {file.path} holds {kind} values, and of "
                f"{widened_for.path} {common}: no type is for both"
            )
        if wide != common:
            common, widened_for = wide, file
    return common


def _as_types(block: pa.Table, types: pa.Schema) -> pa.Table:
    return pa.table([_as_type(block[field.name], field) for field in types], schema=types)


def _as_type(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), field.type)])
    # integers beyond 2^53 lose digits as floats, as they would in a table in one piece
    options = pc.CastOptions(field.type, allow_float_truncate=True)
    try:
        return pc.cast(column, options=options)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"column {quoted(field.name)} holds a value that does not fit in {field.type}, the "
            "type that fits the other files"
        ) from error
