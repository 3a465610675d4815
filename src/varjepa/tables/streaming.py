"""Tables larger than memory: their columns at once, their rows a block at a time.

A source is a file, a folder of Parquet files, or a pattern such as ``logs/2024-*.parquet``. Blocks
hold what :func:`read_table` would give for the same rows: the same columns, types and order.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from varjepa.errors import InputError
from varjepa.tables.columnar_files import (
    BLOCK_BYTES,
    arrow_blocks,
    arrow_schema,
    parquet_blocks,
    parquet_fingerprint,
    parquet_schema,
)
from varjepa.tables.csv_files import CsvFile
from varjepa.tables.reading import read_table
from varjepa.tables.table_files import decoded_size, explained, format_of, refuse_address

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
    kind = format_of(path)
    try:
        with explained(path):
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
    except InputError as error:
        if str(path) in str(error):
            raise
        raise InputError(f"{path}: {error}") from error  # what is wrong with a table's columns


def _parquet_files(folder: Path) -> list[Path]:
    """All below a folder, except what engines leave next to their data."""
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
