"""Tables on disk: CSV, Parquet and Arrow, chosen by the file's extension."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from varjepa.errors import InputError
from varjepa.files import replacing
from varjepa.tables.values import MISSING_WORDS

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_RAGGED = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


def read_file(path: Path) -> pa.Table:
    """Read a whole table, or say in one sentence why it cannot be read."""
    read = _READERS[_extension(path)]
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a table")
        return read(path)
    except (pa.ArrowException, OSError, EOFError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"cannot read {path}: {os.strerror(error.errno)}") from error
        reason = str(error).strip().splitlines()[0].rstrip(".")
        kind = _KINDS[_extension(path)]
        raise InputError(f"{path} is not a complete {kind} file: {reason}") from error


def write_table(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Write CSV, Parquet or Arrow by the file's extension; an existing file is replaced whole.

    CSV has one word for a missing cell and for an empty text, so the latter is read back missing.
    """
    path = Path(path)
    write = _WRITERS[_extension(path)]
    try:
        with replacing(path) as temporary:
            write(table, temporary)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot write {path}: {reason}") from error


def check_extension(path: Path) -> None:
    """Refuse an extension nobody can write, before any work is done for it."""
    _extension(path)


def _read_csv(path: Path, delimiter: str = ",") -> pa.Table:
    with path.open("rb") as file:
        head = file.read(4096)
    if not head.strip():
        raise InputError(f"{path} is empty")
    if head.startswith(_UTF16_MARKS) or b"\0" in head:
        raise InputError(f"{path} is not UTF-8 text; it looks like UTF-16, so save it as UTF-8")
    try:
        table = _parse_csv(path, delimiter)
        if table.num_columns == 1:
            # of one column, an empty line is a row whose cell is missing; of several, it is nothing
            table = _parse_csv(path, delimiter, ignore_empty_lines=False)
    except pa.ArrowInvalid as error:
        raise InputError(_csv_problem(path, delimiter, str(error))) from error
    try:
        names = table.column_names
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: see its header") from error
    for name, kind in zip(names, table.schema.types, strict=True):
        if pa.types.is_binary(kind):  # what the parser makes of text it cannot decode
            raise InputError(f"{path} is not UTF-8 text: see column {name!r}")
    return table


def _parse_csv(
    path: Path, delimiter: str, ignore_empty_lines: bool = True, use_threads: bool = True
) -> pa.Table:
    return pa.csv.read_csv(
        path,
        read_options=pa.csv.ReadOptions(use_threads=use_threads),
        parse_options=pa.csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=ignore_empty_lines
        ),
        convert_options=pa.csv.ConvertOptions(
            null_values=list(MISSING_WORDS), strings_can_be_null=True
        ),
    )


def _csv_problem(path: Path, delimiter: str, message: str) -> str:
    if _RAGGED.search(message):
        try:  # only the reader without threads knows the row's number
            _parse_csv(path, delimiter, use_threads=False)
        except pa.ArrowInvalid as error:
            message = str(error)
    if match := _RAGGED.search(message):
        row, expected, got = match.groups()
        place = f"row {row} of {path}" if row else f"a row of {path}"
        return f"{place} has {got} cells where the header has {expected}"
    reason = message.strip().splitlines()[0].rstrip(".")
    return f"{path} is not a CSV file: {reason}"


def _read_parquet(path: Path) -> pa.Table:
    with pa.parquet.ParquetFile(path, pre_buffer=False) as file:
        return file.read()


def _read_arrow(path: Path) -> pa.Table:
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"  # the other Arrow format is a stream
    with pa.OSFile(str(path)) as source:
        opened = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        return opened.read_all()


def _write_csv(table: pa.Table, path: Path, delimiter: str = ",") -> None:
    pa.csv.write_csv(table, path, pa.csv.WriteOptions(delimiter=delimiter))


def _write_arrow(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _extension(path: Path) -> str:
    extension = path.suffix.lower()
    if extension not in _READERS:
        known = ", ".join(_READERS)
        raise InputError(f"cannot tell what kind of table {path} is; known extensions: {known}")
    return extension


_READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".csv": _read_csv,
    ".tsv": lambda path: _read_csv(path, "\t"),
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}

_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".csv": _write_csv,
    ".tsv": lambda table, path: _write_csv(table, path, "\t"),
    ".parquet": lambda table, path: pa.parquet.write_table(table, path),
    ".arrow": _write_arrow,
    ".feather": _write_arrow,
}

_KINDS = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
}
