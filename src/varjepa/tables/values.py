"""Arrow types and cells: numbers, instants, or the one text by which equal categories are equal.

Everything here works on whole Arrow columns; no Python code runs per row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.tables.messages import quoted, shortened

# --- types

_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")
_DICTIONARY = re.compile(r"dictionary<values=(.+), indices=(u?int\d+), ordered=([01])>")


def value_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values themselves: a dictionary's values, else the type unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_text_or_bytes(kind: pa.DataType) -> bool:
    return is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


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


def parse_type(name: str) -> pa.DataType:
    """The supported type that Arrow spells like this, e.g. ``timestamp[us, tz=UTC]``.

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


# --- cells

MISSING_WORDS = (
    *("", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NULL", "null", "None", "NaT"),
    *("NaN", "nan", "-NaN", "-nan", "#N/A N/A", "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"),
)
"""Cells of a CSV file that mean "not there". "?" is not among them: some tables use it as a level,
and guessing wrong would silently delete data."""

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_NUMBER = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[iI]nf(?:inity)?)$"
_WHOLE = r"^[+-]?\d{1,20}$"
_HEAD = 1000
_INT64_END = 2.0**63


@dataclass(frozen=True, slots=True)
class Numbers:
    values: NDArray[Any]  # (N,) int64, uint64 or float64
    """Integers stay integers, because float64 would merge neighbours above 2^53. Cells that are not
    valid hold 0."""
    valid: NDArray[np.bool_]  # (N,)
    infinite: int = 0
    """How many ±inf were set aside as missing."""


def as_numbers(column: pa.ChunkedArray, name: str) -> Numbers:
    """Read any column whose cells are numbers: numbers, booleans, spans of time, or text of them.

    Times of day and durations become seconds. Raises InputError, naming one offending value, when
    the cells are something else.
    """
    column = undictionary(column)
    kind = column.type
    if pa.types.is_null(kind):
        return Numbers(np.zeros(len(column)), np.zeros(len(column), dtype=bool))
    if is_text(kind):
        column, offender = parse_numbers(column)
        if offender is not None:
            raise InputError(
                f"column {quoted(name)} holds {quoted(offender)}, which is not a number"
            )
        kind = column.type
    elif is_span(kind):
        counts = column.cast(pa.int32()) if pa.types.is_time32(kind) else column
        column = pc.divide(counts.cast(pa.int64()).cast(pa.float64()), float(PER_SECOND[kind.unit]))
    elif pa.types.is_decimal(kind):
        column = _decimal_to_number(column)
    elif not (is_plain_number(kind) or pa.types.is_boolean(kind)):
        raise InputError(f"column {quoted(name)} holds {kind} values, which are not numbers")
    return _to_numpy(column)


def _to_numpy(column: pa.ChunkedArray) -> Numbers:
    kind = column.type
    if pa.types.is_floating(kind):
        wide = pa.float64()
    else:
        wide = pa.uint64() if pa.types.is_uint64(kind) else pa.int64()
    column = column.cast(wide)
    valid = column.is_valid().to_numpy()
    values = pc.fill_null(column, 0).to_numpy()
    infinite = 0
    if values.dtype.kind == "f":
        infinite = int(np.isinf(values).sum())
        valid = valid & np.isfinite(values)
        values = np.where(valid, values, 0.0)
    return Numbers(values, valid, infinite)


def _decimal_to_number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole decimals become int64 where they fit, everything else float64."""
    if column.type.scale == 0:
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            pass
    return column.cast(pa.float64())


def parse_numbers(text: pa.ChunkedArray) -> tuple[pa.ChunkedArray, str | None]:
    """Text to int64, uint64 or float64, or the first value that is not a number.

    Words for "missing" become missing; white space around a number is ignored.
    """
    offender = _first_non_number(text.slice(0, _HEAD))  # most text is refused here, at no cost
    if offender is None:
        offender = _first_non_number(text)
    if offender is not None:
        return text, offender
    digits = _without_missing_words(text)
    if pc.all(pc.match_substring_regex(digits, _WHOLE), min_count=0).as_py():
        for whole in (pa.int64(), pa.uint64()):
            try:
                return pc.replace_substring_regex(digits, r"^\+", "").cast(whole), None
            except pa.ArrowInvalid:
                continue
    return digits.cast(pa.float64()), None


def _first_non_number(text: pa.ChunkedArray) -> str | None:
    digits = _without_missing_words(text)
    wrong = digits.filter(pc.invert(pc.match_substring_regex(digits, _NUMBER)))
    return wrong[0].as_py() if len(wrong) else None


def _without_missing_words(text: pa.ChunkedArray) -> pa.ChunkedArray:
    trimmed = pc.utf8_trim_whitespace(text)
    words = pa.array(MISSING_WORDS, text.type)
    return pc.if_else(pc.is_in(trimmed, value_set=words), pa.scalar(None, text.type), trimmed)


def has_missing_words(text: pa.ChunkedArray) -> bool:
    """Whether a cell says in a word that it is missing; an empty one says nothing."""
    words = pa.array([word for word in MISSING_WORDS if word], text.type)
    return bool(pc.any(pc.is_in(pc.utf8_trim_whitespace(text), value_set=words), min_count=0))


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The canonical text of each cell: 1, 1.0 and Decimal("1.00") are all "1".

    Text itself is left alone, so "1.0" and "1" stay two levels of a text column.
    """
    column = undictionary(column)
    kind = column.type
    if pa.types.is_floating(kind):
        return _float_text(column)
    if pa.types.is_decimal(kind):
        return drop_zero_decimals(column.cast(pa.large_string()))
    if is_span(kind):
        counts = column.cast(pa.int32()) if pa.types.is_time32(kind) else column.cast(pa.int64())
        return counts.cast(pa.large_string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))  # the same instant in UTC, unmarked
    return column.cast(pa.large_string())


def shown_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each cell as people read it: dates and times in their own zone and without empty parts.

    Examples:
        >>> days = pa.chunked_array([pa.array([0, 86_400_000], pa.timestamp("ms"))])
        >>> shown_text(days).to_pylist()
        ['1970-01-01', '1970-01-02']
    """
    column = undictionary(column)
    kind = column.type
    if pa.types.is_duration(kind):
        spans = column.cast(pa.duration("us"), safe=False).to_pylist()
        texts = [None if span is None else str(span) for span in spans]
        return pa.chunked_array([pa.array(texts, pa.large_string())])
    if not (pa.types.is_timestamp(kind) or pa.types.is_time(kind)):
        return as_text(column)
    try:
        text = column.cast(pa.large_string())
    except pa.ArrowException:  # a zone that this machine does not know
        text = as_text(column)
    text = pc.replace_substring_regex(text, r"\.0+([+-]\d{4}|Z)?$", r"\1")
    return pc.replace_substring_regex(text, " 00:00:00$", "")


def drop_zero_decimals(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write "1.50" as "1.5" and "1.00" as "1"; text without a decimal point stays as it is."""
    text = pc.replace_substring_regex(text, r"^([+-]?\d+)\.0*$", r"\1")
    return pc.replace_substring_regex(text, r"^([+-]?\d*\.\d*[1-9])0+$", r"\1")


def _float_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    is_integer = pc.and_(
        pc.equal(pc.floor(column), column), pc.less(pc.abs(column.cast(pa.float64())), _INT64_END)
    )
    nothing = pa.scalar(None, column.type)
    whole = pc.if_else(is_integer, column, nothing).cast(pa.int64()).cast(pa.large_string())
    text = pc.if_else(pc.is_nan(column), nothing, column).cast(pa.large_string())
    return pc.coalesce(whole, text)


def undictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.dictionary_decode(column) if pa.types.is_dictionary(column.type) else column


# --- dates and times as integer counts since 1970, and the calendar parts of them

ELAPSED = "elapsed"
CALENDAR_PARTS = ("month", "weekday", "hour")

NANOSECONDS = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Length of each unit; a column keeps the unit it was fitted with, so counts stay exact."""

_INT32 = np.iinfo(np.int32)
_INT64 = np.iinfo(np.int64)
_CALENDAR_DAYS = 2**31
"""Days beyond which there is no calendar: what a date32 can hold, 5.8 million years."""

_ISO_TYPES = (
    pa.date32(),
    *(pa.timestamp(unit, zone) for unit in ("s", "us", "ns") for zone in (None, "UTC")),
)
"""What text of dates and times is tried as, the coarsest first."""


@dataclass(frozen=True, slots=True)
class Instants:
    """A column of dates or timestamps; zoned ones are counted in UTC.

    UTC also for the calendar parts: the same instant then encodes the same way whatever zone it
    was written in, and no time-zone database is needed.
    """

    counts: NDArray[np.int64]  # (N,) units since 1970; 0 where not valid
    valid: NDArray[np.bool_]  # (N,)
    unit: str

    def in_unit(self, unit: str) -> Instants:
        """The same instants in another unit: rounded down, or held at the ends of 64 bits."""
        have, want = NANOSECONDS[self.unit], NANOSECONDS[unit]
        if want >= have:
            return Instants(self.counts // (want // have), self.valid, unit)
        factor = have // want
        held = np.clip(self.counts, -(-_INT64.min // factor), _INT64.max // factor)
        return Instants(held * factor, self.valid, unit)

    def parts(self) -> dict[str, NDArray[np.int64]]:
        """Elapsed units since 1970, month 1–12, weekday 0–6 from Monday, hour 0–23."""
        days = self.counts // (NANOSECONDS["D"] // NANOSECONDS[self.unit])
        dates = np.clip(days, -_CALENDAR_DAYS, _CALENDAR_DAYS).astype("datetime64[D]")
        months = dates.astype("datetime64[M]").astype(np.int64)
        parts = {
            ELAPSED: self.counts,
            "month": months % 12 + 1,
            "weekday": (days + 3) % 7,  # 1 January 1970 was a Thursday
        }
        if self.unit != "D":
            hour = 3600 * NANOSECONDS["s"] // NANOSECONDS[self.unit]
            parts["hour"] = self.counts // hour % 24
        return parts


def as_instants(column: pa.ChunkedArray, name: str) -> Instants:
    """Read dates, timestamps, or ISO 8601 text of them; anything else is refused by name."""
    column = undictionary(column)
    if is_text(column.type):
        column = column.cast(iso_type([column], name))
    kind = column.type
    if pa.types.is_null(kind):
        nothing = np.zeros(len(column), dtype=np.int64)
        return Instants(nothing, nothing.astype(bool), "us")
    if not is_instant(kind):
        raise InputError(f"column {quoted(name)} holds {kind} values, which are not dates or times")
    if pa.types.is_date32(kind):
        unit, column = "D", column.cast(pa.int32())
    else:
        unit = "ms" if pa.types.is_date64(kind) else kind.unit
    counts = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return Instants(counts, column.is_valid().to_numpy(), unit)


def instants_to_arrow(instants: Instants) -> pa.Array:
    """The inverse of :func:`as_instants`, as a date32 or an unzoned timestamp."""
    counts, missing = instants.counts, ~instants.valid
    if instants.unit == "D":
        days = np.clip(counts, _INT32.min, _INT32.max).astype(np.int32)
        return pa.array(days, mask=missing).cast(pa.date32())
    return pa.array(counts, mask=missing).cast(pa.timestamp(instants.unit))


def iso_type(texts: Iterable[pa.ChunkedArray], name: str) -> pa.DataType:
    """The coarsest type that reads every cell of every block, so that dates come back as dates."""
    kinds = _ISO_TYPES
    for text in map(undictionary, texts):
        kinds = tuple(kind for kind in kinds if _is_read_as(text, kind))
        if not kinds:
            strange = text.filter(pc.invert(pc.match_substring_regex(text, r"^\d{4}-\d{2}-\d{2}")))
            example = (strange if len(strange) else text.drop_null())[0].as_py()
            raise InputError(
                f"column {quoted(name)} holds text that is not ISO 8601 dates or times, such as "
                f"{quoted(example)}"
            )
    return kinds[0]


def _is_read_as(text: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
