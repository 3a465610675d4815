"""Tables to disk, a block at a time: CSV, Parquet or Arrow, chosen by the file's extension.

The file appears under its name when the last block is written, whole; until then there is only a
temporary beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from varjepa.errors import InputError
from varjepa.files import replacing
from varjepa.tables.arrow_types import is_text
from varjepa.tables.writing import TEXT_EXTENSIONS, check_extension, without_formulas

GROUP_BYTES = 1 << 25
"""Bytes that are collected for a row group of a Parquet file or a batch of an Arrow file."""

Append = Callable[[pa.Table], None]


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
    quote = extension in TEXT_EXTENSIONS and not raw_text
    written = without_formulas(schema.empty_table()).schema if quote else schema
    try:
        with replacing(path) as temporary, _opened(temporary, extension, written) as writer:
            waiting: list[pa.Table] = []

            def flush() -> None:
                if waiting:
                    writer.write_table(pa.concat_tables(waiting).combine_chunks())
                    waiting.clear()

            def append(block: pa.Table) -> None:
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
    if extension in TEXT_EXTENSIONS:
        options = pa.csv.WriteOptions(delimiter=TEXT_EXTENSIONS[extension])
        return pa.csv.CSVWriter(path, schema, write_options=options)
    if extension == ".parquet":
        # numbers that never repeat have nothing to gain from a dictionary, which costs time
        texts = [field.name for field in schema if is_text(field.type)]
        return pa.parquet.ParquetWriter(path, schema, use_dictionary=texts)
    return pa.ipc.new_file(str(path), schema)
