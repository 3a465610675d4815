"""Tables from disk: CSV, Parquet and Arrow, chosen by the file's extension."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from varjepa.errors import InputError
from varjepa.tables.expansion import Room, decoded_size
from varjepa.tables.parquet_files import read_parquet
from varjepa.tables.quoting import quoted
from varjepa.tables.values import MISSING_WORDS

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""Such as s3://bucket/name, of which a Path keeps only one slash; not C:/name."""

_RAGGED = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


def read_file(path: Path) -> pa.Table:
    """Read a whole table, or say in one sentence why it cannot be read."""
    read = _READERS[extension_of(path)]
    with explained(path):
        return read(path)


def refuse_address(text: str) -> None:
    """Files are read through the system, which knows no buckets."""
    if _ADDRESS.match(text) and not Path(text).exists():
        whole = text if "://" in text else text.replace(":/", "://", 1)
        raise InputError(
            f"{whole} is an address, not a path; mount it as a folder, or copy its files, and give "
            "their path"
        )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """What goes wrong while a file is read, in one sentence."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a table")
        yield
    except (pa.ArrowException, OSError, EOFError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"cannot read {path}: {os.strerror(error.errno)}") from error
        reason = str(error).strip().splitlines()[0].rstrip(".")
        kind = _KINDS[extension_of(path)]
        raise InputError(f"{path} is not a complete {kind} file: {reason}") from error


def _read_csv(path: Path, delimiter: str = ",") -> pa.Table:
    check_csv_head(path)
    try:
        table = _parse_csv(path, delimiter)
        if table.num_columns == 1:
            # of one column, an empty line is a row whose cell is missing; of several, it is nothing
            table = _parse_csv(path, delimiter, ignore_empty_lines=False)
    except pa.ArrowInvalid as error:
        raise csv_problem(path, delimiter, str(error)) from error
    refuse_not_utf8(path, table.schema)
    return table


def check_csv_head(path: Path) -> None:
    """Refuse a file that begins with nothing, or not with text."""
    with path.open("rb") as file:
        head = file.read(4096)
    if not head.strip():
        raise InputError(f"{path} is empty")
    if head.startswith(_UTF16_MARKS) or b"\0" in head:
        raise InputError(f"{path} is not UTF-8 text; it looks like UTF-16, so save it as UTF-8")


def refuse_not_utf8(path: Path, schema: pa.Schema) -> None:
    """Refuse names and columns that the parser could not decode."""
    try:
        names = schema.names
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: see its header") from error
    for name, kind in zip(names, schema.types, strict=True):
        if pa.types.is_binary(kind):  # what the parser makes of text it cannot decode
            raise InputError(f"{path} is not UTF-8 text: see column {quoted(name)}")


def csv_options(
    delimiter: str, ignore_empty_lines: bool
) -> tuple[pa.csv.ParseOptions, pa.csv.ConvertOptions]:
    """How CSV files are read, whole or in blocks."""
    return (
        pa.csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=ignore_empty_lines
        ),
        pa.csv.ConvertOptions(null_values=list(MISSING_WORDS), strings_can_be_null=True),
    )


def _parse_csv(
    path: Path, delimiter: str, ignore_empty_lines: bool = True, use_threads: bool = True
) -> pa.Table:
    options = csv_options(delimiter, ignore_empty_lines)
    return pa.csv.read_csv(path, pa.csv.ReadOptions(use_threads=use_threads), *options)


def csv_problem(path: Path, delimiter: str, message: str) -> InputError:
    """What the parser complained about, in one sentence."""
    if (match := _RAGGED.search(message)) and match[1] is None:
        try:  # only the reader without threads knows the row's number
            _parse_csv(path, delimiter, use_threads=False)
        except pa.ArrowInvalid as error:
            message = str(error)
    if match := _RAGGED.search(message):
        row, expected, got = match.groups()
        place = f"row {row} of {path}" if row else f"a row of {path}"
        return InputError(f"{place} has {got} cells where the header has {expected}")
    reason = message.strip().splitlines()[0].rstrip(".")
    return InputError(f"{path} is not a CSV file: {reason}")


def _read_arrow(path: Path) -> pa.Table:
    room = Room(path)
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"  # the other Arrow format is a stream
    with pa.OSFile(str(path)) as source:
        opened = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        batches = []
        for batch in map(opened.get_batch, range(opened.num_record_batches)) if is_file else opened:
            room.take(decoded_size(batch))
            batches.append(batch)
        return pa.Table.from_batches(batches, opened.schema)


def extension_of(path: Path) -> str:
    """The extension, in lower case; one nobody can read is refused."""
    extension = path.suffix.lower()
    if extension not in _READERS:
        known = ", ".join(_READERS)
        raise InputError(f"cannot tell what kind of table {path} is; known extensions: {known}")
    return extension


_READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".csv": _read_csv,
    ".tsv": lambda path: _read_csv(path, "\t"),
    ".parquet": read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}

_KINDS = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
}
