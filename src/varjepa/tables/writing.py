"""Write tables as CSV, Parquet or Arrow, chosen by the extension: at once or a block at a time.

A file appears under its name when the last block is written, whole; until then there is only a
temporary file next to it.

A spreadsheet runs text that begins like a formula. Text cells and column names of a CSV or TSV file
that begin with = + - @, a tab, a carriage return or a line feed therefore get a single quote in
front, which spreadsheets show as text; read back, the quote is part of the text. Numbers never get
one, nor does text that is a plain number, such as "-5", or a lone "-". Parquet and Arrow files have
types and keep every text as it is, as does ``raw_text``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from varjepa.errors import InputError
from varjepa.files import replacing
from varjepa.tables.values import is_text, is_text_or_bytes, value_type

EXTENSIONS = (".csv", ".tsv", ".parquet", ".arrow", ".feather")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}

GROUP_BYTES = 1 << 25
"""Bytes that are collected for a row group of a Parquet file or a batch of an Arrow file."""

_FORMULA = r"^[=+\-@\t\r\n]"
_HARMLESS = r"^(?:-|[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)$"

Append = Callable[[pa.Table], None]


def write_table(table: pa.Table, path: str | os.PathLike[str], raw_text: bool = False) -> None:
    """Write a whole table; an existing file is replaced.

    ``raw_text`` leaves text in CSV files that a spreadsheet would run as a formula.
    CSV has one word for a missing cell and for an empty text, so the latter is read back missing.
    """
    with appending(Path(path), table.schema, raw_text) as append:
        append(table)


def table_sha256(table: pa.Table) -> str:
    """What tells a table's names, types and cells from others: the sum of its Arrow stream."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(stream.getvalue()).hexdigest()


def check_extension(path: Path) -> None:
    """Refuse an unknown extension, before any work is done for it."""
    if path.suffix.lower() not in EXTENSIONS:
        known = ", ".join(EXTENSIONS)
        raise InputError(f"cannot tell what kind of table {path} is; known extensions: {known}")


def without_formulas(table: pa.Table) -> pa.Table:
    """A quote before names and text cells that a spreadsheet would run; all else as it is.

    Examples:
        >>> without_formulas(pa.table({"=a": ["=1+1", "-5", "b"], "n": [-1, 0, 1]})).to_pydict()
        {"'=a": ["'=1+1", '-5', 'b'], 'n': [-1, 0, 1]}
    """
    names: list[str] = []
    safe = _quoted(pa.array(table.column_names, pa.string())).to_pylist()
    for name, new in zip(table.column_names, safe, strict=True):
        while new != name and (new in table.column_names or new in names):
            new = f"'{new}"  # another column has the name with the quote
        names.append(new)
    return pa.table([_quoted(column) for column in table.columns], names=names)


def _quoted(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Text comes out as plain text, whether or not it has a formula: blocks must fit together."""
    kind = value_type(column.type)
    if kind in (pa.string_view(), pa.binary_view()):
        kind = pa.large_string() if kind == pa.string_view() else pa.large_binary()
    if not is_text_or_bytes(kind):
        return column
    text = column if column.type == kind else column.cast(kind)
    runs = pc.and_not(
        pc.match_substring_regex(text, _FORMULA), pc.match_substring_regex(text, _HARMLESS)
    )
    quote, nothing = pa.scalar("'").cast(kind), pa.scalar("").cast(kind)
    return pc.if_else(runs, pc.binary_join_element_wise(quote, text, nothing), text)


def _without_nan(table: pa.Table) -> pa.Table:
    """A missing number is an empty cell, not the word nan, which spreadsheets take for text."""
    columns = [
        pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        if pa.types.is_float32(column.type) or pa.types.is_float64(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, schema=table.schema)


@contextmanager
def appending(
    path: Path,
    schema: pa.Schema,
    raw_text: bool = False,
    describe: Callable[[], dict[str, str]] = dict,
) -> Iterator[Append]:
    """Yields a function that writes one more block of the schema given.

    ``describe`` is asked at the end for what to write into a Parquet file's own metadata. CSV text
    that a spreadsheet would run is quoted unless ``raw_text``.
    """
    check_extension(path)
    extension = path.suffix.lower()
    is_csv = extension in _SEPARATORS
    quote = is_csv and not raw_text
    written = without_formulas(schema.empty_table()).schema if quote else schema
    try:
        with replacing(path) as temporary, _opened(temporary, extension, written) as writer:
            waiting: list[pa.Table] = []

            def flush() -> None:
                if waiting:
                    writer.write_table(pa.concat_tables(waiting).combine_chunks())
                    waiting.clear()

            def append(block: pa.Table) -> None:
                block = _without_nan(block) if is_csv else block
                waiting.append(without_formulas(block) if quote else block)
                if sum(table.nbytes for table in waiting) >= GROUP_BYTES:
                    flush()

            yield append
            flush()
            if extension == ".parquet":
                writer.add_key_value_metadata(describe())
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot write {path}: {reason}") from error


def _opened(path: Path, extension: str, schema: pa.Schema) -> Any:
    if extension in _SEPARATORS:
        options = pa.csv.WriteOptions(delimiter=_SEPARATORS[extension])
        return pa.csv.CSVWriter(path, schema, write_options=options)
    if extension == ".parquet":
        # numbers that never repeat have nothing to gain from a dictionary, which costs time
        texts = [field.name for field in schema if is_text(value_type(field.type))]
        return pa.parquet.ParquetWriter(path, schema, use_dictionary=texts)
    return pa.ipc.new_file(str(path), schema)
