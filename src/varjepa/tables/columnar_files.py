"""Parquet and Arrow files: whole, or in blocks of bounded size, whatever their row groups are like.

``ParquetFile`` without pre-buffering reads a few pages at a time, so a row group may be as large as
it likes. What is left to watch is text: a page of short codes may stand for long values, so a block
has fewer rows where a row group's longest values would make it too large.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from varjepa.errors import InputError
from varjepa.tables.table_files import (
    ALWAYS_ALLOWED,
    MOST_EXPANSION,
    ExpansionLimit,
    decoded_size,
    skip_rows,
)

BATCH = 65_536

_TEXT = "BYTE_ARRAY"
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, _TEXT: 4}
"""Bytes of a decoded value; of a text, those of its offset."""


def read_parquet(path: Path) -> pa.Table:
    """The whole table.

    Text is read by way of its dictionary, the form that shows how much memory its cells will take
    before they take it. Where a file lies about its pages, one of them, at most 2 GB, is unpacked
    before that shows.
    """
    limit = ExpansionLimit(path)
    with pa.parquet.ParquetFile(path, pre_buffer=False) as file:
        schema = file.schema_arrow
        _check_declared(file.metadata, path)
        leaves = [file.metadata.schema.column(j) for j in range(len(file.metadata.schema))]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == _TEXT]
    batches = []
    with pa.parquet.ParquetFile(path, pre_buffer=False, read_dictionary=texts) as file:
        for batch in file.iter_batches(BATCH, use_threads=False):
            limit.take(decoded_size(batch))
            batches.append(batch)
        table = pa.Table.from_batches(batches, file.schema_arrow)
    try:
        return table.cast(schema)
    except pa.ArrowNotImplementedError:  # a type that no dictionary is cast to, of a known size
        with pa.parquet.ParquetFile(path, pre_buffer=False) as file:
            return file.read()


def _check_declared(metadata: pa.parquet.FileMetaData, path: Path) -> None:
    """Refuse what the file itself says is too much: pages to unpack, values of fixed width."""
    pages, values = ExpansionLimit(path), ExpansionLimit(path)
    leaves = [metadata.schema.column(j) for j in range(len(metadata.schema))]
    widths = [_WIDTHS.get(leaf.physical_type, leaf.length) for leaf in leaves]
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j, width in enumerate(widths):
            chunk = group.column(j)
            pages.take(chunk.total_uncompressed_size)
            values.take(max(chunk.num_values, group.num_rows) * width)


BUFFER = 1 << 16
"""Bytes read at once of each column."""

BLOCK_BYTES = 1 << 26
"""Decoded bytes of a block at most, unless a single row has more."""

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
        metadata = file.metadata
        places = [
            j for j in range(metadata.num_columns) if metadata.schema.column(j).path == column
        ]
        chunks = [
            metadata.row_group(i).column(j) for i in range(metadata.num_row_groups) for j in places
        ]
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
        for i in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(i)
            if start < group.num_rows:
                most = _block_rows(path, group, i, columns, rows)
                batches = file.iter_batches(most, [i], list(columns), use_threads=False)
                yield from skip_rows(batches, start)
            start = max(0, start - group.num_rows)


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
    path: Path, group: pa.parquet.RowGroupMetaData, number: int, columns: Sequence[str], rows: int
) -> int:
    """Rows of this group that decode to at most ``BLOCK_BYTES``, and no more than ``rows``."""
    chunks = {chunk.path_in_schema: chunk for chunk in map(group.column, range(group.num_columns))}
    texts = {c: chunks[c] for c in columns if c in chunks and chunks[c].physical_type == _TEXT}
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
        name: pc.max(pc.binary_length(dictionary)).as_py() or 0
        for name, dictionary in values.items()
        if dictionary is not None
    }


def read_arrow(path: Path) -> pa.Table:
    """The whole table."""
    limit = ExpansionLimit(path)
    with _opened_arrow(path) as reader:
        schema = reader.schema
    batches = []
    for batch in arrow_blocks(path):
        limit.take(decoded_size(batch))
        batches.append(batch)
    return pa.Table.from_batches(batches, schema)


def arrow_schema(path: Path) -> tuple[pa.Schema, int]:
    """Columns and number of rows."""
    with _opened_arrow(path) as reader:
        schema = reader.schema
    return schema, sum(len(batch) for batch in arrow_blocks(path, schema.names[:1]))


def arrow_blocks(
    path: Path, columns: Sequence[str] | None = None, start: int = 0
) -> Iterator[pa.RecordBatch]:
    """Batches as they were written; of these the file decides how large they are."""
    options = {}
    if columns is not None:
        with _opened_arrow(path) as reader:
            names = reader.schema.names
        options["included_fields"] = [i for i, name in enumerate(names) if name in columns]
    with _opened_arrow(path, **options) as reader:
        is_file = hasattr(reader, "get_batch")
        numbers = range(reader.num_record_batches) if is_file else ()
        yield from skip_rows(map(reader.get_batch, numbers) if is_file else reader, start)


@contextmanager
def _opened_arrow(path: Path, **options: Any) -> Iterator[Any]:
    """A reader of either of Arrow's two formats, file and stream."""
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    with pa.OSFile(str(path)) as source:
        open_it = pa.ipc.open_file if is_file else pa.ipc.open_stream
        with open_it(source, options=pa.ipc.IpcReadOptions(**options)) as reader:
            yield reader
