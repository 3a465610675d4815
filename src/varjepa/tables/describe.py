"""What was inferred of a table: kinds, ranges, levels, and columns that a person should check."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from varjepa.tables.codec import TableCodec, restore_values
from varjepa.tables.columns import (
    VALUE,
    CategoricalFeature,
    Column,
    Kind,
    LeftOut,
    NumericFeature,
    Reason,
    is_called_code,
    look_like_dates,
    look_like_numbers,
)
from varjepa.tables.messages import collect_warnings, joined, printable, quoted, shortened
from varjepa.tables.reading import read_table
from varjepa.tables.values import ELAPSED, is_span, shown_text, value_type

WIDTH = 80
"""Letters of a line at most."""

SHOWN = 40
"""Columns that are shown one by one."""

FEW_INTEGERS = 20
"""Different integers of a column that may be codes."""

Note = Literal[Reason, "code", "rare levels", "date levels", "number levels"]

_NOTES: dict[Note, str] = {
    "empty": "Not modelled, since no row has a value",
    "constant": "Not modelled, since every row has the same value",
    "identifier": "Not modelled, since each row has its own value, as in an identifier",
    "free text": "Not modelled, since each row has its own text",
    "date text": "Not modelled, since its dates are not written as 2024-01-31 (ISO 8601)",
    "number text": "Not modelled, since its numbers are mixed with text such as ?, 1,234 or 5%",
    "number levels": "Numbers mixed with text such as ?, 1,234 or 5%, so each is a category",
    "date levels": "Dates not written as 2024-01-31 (ISO 8601), so each is a category of its own",
    "code": "Integers that look like codes; column_kinds (or --kind) can make them categories",
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
    """Why the column is not modelled, or what a person should check."""


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
        return describe_codec(TableCodec.fit(table, column_kinds), table.num_rows)


def describe_codec(codec: TableCodec, rows: int | None = None) -> TableDescription:
    """What a codec was fitted to; ``rows`` is how many rows that had, where it is known."""
    by_name: dict[str, ColumnDescription] = {}
    columns = {column.name: column for column in codec.schema.columns}
    for name, left_out in codec.schema.left_out.items():
        by_name[name] = _describe_left_out(columns[name], left_out)
    for number in codec.numeric:
        name = number.column
        if number.part in (VALUE, ELAPSED):
            parts = [n.part for n in codec.numeric if n.column == name and n is not number]
            by_name[name] = _describe_range(columns[name], number, rows, parts)
    for category in codec.categorical:
        by_name[category.column] = _describe_levels(category)
    return TableDescription(tuple(by_name[name] for name in codec.schema.names), rows)


def _describe_left_out(column: Column, left_out: LeftOut) -> ColumnDescription:
    value, missing = left_out.value, left_out.missing_share
    levels = left_out.values if left_out.values < 2 and column.kind == "categorical" else None
    if isinstance(value, str):
        values = f"1 level: {shortened(printable(value), 24)}"
    elif value is not None:
        values = _written(value, column)
    else:
        values = f"{left_out.values:,} values" if left_out.values else "no value"
    return ColumnDescription(column.name, column.kind, values, missing, levels, left_out.reason)


def _describe_range(
    column: Column, number: NumericFeature, rows: int | None, parts: list[str]
) -> ColumnDescription:
    """Of numbers, or of dates with these calendar parts."""
    note: Note | None = None
    scaler, missing = number.scaler, number.marginal.missing_share
    values = "no value"
    if not scaler.is_empty:
        low, high = (_written(end, column) for end in (scaler.low, scaler.high))
        if low == high:
            values = low
        elif column.unit is None:
            values = f"{low} to {high}" + ", integers" * column.is_integer
            known = None if rows is None else round(rows * (1.0 - missing))
            note = "code" if _are_codes(column, number, known) else None
        else:
            days = low.split(" ")[0], high.split(" ")[0]
            if days[0] != days[1]:  # with times of day, the end would not fit on the line
                low, high = days
            values = ", ".join([f"{low} to {high}", *parts])
    return ColumnDescription(column.name, column.kind, values, missing, note=note)


def _are_codes(column: Column, number: NumericFeature, known: int | None) -> bool:
    """Whether integers are called codes, or are few in many rows and do not count something.

    Two values are the same as a number and as a category.
    """
    if not column.is_integer or number.scaler.step is None:
        return False
    if is_called_code(column.name):
        return True
    bins, different = number.bins, len(number.bins)
    is_few = bins.low == bins.high and 2 < different <= FEW_INTEGERS
    return is_few and (known is None or known >= 2 * different) and not _is_counted(number)


def _is_counted(number: NumericFeature) -> bool:
    """Whether values are 0, 1, 2, …, of which ever more rows have each, and then ever fewer."""
    values = number.scaler.from_unit(np.array(number.bins.low)).tolist()
    shares = np.array(number.bins.share)
    top = int(shares.argmax())
    is_one_hill = (np.diff(shares[: top + 1]) > 0).all() and (np.diff(shares[top:]) < 0).all()
    return values[:3] == [0, 1, 2] and bool(is_one_hill)


def _describe_levels(category: CategoricalFeature) -> ColumnDescription:
    name, levels, missing = category.column, category.levels, category.missing_share
    if not len(levels):
        return ColumnDescription(name, "categorical", "no value", missing, 0)
    counts = np.array(levels.counts)
    first = levels.texts.take(pa.array(np.argsort(-counts, kind="stable")[:5])).to_pylist()
    texts = [shortened(printable(text), 24) for text in first]
    more = ", …" * (len(levels) > len(texts))
    values = f"{len(levels):,} level{'s' * (len(levels) != 1)}: {', '.join(texts)}{more}"
    note: Note | None = None
    if look_like_dates(levels.texts):
        note = "date levels"
    elif look_like_numbers(levels.texts):
        note = "number levels"
    elif category.rare:
        note = "rare levels"
    return ColumnDescription(name, "categorical", values, missing, len(levels), note)


def _written(value: Any, column: Column) -> str:
    """A number, or a count of a date's unit, as people write it."""
    is_number = column.unit is None
    if is_number and not is_span(value_type(column.type)):
        return str(int(value)) if column.is_integer else f"{value:.6g}"
    restored = restore_values(column, np.array([value]), np.ones(1, dtype=bool))
    return str(restored[0] if is_number else shown_text(pa.chunked_array([restored]))[0])


def _label(name: str) -> str:
    return shortened(printable(name), 28)
