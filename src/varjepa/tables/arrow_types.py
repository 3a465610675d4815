"""Which Arrow types a column may have, and their names in JSON."""

from __future__ import annotations

import re

import pyarrow as pa

from varjepa.errors import InputError
from varjepa.tables.messages import quoted, shortened

_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")
_DICTIONARY = re.compile(r"dictionary<values=(.+), indices=(u?int\d+), ordered=([01])>")


def value_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values themselves: a dictionary's values, else the type unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_plain_number(kind: pa.DataType) -> bool:
    """Integers, floats and decimals; not booleans, which are categories."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_span(kind: pa.DataType) -> bool:
    """Times of day and durations, which are read as seconds."""
    return pa.types.is_time(kind) or pa.types.is_duration(kind)


def is_instant(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def is_supported(kind: pa.DataType) -> bool:
    """Whether a column of this type can be encoded; nested, binary and extension types cannot."""
    kind = value_type(kind)
    return bool(
        pa.types.is_null(kind)
        or pa.types.is_boolean(kind)
        or is_text(kind)
        or is_plain_number(kind)
        or is_span(kind)
        or is_instant(kind)
    )


def refuse_unsupported(name: str, kind: pa.DataType) -> None:
    if not is_supported(kind):
        what = shortened(str(kind))
        raise InputError(f"column {quoted(name)} holds {what} values, which cannot be encoded")


def wider_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """A type for the values of both: the larger of two sizes, a float for integers and floats.

    None: there is none, as for numbers and text.
    """
    schemas = [pa.schema({"": kind}) for kind in (one, other)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None


def type_name(kind: pa.DataType) -> str:
    """Arrow's own spelling, e.g. ``timestamp[us, tz=UTC]``."""
    return str(kind)


def parse_type(name: str) -> pa.DataType:
    """The inverse of :func:`type_name` on supported types.

    Examples:
        >>> parse_type("decimal128(5, 2)")
        Decimal128Type(decimal128(5, 2))
    """
    try:
        kind = _parse(name)
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise InputError(f"{name!r} is not a column type this version knows") from error
    if not is_supported(kind):
        raise InputError(f"{name!r} is not a column type this version can encode")
    return kind


def _parse(name: str) -> pa.DataType:
    if match := _DICTIONARY.fullmatch(name):
        values, indices, ordered = match.groups()
        return pa.dictionary(pa.type_for_alias(indices), _parse(values), ordered == "1")
    if match := _DECIMAL.fullmatch(name):
        bits, precision, scale = match.groups()
        return getattr(pa, f"decimal{bits}")(int(precision), int(scale))
    if match := _ZONED.fullmatch(name):
        return pa.timestamp(match[1], match[2])
    return pa.type_for_alias(name)
