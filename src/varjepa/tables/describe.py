"""What was inferred of a table: kinds, ranges, levels, and columns that a person should check.

It only reports. Columns that are named in a note are read like all others.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from varjepa.tables.codec import TableCodec, restore_instants, restore_numbers
from varjepa.tables.columns import VALUE, CategoricalFeature, Column, Kind, NumericFeature
from varjepa.tables.messages import collect_warnings, joined, quoted, shortened
from varjepa.tables.reading import read_table
from varjepa.tables.values import ELAPSED, Instants, as_numbers, is_span, value_type

WIDTH = 80
"""Letters of a line at most."""

SHOWN = 40
"""Columns that are shown one by one."""

MIN_ROWS = 20
"""With fewer rows it is not known whether all values differ, or few do."""

FEW_INTEGERS = 10
"""Different integers of a column that may be codes."""

_CODE_WORDS = {"id", "code", "key", "zip", "postcode", "postal", "plz", "sku", "isbn", "fips"}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

Note = Literal["empty", "constant", "identifier", "code", "rare levels"]

_NOTES: dict[Note, str] = {
    "empty": "No value in any row, so nothing can be learned",
    "constant": "The same value in every row",
    "identifier": "Every value is different, as in an identifier; leave it out if it is one",
    "code": "Numbers that may be codes; if they are, say that they are categorical",
    "rare levels": "More levels than max_levels; rows with a rarer one count as missing",
}


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """One column of a table."""

    name: str
    kind: Kind
    values: str
    """Range of numbers and dates; number of levels and the most frequent of them."""
    missing: float
    """Share of the rows without a value."""
    levels: int | None = None
    """Number of levels of a categorical column."""
    note: Note | None = None
    """What a person should check."""


@dataclass(frozen=True, slots=True)
class TableDescription:
    """What was inferred of a table; ``str`` gives it as text of at most 80 letters a line."""

    columns: tuple[ColumnDescription, ...]
    rows: int | None = None
    """None: not known, as of a saved model."""

    def noted(self, note: Note) -> list[str]:
        """Columns with this note."""
        return [column.name for column in self.columns if column.note == note]

    def lines(self) -> list[str]:
        """A head, a line for each column (the first 40), and what to check."""
        shown = self.columns[:SHOWN]
        width = max((len(_label(column.name)) for column in shown), default=0)
        lines = [self._head()]
        for column in shown:
            missing = f"  {column.missing:.1%} missing" if column.missing else ""
            left = f"  {_label(column.name):<{width}}  {column.kind:<11}  "
            space = WIDTH - len(left) - len(missing)
            values = column.values
            values = values if len(values) <= space else values[: space - 1] + "…"
            lines.append(left + values + missing)
        if len(self.columns) > len(shown):
            lines.append(f"  … and {len(self.columns) - len(shown):,} more columns")
        for note, text in _NOTES.items():
            names = self.noted(note)
            if names:
                said = f"{text}: {joined([*map(quoted, names)], len(names))}."
                lines += textwrap.wrap(said, WIDTH, subsequent_indent="  ")
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _head(self) -> str:
        kinds = [column.kind for column in self.columns]
        counts = ", ".join(f"{kinds.count(k):,} {k}" for k in get_args(Kind) if k in kinds)
        rows = "" if self.rows is None else f"{self.rows:,} row{'s' * (self.rows != 1)}, "
        return f"{rows}{len(kinds):,} column{'s' * (len(kinds) != 1)}: {counts}"


def describe_table(table: Any, column_kinds: Mapping[str, Kind] | None = None) -> TableDescription:
    """What a fit would infer of a table, given as anything that :func:`read_table` reads.

    Examples:
        >>> print(describe_table({"age": [31, 64, None], "town": ["Ulm", "Rom", "Ulm"]}))
        3 rows, 2 columns: 1 numeric, 1 categorical
          age   numeric      31 to 64, integers  33.3% missing
          town  categorical  2 levels: Ulm, Rom
    """
    table = read_table(table)
    with collect_warnings():
        return describe_codec(TableCodec.fit(table, column_kinds), table)


def describe_codec(codec: TableCodec, table: pa.Table | None = None) -> TableDescription:
    """What a codec was fitted to; with the table itself, different numbers are counted exactly."""
    found: dict[str, ColumnDescription] = {}
    columns = {column.name: column for column in codec.schema.columns}
    rows = None if table is None else table.num_rows
    for number in codec.numeric:
        column = columns[number.column]
        if number.part == VALUE:
            found[column.name] = _describe_numbers(column, number, table)
        elif number.part == ELAPSED:
            parts = [n.part for n in codec.numeric if n.column == column.name and n.part != ELAPSED]
            found[column.name] = _describe_dates(column, number, parts)
    for category in codec.categorical:
        found[category.column] = _describe_levels(category, rows)
    return TableDescription(tuple(found[name] for name in codec.schema.names), rows)


def _describe_numbers(
    column: Column, number: NumericFeature, table: pa.Table | None
) -> ColumnDescription:
    scaler, missing = number.scaler, number.marginal.missing_share
    if scaler.is_empty:
        return ColumnDescription(column.name, "numeric", "no value", missing, note="empty")
    low, high = (_number(end, column) for end in (scaler.low, scaler.high))
    if low == high:
        return ColumnDescription(column.name, "numeric", low, missing, note="constant")
    values = f"{low} to {high}" + ", integers" * column.is_integer
    note: Note | None = None
    if column.is_integer:
        seen = scaler.from_unit(np.array(number.marginal.quantiles))
        if table is not None:
            numbers = as_numbers(table[column.name], column.name)
            seen = numbers.values[numbers.valid]
        note = _integer_note(column.name, seen, is_all=table is not None)
    return ColumnDescription(column.name, "numeric", values, missing, note=note)


def _integer_note(name: str, seen: np.ndarray[Any, Any], is_all: bool) -> Note | None:
    """Integers of all rows, or 101 quantiles of them."""
    different = len(np.unique(seen))
    is_code = _is_called_code(name)
    is_dense = float(seen.max()) - float(seen.min()) < 2 * len(seen)
    if is_all and different == len(seen) >= MIN_ROWS and (is_code or is_dense):
        return "identifier"
    is_few = different <= FEW_INTEGERS and len(seen) >= max(MIN_ROWS, 2 * different)
    return "code" if is_code or is_few else None


def _describe_dates(column: Column, number: NumericFeature, parts: list[str]) -> ColumnDescription:
    scaler, missing = number.scaler, number.marginal.missing_share
    if scaler.is_empty:
        return ColumnDescription(column.name, "datetime", "no value", missing, note="empty")
    assert column.unit is not None
    counts = np.array([scaler.low, scaler.high], dtype=np.int64)
    ends = restore_instants(Instants(counts, np.ones(2, dtype=bool), column.unit), column.type)
    low, high = ends.cast(pa.string()).to_pylist()
    if low == high:
        return ColumnDescription(column.name, "datetime", low, missing, note="constant")
    values = f"{low} to {high}" + "".join(f", {part}" for part in parts)
    return ColumnDescription(column.name, "datetime", values, missing)


def _describe_levels(category: CategoricalFeature, rows: int | None) -> ColumnDescription:
    name, levels, missing = category.column, category.levels, category.missing_share
    if not len(levels):
        return ColumnDescription(name, "categorical", "no value", missing, 0, "empty")
    counts = np.array(levels.counts)
    first = levels.texts.take(pa.array(np.argsort(-counts, kind="stable")[:5])).to_pylist()
    texts = [shortened(_printable(text), 24) for text in first]
    more = ", …" * (len(levels) > len(texts))
    values = f"{len(levels):,} level{'s' * (len(levels) != 1)}: {', '.join(texts)}{more}"
    note: Note | None = None
    if len(levels) == 1:
        note = "constant"
    elif len(levels) >= MIN_ROWS and counts.max() == 1:
        note = "identifier"
    elif rows is not None and counts.sum() + round(missing * rows) < rows:
        note = "rare levels"
    return ColumnDescription(name, "categorical", values, missing, len(levels), note)


def _is_called_code(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word in _CODE_WORDS or word.endswith("code") for word in words)


def _number(value: Any, column: Column) -> str:
    if is_span(value_type(column.type)):
        return str(restore_numbers(np.array([value]), np.ones(1, dtype=bool), column.type)[0])
    return str(int(value)) if column.is_integer else f"{value:.6g}"


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _label(name: str) -> str:
    return shortened(_printable(name), 28)
