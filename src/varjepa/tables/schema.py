"""What each column of a table is: numeric, categorical or datetime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args, runtime_checkable

import pyarrow as pa

from varjepa.errors import InputError
from varjepa.tables.arrow_types import is_instant, is_span, is_text, refuse_unsupported, value_type
from varjepa.tables.dates import as_instants, iso_unit
from varjepa.tables.messages import quoted, suggestion
from varjepa.tables.summaries import NumberSummary
from varjepa.tables.values import as_numbers, parse_numbers

Kind = Literal["numeric", "categorical", "datetime"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@runtime_checkable
class TableSource(Protocol):
    """A table that is read a block of rows at a time: files, or one block in memory."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def rows(self) -> int: ...

    def blocks(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of all rows in order, from the beginning whenever it is called."""


@dataclass(frozen=True, slots=True)
class TableInMemory(TableSource):
    """A table in one block."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def blocks(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield self.table.select(columns)


@dataclass(frozen=True, slots=True)
class Column:
    """One column, and what is needed to give back values of the same type."""

    name: str

    kind: Kind

    type: pa.DataType
    """The Arrow type the column came with, and the one it is decoded to."""

    is_integer: bool = False
    """Numeric columns: whether every training value is an integer, whatever the type. An
    integer column with missing values comes from pandas as floats, and its imputations should still
    be integers."""

    unit: str | None = None
    """Datetime columns: what elapsed time is counted in, one of D, s, ms, us, ns."""

    @property
    def is_boolean(self) -> bool:
        return bool(pa.types.is_boolean(value_type(self.type)))


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table, in its order."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def infer_schema(table: pa.Table, overrides: Mapping[str, Kind] | None = None) -> TableSchema:
    """Decide every column's kind from its type, and for text from its values.

    Numbers, times of day and durations are numeric, dates and timestamps datetime, everything else
    categorical; text is numeric if every value that is there is a number (so codes with leading
    zeros, such as postcodes, want an override). ``overrides`` decides by name instead.
    """
    drafts = draft_columns(TableInMemory(table), overrides)
    return TableSchema(tuple(_completed(draft, table[draft.name]) for draft in drafts))


def _check_columns(source: TableSource, overrides: Mapping[str, Kind] | None) -> None:
    """Refuse a table without cells, and overrides of what is not there."""
    schema = source.schema
    if not len(schema):
        raise InputError("the table has no columns")
    if not source.rows:
        raise InputError("the table has no rows")
    for name, kind in (overrides or {}).items():
        if name not in schema.names:
            close = suggestion(name, schema.names)
            raise InputError(f"there is no column {quoted(name)} to treat as {kind}{close}")
        if kind not in KINDS:
            raise InputError(
                f"column {quoted(name)} must be one of {', '.join(KINDS)}, not {quoted(kind)}"
            )


def draft_columns(
    source: TableSource, overrides: Mapping[str, Kind] | None = None
) -> tuple[Column, ...]:
    """Columns of which everything is known but whether their numbers are integers.

    Only text is read for it, and of that no more than it takes: a column is a category from its
    first cell on that is no number.
    """
    _check_columns(source, overrides)
    for field in source.schema:
        refuse_unsupported(field.name, field.type)
    drafts = []
    for field in source.schema:
        chosen = (overrides or {}).get(field.name) or _kind(field, source)
        unit = _unit(field, source) if chosen == "datetime" else None
        drafts.append(Column(field.name, chosen, field.type, unit=unit))
    return tuple(drafts)


def complete_column(draft: Column, numbers: NumberSummary) -> Column:
    """A drafted numeric column once all its numbers have been seen."""
    return replace(draft, is_integer=numbers.is_integer and not is_span(value_type(draft.type)))


def _kind(field: pa.Field, source: TableSource) -> Kind:
    if is_text(field.type):
        return "numeric" if _is_text_of_numbers(field.name, source) else "categorical"
    if pa.types.is_boolean(field.type) or pa.types.is_dictionary(field.type):
        return "categorical"
    return "datetime" if is_instant(field.type) else "numeric"


def _is_text_of_numbers(name: str, source: TableSource) -> bool:
    """Whether some cell is a number and none is anything else."""
    is_number = False
    for block in source.blocks([name]):
        parsed, offender = parse_numbers(block[name])
        if offender is not None:
            return False
        is_number = is_number or parsed.null_count < len(parsed)
    return is_number


def _unit(field: pa.Field, source: TableSource) -> str:
    if not is_text(value_type(field.type)):
        return as_instants(pa.chunked_array([], field.type), field.name).unit
    return iso_unit((block[field.name] for block in source.blocks([field.name])), field.name)


def _completed(draft: Column, data: pa.ChunkedArray) -> Column:
    """Read the column as what it is said to be; what cannot be read so is refused here."""
    if draft.kind != "numeric":
        return draft
    numbers, found = as_numbers(data, draft.name), NumberSummary()
    found.add(numbers.values, numbers.valid)
    return complete_column(draft, found)
