"""What each column of a table is: numeric, categorical or datetime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from varjepa.errors import InputError
from varjepa.tables.arrow_types import is_instant, is_span, is_text, refuse_unsupported, value_type
from varjepa.tables.instants import as_instants
from varjepa.tables.quoting import quoted
from varjepa.tables.values import Numbers, as_numbers, parse_numbers

Kind = Literal["numeric", "categorical", "datetime"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_EXACT_WHOLE = 2.0**53


@dataclass(frozen=True, slots=True)
class Column:
    """One column, and what is needed to give back values of the same type."""

    name: str

    kind: Kind

    type: pa.DataType
    """The Arrow type the column came with, and the one it is decoded to."""

    is_integer: bool = False
    """Numeric columns: whether every training value is a whole number, whatever the type. An
    integer column with holes reaches us from pandas as floats, and its imputations should still be
    whole."""

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
    overrides = dict(overrides or {})
    if not table.num_columns:
        raise InputError("the table has no columns")
    if not table.num_rows:
        raise InputError("the table has no rows")
    for name, kind in overrides.items():
        if name not in table.column_names:
            raise InputError(f"there is no column {quoted(name)} to treat as {kind}")
        if kind not in KINDS:
            raise InputError(
                f"column {quoted(name)} must be one of {', '.join(KINDS)}, not {quoted(kind)}"
            )
    return TableSchema(
        tuple(
            _column(name, table[name], overrides.get(name) or _kind(name, table[name]))
            for name in table.column_names
        )
    )


def _kind(name: str, data: pa.ChunkedArray) -> Kind:
    kind = data.type
    refuse_unsupported(name, kind)
    if is_text(kind):
        return "numeric" if _is_text_of_numbers(data) else "categorical"
    if pa.types.is_boolean(kind) or pa.types.is_dictionary(kind):
        return "categorical"
    return "datetime" if is_instant(kind) else "numeric"


def _column(name: str, data: pa.ChunkedArray, kind: Kind) -> Column:
    """Read the column once as what it is said to be; what cannot be read so is refused here."""
    refuse_unsupported(name, data.type)
    if kind == "categorical":
        return Column(name, kind, data.type)
    if kind == "datetime":
        return Column(name, kind, data.type, unit=as_instants(data, name).unit)
    numbers = as_numbers(data, name)
    is_integer = _is_whole(numbers) and not is_span(value_type(data.type))
    return Column(name, kind, data.type, is_integer=is_integer)


def _is_text_of_numbers(data: pa.ChunkedArray) -> bool:
    """Whether some cell is a number and none is anything else."""
    parsed, offender = parse_numbers(data)
    return offender is None and parsed.null_count < len(parsed)


def _is_whole(numbers: Numbers) -> bool:
    if numbers.values.dtype.kind in "iu":
        return True
    values = numbers.values[numbers.valid]
    small = np.abs(values) < _EXACT_WHOLE
    return bool(len(values) and (small & (np.rint(values) == values)).all())
