"""CSV files, plain or gzipped, whole or in blocks of rows, with the same column types either way.

The separator is the one that the header is written with. Arrow's streaming reader settles every
type on the first block and stops where a later one does not fit. So a file that is read in blocks
is read through once before: where a cell does not fit, the column takes the next type in Arrow's
own order, and the reading starts again.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from varjepa.errors import InputError
from varjepa.tables.messages import quoted, refuse_bad_names
from varjepa.tables.table_files import GZIP, MAGIC, ExpansionLimit, skip_rows
from varjepa.tables.values import MISSING_WORDS

_HEAD = 1 << 16
"""Bytes that decide how a file is written."""

_SEPARATORS = (",", ";", "\t", "|")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_RAGGED = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")
_MISFIT = re.compile(r"In CSV column #(\d+): .*?(?:invalid value '(.*)'|UTF8)", re.DOTALL)

_CELL_BYTES = 4
"""Bytes in memory of a byte of text, at most: "0," becomes a 64-bit integer."""

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
"""Types that a column may have, in the order in which Arrow attempts them."""


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A CSV file and how it is written."""

    path: Path
    separator: str
    decimal_point: str

    @classmethod
    def find(cls, path: Path) -> CsvFile:
        """Read the beginning of a file; one that is empty or no text is refused."""
        with _open(path) as file:
            head = file.read(_HEAD)
        if not head.strip():
            raise InputError(f"{path} is empty")
        if head.startswith(b"PK\x03\x04"):
            raise InputError(f"{path} is a ZIP or Excel file; save the table as CSV")
        if head.startswith(MAGIC):  # of a plain file the reader is another one
            raise InputError(f"{path} is a gzipped Parquet or Arrow file; unpack it with gunzip")
        wide = max(head[::2].count(0), head[1::2].count(0))  # half of each Latin letter in UTF-16
        if head.startswith(_UTF16_MARKS) or wide > len(head) / 4:
            raise InputError(f"{path} is not UTF-8 text; it looks like UTF-16, so save it as UTF-8")
        if b"\0" in head:
            raise InputError(f"{path} is not a CSV file: it holds no text")
        text = head.decode("utf-8", "replace")
        separator = _find_separator(text, "\t" if ".tsv" in path.suffixes else ",")
        return cls(path, separator, _find_decimal_point(text, separator))

    def read(self) -> pa.Table:
        self._refuse_expanding()
        try:
            table = self._parse()
            if table.num_columns == 1:
                # of one column, an empty line is a missing cell; of several, it is nothing
                table = self._parse(ignore_empty_lines=False)
        except pa.ArrowInvalid as error:
            raise self._problem(str(error)) from error
        self._refuse_not_utf8(table.schema)
        return table

    def schema(self) -> tuple[pa.Schema, int]:
        """Columns, as :meth:`read` would find them, and number of rows."""
        try:
            schema = self._stream().schema
            self._refuse_not_utf8(schema)
            refuse_bad_names(schema.names)
            return self._settled(schema)
        except pa.ArrowInvalid as error:
            raise self._problem(str(error)) from error

    def blocks(
        self, schema: pa.Schema, columns: Sequence[str], start: int
    ) -> Iterator[pa.RecordBatch]:
        """Blocks of about a megabyte of text, from row ``start`` on."""
        return skip_rows(self._stream(schema, columns), start)

    def _settled(self, schema: pa.Schema) -> tuple[pa.Schema, int]:
        """The types that fit every cell, and the number of rows."""
        while True:
            try:
                rows = sum(len(batch) for batch in self._stream(schema))
            except pa.ArrowInvalid as error:
                misfit = _MISFIT.search(str(error))
                if misfit is None:
                    raise
                place = int(misfit[1])
                looser = next_type(schema.types[place], misfit[2])
                schema = schema.set(place, pa.field(schema.names[place], looser))
                self._refuse_not_utf8(schema)
            else:
                return schema, rows

    def _parse(self, ignore_empty_lines: bool = True, use_threads: bool = True) -> pa.Table:
        read = pa.csv.ReadOptions(use_threads=use_threads)
        return pa.csv.read_csv(self._source(), read, *self._options(ignore_empty_lines))

    def _stream(
        self, schema: pa.Schema | None = None, columns: Sequence[str] | None = None
    ) -> pa.csv.CSVStreamingReader:
        read = pa.csv.ReadOptions(use_threads=False)  # it knows the number of a row it cannot read
        if schema is None:
            reader = pa.csv.open_csv(self._source(), read, *self._options(ignore_empty_lines=True))
            if len(reader.schema) > 1:
                return reader
        is_wide = schema is not None and len(schema) > 1
        parse, convert = self._options(ignore_empty_lines=is_wide)
        if schema is not None:
            convert.column_types = schema
        if columns is not None:
            convert.include_columns = list(columns)
        return pa.csv.open_csv(self._source(), read, parse, convert)

    def _options(
        self, ignore_empty_lines: bool
    ) -> tuple[pa.csv.ParseOptions, pa.csv.ConvertOptions]:
        return (
            pa.csv.ParseOptions(
                delimiter=self.separator,
                newlines_in_values=True,
                ignore_empty_lines=ignore_empty_lines,
            ),
            pa.csv.ConvertOptions(
                null_values=list(MISSING_WORDS),
                strings_can_be_null=True,
                decimal_point=self.decimal_point,
            ),
        )

    def _source(self) -> Any:
        """The text; not the path, for Arrow would go by its name and not by its content."""
        if not _is_gzip(self.path):
            return pa.OSFile(str(self.path))
        return pa.PythonFile(gzip.open(self.path), "r")

    def _refuse_expanding(self) -> None:
        """Refuse a small gzipped file of very much text before any of it is parsed."""
        limit = ExpansionLimit(self.path)
        if _is_gzip(self.path):
            with gzip.open(self.path) as file:
                while content := file.read(1 << 20):
                    limit.take(_CELL_BYTES * len(content))

    def _refuse_not_utf8(self, schema: pa.Schema) -> None:
        """Refuse names and columns that the parser could not decode."""
        try:
            names = schema.names
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path} is not UTF-8 text: see its header") from error
        for name, kind in zip(names, schema.types, strict=True):
            if pa.types.is_binary(kind):  # what the parser makes of text it cannot decode
                raise InputError(f"{self.path} is not UTF-8 text: see column {quoted(name)}")

    def _problem(self, message: str) -> InputError:
        if (match := _RAGGED.search(message)) and match[1] is None:
            try:  # only the reader without threads knows the row's number
                self._parse(use_threads=False)
            except pa.ArrowInvalid as error:
                message = str(error)
        if match := _RAGGED.search(message):
            row, expected, got = match.groups()
            place = f"row {row} of {self.path}" if row else f"a row of {self.path}"
            by = "" if self.separator == "," else f", separated by {self.separator!r}"
            cells = f"{got} cell{'s' * (got != '1')}"
            return InputError(f"{place} has {cells} where the header has {expected}{by}")
        reason = message.strip().splitlines()[0].rstrip(".")
        return InputError(f"{self.path} is not a CSV file: {reason}")


def next_type(kind: pa.DataType, value: str | None) -> pa.DataType:
    """A later type, at least the one that Arrow finds for the cell that did not fit."""
    place = _ORDER.index(kind) + 1
    if value is not None and value.strip() and not set(value) & set('",\t\r\n'):
        cell = io.BytesIO(f"cell,other\n{value},1\n".encode())
        place = max(place, _ORDER.index(pa.csv.read_csv(cell).schema.types[0]))
    return _ORDER[place]


def _find_separator(text: str, usual: str) -> str:
    """Another than the usual one only where header and first row are written with it.

    If the usual one is in the header, another must also cut both into as many cells, and into more:
    "price, net;town;year".
    """
    lines = [line for line in _QUOTED.sub("x", text).split("\n") if line.strip()][:2]
    written = [o for o in (usual, *_SEPARATORS) if lines and all(o in line for line in lines)]
    if lines and usual in lines[0]:
        written = [o for o in written if len({line.count(o) for line in lines}) == 1]
        return max(written, key=lines[0].count, default=usual) if len(lines) > 1 else usual
    return written[0] if written else usual


def _find_decimal_point(text: str, separator: str) -> str:
    """A comma where cells are separated by semicolons and more numbers have commas than points."""
    if separator != ";":
        return "."
    number = r'(?<![^;"\n])-?\d+([.,])\d+(?:[eE][+-]?\d+)?(?![^;"\r\n])'
    marks = re.findall(number, text)
    return "," if marks.count(",") > marks.count(".") else "."


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(GZIP)) == GZIP


def _open(path: Path) -> Any:
    return gzip.open(path) if _is_gzip(path) else path.open("rb")
