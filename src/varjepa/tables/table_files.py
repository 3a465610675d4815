"""One table in one file: CSV, Parquet, Arrow; with limits on what a small file may expand to.

How much memory a file may grow to: a small file must not fill the machine.

Compression, dictionaries and run lengths let 2 MB on disk stand for 20 GB of text. What counts is
the size of the decoded cells, found without decoding them; what a file declares is only believed
where it speaks against the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from varjepa.errors import InputError
from varjepa.tables.messages import quoted
from varjepa.tables.values import MISSING_WORDS

MOST_EXPANSION = 1000
"""Times its size on disk that a table may take in memory. Sorted, repetitive tables reach 100."""

ALWAYS_ALLOWED = 2**30
"""Bytes that any table may take."""


_ANY_LENGTH = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


class ExpansionLimit:
    """The memory that is left for one file's cells."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on_disk = path.stat().st_size
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.limit = max(ALWAYS_ALLOWED, min(MOST_EXPANSION * self.on_disk, memory))
        self.taken = 0

    def take(self, size: int) -> None:
        """Refuse the file when what was taken so far is too much."""
        self.taken += size
        if self.taken > self.limit:
            raise InputError(
                f"{self.path} has {self.on_disk / 1e6:,.1f} MB on disk but needs more than "
                f"{self.limit / 1e9:,.1f} GB in memory, so it is not read"
            )


def decoded_size(batch: pa.RecordBatch) -> int:
    """Bytes of a batch once every dictionary is written out."""
    return sum(_size(column) for column in batch.columns)


def _size(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _dictionary_size(column)
    if pa.types.is_struct(kind):
        return sum(_size(child) for child in column.flatten())
    if pa.types.is_map(kind):
        return 4 * len(column) + _size(column.keys) + _size(column.items)
    if pa.types.is_nested(kind) and hasattr(column, "flatten"):  # lists of every sort
        return 4 * len(column) + _size(column.flatten())
    return int(column.nbytes)


def _dictionary_size(column: pa.DictionaryArray) -> int:
    values = column.dictionary
    if not any(is_this(values.type) for is_this in _ANY_LENGTH):  # numbers: all of one size
        return len(column) * (int(values.nbytes) // max(1, len(values)) + 1)
    sizes = pc.binary_length(values)
    return 4 * len(column) + (pc.sum(pc.take(sizes, column.indices)).as_py() or 0)


# --- Parquet files as tables, a batch at a time, so that one that expands is refused early.

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


# --- Tables from disk: CSV, Parquet and Arrow, chosen by the file's extension.

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
    limit = ExpansionLimit(path)
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"  # the other Arrow format is a stream
    with pa.OSFile(str(path)) as source:
        opened = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        batches = []
        for batch in map(opened.get_batch, range(opened.num_record_batches)) if is_file else opened:
            limit.take(decoded_size(batch))
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
