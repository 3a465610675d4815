"""Tables as streams of blocks: CSV, Parquet and Arrow files of any size.

Rows of a CSV file in blocks, with the column types that reading it whole would give.

Arrow's streaming reader settles every type on the first block and stops where a later one does not
fit. So the file is read through once before: where a cell does not fit, the column takes the next
type in Arrow's own order, and the reading starts again.
"""

from __future__ import annotations

import glob
import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from varjepa.errors import InputError
from varjepa.tables.reading import read_table
from varjepa.tables.table_files import (
    ALWAYS_ALLOWED,
    MOST_EXPANSION,
    check_csv_head,
    csv_options,
    csv_problem,
    decoded_size,
    explained,
    extension_of,
    refuse_address,
    refuse_not_utf8,
)

_ORDER = (
    pa.null(),
    pa.int64(),
    pa.bool_(),
    pa.date32(),
    pa.time32("s"),
    pa.timestamp("s"),
    pa.timestamp("ns"),
    pa.timestamp("s", "UTC"),
    pa.timestamp("ns", "UTC"),
    pa.float64(),
    pa.string(),
    pa.binary(),
)
"""Types that Arrow tries on a column, in its order."""

_MISFIT = re.compile(r"In CSV column #(\d+): .*?(?:invalid value '(.*)'|UTF8)", re.DOTALL)


def csv_schema(path: Path, delimiter: str) -> tuple[pa.Schema, int]:
    """Columns, as :func:`read_table` would find them, and number of rows."""
    check_csv_head(path)
    try:
        schema = _open_csv(path, delimiter).schema
        refuse_not_utf8(path, schema)
        read_table(schema.empty_table())  # refuses names that would not tell columns apart
        return _settled(path, delimiter, schema)
    except pa.ArrowInvalid as error:
        raise csv_problem(path, delimiter, str(error)) from error


def csv_blocks(
    path: Path, delimiter: str, schema: pa.Schema, columns: Sequence[str], start: int
) -> Iterator[pa.RecordBatch]:
    """Blocks of about a megabyte of text, from row ``start`` on."""
    skip = start
    for batch in _open_csv(path, delimiter, schema, columns):
        if skip < len(batch):
            yield batch.slice(skip)
        skip = max(0, skip - len(batch))


def _settled(path: Path, delimiter: str, schema: pa.Schema) -> tuple[pa.Schema, int]:
    """The types that fit every cell, and the number of rows."""
    while True:
        try:
            rows = sum(len(batch) for batch in _open_csv(path, delimiter, schema))
        except pa.ArrowInvalid as error:
            misfit = _MISFIT.search(str(error))
            if misfit is None:
                raise
            place = int(misfit[1])
            looser = _next_type(schema.types[place], misfit[2])
            schema = schema.set(place, pa.field(schema.names[place], looser))
            refuse_not_utf8(path, schema)
        else:
            return schema, rows


def _open_csv(
    path: Path,
    delimiter: str,
    schema: pa.Schema | None = None,
    columns: Sequence[str] | None = None,
) -> pa.csv.CSVStreamingReader:
    read = pa.csv.ReadOptions(use_threads=False)  # it knows the number of a row it cannot read
    if schema is None:
        reader = pa.csv.open_csv(path, read, *csv_options(delimiter, ignore_empty_lines=True))
        if len(reader.schema) > 1:
            return reader
    # of one column, an empty line is a row whose cell is missing
    is_wide = schema is not None and len(schema) > 1
    parse, convert = csv_options(delimiter, ignore_empty_lines=is_wide)
    if schema is not None:
        convert.column_types = schema
    if columns is not None:
        convert.include_columns = list(columns)
    return pa.csv.open_csv(path, read, parse, convert)


def _next_type(kind: pa.DataType, value: str | None) -> pa.DataType:
    """A later type, at least the one that Arrow finds for the cell that did not fit."""
    place = _ORDER.index(kind) + 1
    if value is not None and value.strip() and not set(value) & set('",\t\r\n'):
        cell = io.BytesIO(f"cell,other\n{value},1\n".encode())
        place = max(place, _ORDER.index(pa.csv.read_csv(cell).schema.types[0]))
    return _ORDER[place]


# --- Rows of a Parquet file in blocks of bounded size, whatever its row groups are like.
#
# ``ParquetFile`` without pre-buffering reads a few pages at a time, so a row group may be as
# large as
# it likes. What is left to watch is text: a page of short codes may stand for long values, so
# a block
# has fewer rows where a row group's longest values would make it too large.

BUFFER = 1 << 16
"""Bytes read at once of each column."""

BLOCK_BYTES = 1 << 26
"""Decoded bytes of a block at most, unless a single row has more."""

_ANY_LENGTH = "BYTE_ARRAY"
_FIXED = 16
"""Bytes of a value that is not text, at most."""

_SHARED_PREFIXES = "DELTA_BYTE_ARRAY"
"""An encoding in which every value may repeat a long beginning of the one before."""


def parquet_schema(path: Path) -> tuple[pa.Schema, int]:
    """Columns and number of rows."""
    with _open_parquet(path) as file:
        _check_pages(file.metadata, path)
        return file.schema_arrow, file.metadata.num_rows


def group_rows(path: Path) -> list[int]:
    """Rows of each row group, which is where a file can be entered at no cost."""
    with _open_parquet(path) as file:
        return [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]


def has_no_value(path: Path, column: str) -> bool:
    """Whether a file says of itself that every cell of a column is missing."""
    with _open_parquet(path) as file:
        found = file.metadata
        places = [j for j in range(found.num_columns) if found.schema.column(j).path == column]
        chunks = [found.row_group(i).column(j) for i in range(found.num_row_groups) for j in places]
    return bool(chunks) and all(
        chunk.is_stats_set and chunk.statistics.null_count == chunk.num_values for chunk in chunks
    )


def parquet_fingerprint(path: Path) -> str:
    """SHA-256 of the footer, which knows the place, size and statistics of every page."""
    with path.open("rb") as file:
        file.seek(-8, 2)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-min(8 + length, path.stat().st_size), 2)
        return hashlib.sha256(file.read()).hexdigest()


def parquet_blocks(
    path: Path, columns: Sequence[str], rows: int, start: int
) -> Iterator[pa.RecordBatch]:
    """Blocks of at most ``rows`` rows, from row ``start`` on."""
    with _open_parquet(path) as file:
        first = 0  # row of the group's start
        for i in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(i)
            count = group.num_rows
            skip = max(0, start - first)
            first += count
            if skip >= count:
                continue
            most = _block_rows(path, group, i, columns, rows)
            for batch in file.iter_batches(most, [i], list(columns), use_threads=False):
                if skip < len(batch):
                    yield batch.slice(skip)
                skip = max(0, skip - len(batch))


def _open_parquet(path: Path, **options: Sequence[str]) -> pa.parquet.ParquetFile:
    return pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER, **options)


def _check_pages(metadata: pa.parquet.FileMetaData, path: Path) -> None:
    """Refuse a row group whose pages unpack to a thousand times the file."""
    on_disk = path.stat().st_size
    for i in range(metadata.num_row_groups):
        size = metadata.row_group(i).total_byte_size
        if size > max(ALWAYS_ALLOWED, MOST_EXPANSION * on_disk):
            raise InputError(
                f"{path} has {on_disk / 1e6:,.1f} MB on disk but a row group of {size / 1e9:,.1f} "
                "GB, so it is not read"
            )


def _block_rows(
    path: Path,
    group: pa.parquet.RowGroupMetaData,
    number: int,
    columns: Sequence[str],
    rows: int,
) -> int:
    """Rows of this group that decode to at most ``BLOCK_BYTES``, and no more than ``rows``."""
    chunks = {chunk.path_in_schema: chunk for chunk in map(group.column, range(group.num_columns))}
    texts = {c: chunks[c] for c in columns if c in chunks and _is_text(chunks[c])}
    fixed = _FIXED * (len(columns) - len(texts))
    sizes = {name: chunk.total_uncompressed_size for name, chunk in texts.items()}
    if rows * (fixed + sum(sizes.values())) <= BLOCK_BYTES:
        return rows  # even if every value were as long as all of them together
    longest = _longest_values(
        path, number, [name for name, chunk in texts.items() if chunk.has_dictionary_page]
    )
    for name, chunk in texts.items():
        shares = any(_SHARED_PREFIXES in encoding for encoding in chunk.encodings)
        mean = sizes[name] if shares else -(-sizes[name] // max(1, chunk.num_values))
        longest[name] = max(longest.get(name, 0), mean)
    return max(1, min(rows, BLOCK_BYTES // max(1, fixed + sum(longest.values()))))


def _is_text(chunk: pa.parquet.ColumnChunkMetaData) -> bool:
    return bool(chunk.physical_type == _ANY_LENGTH)


def _longest_values(path: Path, group: int, columns: Sequence[str]) -> dict[str, int]:
    """Length of the longest value in each column's dictionary, read without reading the rows."""
    if not columns:
        return {}
    with _open_parquet(path, read_dictionary=columns) as file:
        head = next(file.iter_batches(1, [group], list(columns), use_threads=False), None)
    if head is None:
        return {}
    values = {name: getattr(head.column(name), "dictionary", None) for name in columns}
    return {
        name: pc.max(pc.binary_length(found)).as_py() or 0
        for name, found in values.items()
        if found is not None
    }


# --- Tables larger than memory: their columns at once, their rows a block at a time.
#
# A source is a file, a folder of Parquet files, or a pattern such as ``logs/2024-*.parquet``.
# Blocks
# hold what :func:`read_table` would give for the same rows: the same columns, types and
# order.

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
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
        extension = extension_of(self.path)
        if extension == ".parquet":
            return parquet_blocks(self.path, columns, rows, start)
        if extension in _DELIMITERS:
            delimiter = _DELIMITERS[extension]
            return csv_blocks(self.path, delimiter, self.schema, columns, start)
        return _arrow_batches(self.path, columns, start)


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
        found = [(p.relative_to(path), p) for p in _parquet_files(path)]
        if not found:
            raise InputError(f"{path} holds no .parquet file")
    elif glob.has_magic(text) and not path.exists():
        root = _fixed_folder(path)
        # a set, for some patterns match a file more than once
        matches = {Path(match) for match in glob.glob(text, recursive=True)}  # noqa: PTH207
        seen = _seen(root, (match for match in matches if match.is_file()))
        found = [(path.relative_to(root), path) for path in seen]
        if not found:
            raise InputError(f"no file is called {text}")
    else:
        found = [(Path(path.name), path)]
    if apart_from is not None:
        ours = apart_from.resolve()
        found = [(name, path) for name, path in found if ours not in path.resolve().parents]
        if not found:
            raise InputError(f"{text} holds no file but those of {apart_from}, the output")
    return [inspect_table(path, name.as_posix()) for name, path in found]


def inspect_table(path: Path, name: str) -> StreamedTable:
    """What a file holds. Of a Parquet file only the footer is read, every other is read through."""
    extension = extension_of(path)
    try:
        with explained(path):
            if extension == ".parquet":
                schema, rows = parquet_schema(path)
                fingerprint = parquet_fingerprint(path)
            else:
                if extension in _DELIMITERS:
                    schema, rows = csv_schema(path, _DELIMITERS[extension])
                else:
                    schema, rows = _arrow_schema(path)
                with path.open("rb") as file:
                    fingerprint = hashlib.file_digest(file, "sha256").hexdigest()
            tidy = read_table(schema.empty_table()).schema
            return StreamedTable(path, name, tidy, rows, path.stat().st_size, fingerprint)
    except InputError as error:
        if str(path) in str(error):
            raise
        raise InputError(f"{path}: {error}") from error  # what is wrong with a table's columns


def _parquet_files(folder: Path) -> list[Path]:
    """All below a folder, except what engines leave beside their data."""
    return _seen(folder, (path for path in folder.rglob("*.parquet") if path.is_file()))


def _seen(folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Sorted, without those that are called otherwise than data, or lie in a folder that is."""
    return sorted(
        path
        for path in paths
        if not any(name.startswith(_UNSEEN) for name in path.relative_to(folder).parts)
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


def _arrow_schema(path: Path) -> tuple[pa.Schema, int]:
    with _opened_arrow(path) as reader:
        schema = reader.schema
    return schema, sum(len(batch) for batch in _arrow_batches(path, schema.names[:1], 0))


def _arrow_batches(path: Path, columns: Sequence[str], start: int) -> Iterator[pa.RecordBatch]:
    """Batches as they were written; of these the file decides how large they are."""
    with _opened_arrow(path) as reader:
        wanted = [i for i, name in enumerate(reader.schema.names) if name in columns]
    with _opened_arrow(path, included_fields=wanted) as reader:
        is_file = hasattr(reader, "get_batch")
        skip = start
        for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
            if skip < len(batch):
                yield batch.slice(skip)
            skip = max(0, skip - len(batch))


@contextmanager
def _opened_arrow(path: Path, **options: Any) -> Iterator[Any]:
    """A reader of either of Arrow's two formats, file and stream."""
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    with pa.OSFile(str(path)) as source:
        open_it = pa.ipc.open_file if is_file else pa.ipc.open_stream
        with open_it(source, options=pa.ipc.IpcReadOptions(**options)) as reader:
            yield reader
