"""Rows of a CSV file in blocks, with the column types that reading it whole would give.

Arrow's streaming reader settles every type on the first block and stops where a later one does not
fit. So the file is read through once before: where a cell does not fit, the column takes the next
type in Arrow's own order, and the reading starts again.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from varjepa.tables.reading import read_table
from varjepa.tables.table_files import check_csv_head, csv_options, csv_problem, refuse_not_utf8

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
        schema = _opened(path, delimiter).schema
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
    for batch in _opened(path, delimiter, schema, columns):
        if skip < len(batch):
            yield batch.slice(skip)
        skip = max(0, skip - len(batch))


def _settled(path: Path, delimiter: str, schema: pa.Schema) -> tuple[pa.Schema, int]:
    """The types that fit every cell, and the number of rows."""
    while True:
        try:
            rows = sum(len(batch) for batch in _opened(path, delimiter, schema))
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


def _opened(
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
