"""Parquet files as tables, a batch at a time, so that one that expands is refused early."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from varjepa.tables.expansion import Room, decoded_size

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
    room = Room(path)
    with pa.parquet.ParquetFile(path, pre_buffer=False) as file:
        schema = file.schema_arrow
        _check_declared(file.metadata, path)
        leaves = [file.metadata.schema.column(j) for j in range(len(file.metadata.schema))]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == _TEXT]
    batches = []
    with pa.parquet.ParquetFile(path, pre_buffer=False, read_dictionary=texts) as file:
        for batch in file.iter_batches(BATCH, use_threads=False):
            room.take(decoded_size(batch))
            batches.append(batch)
        table = pa.Table.from_batches(batches, file.schema_arrow)
    try:
        return table.cast(schema)
    except pa.ArrowNotImplementedError:  # a type that no dictionary is cast to, of a known size
        with pa.parquet.ParquetFile(path, pre_buffer=False) as file:
            return file.read()


def _check_declared(metadata: pa.parquet.FileMetaData, path: Path) -> None:
    """Refuse what the file itself says is too much: pages to unpack, values of fixed width."""
    pages, values = Room(path), Room(path)
    leaves = [metadata.schema.column(j) for j in range(len(metadata.schema))]
    widths = [_WIDTHS.get(leaf.physical_type, leaf.length) for leaf in leaves]
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j, width in enumerate(widths):
            chunk = group.column(j)
            pages.take(chunk.total_uncompressed_size)
            values.take(max(chunk.num_values, group.num_rows) * width)
