"""What a column is (numeric, categorical, datetime), and what it becomes for the networks.

A table in memory is one block of rows. What is asked of many blocks (ends, types, levels and their
counts) is the same to the last bit as of one; only where a table is so large that ``limits`` is
given, the inner quantiles of numbers come from a sample of the rows, and of a category with more
levels than memory allows, the frequent ones are found first and counted in a second reading.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.tables.messages import quoted, suggestion
from varjepa.tables.scaling import Bins, Scaler, step_of_decimals
from varjepa.tables.values import (
    as_instants,
    as_numbers,
    as_text,
    drop_zero_decimals,
    has_missing_words,
    is_instant,
    is_plain_number,
    is_text,
    iso_type,
    parse_numbers,
    refuse_unsupported,
    value_type,
)

# --- columns that are not modelled: they have no token, and tables come back with them as they came

Reason = Literal["empty", "constant", "identifier", "free text", "date text", "number text"]
REASONS: tuple[Reason, ...] = get_args(Reason)

MIN_ROWS = 50
"""With fewer values it is not known whether nearly all differ."""

NEARLY_UNIQUE = 0.95
"""Different texts of a category, as a share of the rows that have one, above which it is none."""

FREE_TEXT_WORDS = 3.0
"""Words of a cell, on average, from which nearly unique text is free text."""

MIN_AMOUNTS = 20
"""Fewer different numbers among texts may be levels: 1, 2, 3+."""

NEARLY_AMOUNTS = 0.9
"""Share of a column's different texts from which it is said to hold numbers."""

_AMOUNT = r"^\s*[€$£¥]?\s*[+-]?(\d{1,3}([,.']\d{3})+|\d+)([.,]\d+)?([eE][+-]?\d+)?\s*[%€$£¥]?\s*$"

_CODE_WORDS = {"id", "code", "key", "zip", "postcode", "postal", "plz", "sku", "isbn", "fips"}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why a column is not modelled, and what is known of it."""

    reason: Reason
    missing_share: float
    values: int
    """Number of different values, or of rows with a value where nearly all differ."""
    value: int | float | str | None = None
    """What a constant column holds: a number, a date as a count of its unit, or a level."""


def text_reason(counts: pa.Table, known: int) -> Reason | None:
    """Why a category with these levels, ``text`` and ``count``, would not be modelled.

    ``known`` rows have a level; if those of ``counts`` are fewer, the rarest were dropped.
    """
    rows = pc.sum(counts["count"]).as_py() or 0
    if rows == known and counts.num_rows < 2:
        return "constant" if known else "empty"
    if known < MIN_ROWS or (counts.num_rows and counts.num_rows <= NEARLY_UNIQUE * rows):
        return None
    if not counts.num_rows:  # all were too rare to be held
        return "identifier"
    if look_like_dates(counts["text"]):
        return "date text"
    if look_like_numbers(counts["text"]):
        return "number text"
    words = pc.add(pc.count_substring_regex(counts["text"], r"\s+"), 1)
    return "free text" if pc.mean(words).as_py() >= FREE_TEXT_WORDS else "identifier"


def look_like_dates(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Whether these are all dates of a form that is not read, such as 31.12.2024 or 12/31/24."""
    is_date = pc.match_substring_regex(texts, r"^\s*\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(\s|$)")
    return bool(len(texts)) and bool(pc.all(is_date).as_py())


def look_like_numbers(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Whether nearly all of these are amounts, and some are written as text: ?, 1,234 or 5%.

    Codes are no amounts: they are only digits, or begin with 0.
    """
    amount = pc.match_substring_regex(texts, _AMOUNT)
    is_code = pc.match_substring_regex(texts, r"^0\d")
    plain = pc.match_substring_regex(texts, r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$")
    known = pc.sum(amount).as_py() or 0
    return (
        known >= max(MIN_AMOUNTS, NEARLY_AMOUNTS * len(texts))
        and not pc.any(is_code).as_py()
        and not pc.all(plain).as_py()
    )


def is_called_code(name: str) -> bool:
    """Whether a column's name says that its numbers are names.

    Examples:
        >>> is_called_code("customerId"), is_called_code("ZIP_code"), is_called_code("width")
        (True, True, False)
    """
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word in _CODE_WORDS or word.endswith("code") for word in words)


# --- summaries of any number of blocks, in bounded memory

_EXACT_INTEGERS = 2.0**53
_ENTRY = 32
"""Bytes of a level besides its text: an offset, a count, and their share of a hash table."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """How much of a large table its codec may hold in memory."""

    numbers: int = 1 << 23
    """numbers of all numeric columns together, 8 bytes each"""
    level_bytes: int = 1 << 26
    """levels of all categories together"""


MOST_DECIMALS = 6
STEP_VALUES = 20
"""With fewer values, that all are on a step may be chance."""


class NumberSummary:
    """The numbers of one column, or of one part of a date.

    ``floats`` is the type they had, if they were floats of fewer than 64 bits.
    """

    def __init__(self, floats: np.dtype[Any] | None = None) -> None:
        self.low: int | float | None = None
        self.high: int | float | None = None
        self.count = 0
        """of all known numbers"""
        self._types: set[str] = set()
        self._has_fractions = False
        self._kept: list[NDArray[Any]] = []
        self._floats = np.dtype(np.float64) if floats is None else floats
        self._origin: int | None = None
        self._divisor = 0
        """Greatest common divisor of all differences of integers so far; 0: all are equal."""
        self._decimals = 0
        """That all numbers so far can be written with; more than MOST_DECIMALS: with none."""
        self._is_rising = self._is_falling = True
        """Whether each number so far is above, or below, the one before."""
        self._last: int | float | None = None

    def add(
        self,
        values: NDArray[Any],  # (N,) int64, uint64 or float64
        valid: NDArray[np.bool_],  # (N,)
        kept: NDArray[np.bool_] | None = None,  # (N,)
    ) -> None:
        """Count a block's numbers; those in rows that are ``kept`` stay, None: all of them."""
        known = values[valid]
        self._types.add(values.dtype.name)
        self._kept.append(known if kept is None else values[valid & kept])
        if not len(known):
            return
        is_integer_type = values.dtype.kind in "iu"
        number = int if is_integer_type else float
        low, high = number(known.min()), number(known.max())
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        self.count += len(known)
        if not is_integer_type:
            if not self._has_fractions:
                self._has_fractions = not bool((np.rint(known) == known).all())
            self._decimals = _count_decimals(known, self._decimals, self._floats)
        if not self._has_fractions and max(abs(low), abs(high)) < _EXACT_INTEGERS:
            self._divide(known.astype(np.int64), int(low))
        elif is_integer_type:
            self._divide(known, int(low))
        if self._is_rising or self._is_falling:
            self._order(known, number(known[0]), number(known[-1]))

    def _order(self, known: NDArray[Any], first: int | float, last: int | float) -> None:
        before, self._last = self._last, last
        self._is_rising &= (before is None or first > before) and _rises(known)
        self._is_falling &= (before is None or first < before) and _rises(known[::-1])

    def _divide(self, integers: NDArray[Any], low: int) -> None:
        """Count a block's integers, of which ``low`` is the smallest, in the common divisor."""
        if self._origin is None:
            self._origin = low
        self._divisor = math.gcd(self._divisor, low - self._origin)
        if self._divisor != 1:  # differences modulo 2^64, hence exact
            distances = integers.astype(np.uint64) - np.uint64(low % 2**64)
            self._divisor = math.gcd(self._divisor, int(np.gcd.reduce(distances)))

    @property
    def type(self) -> np.dtype[Any]:
        """The type that reading the whole column at once would have given its numbers."""
        if self._types <= {"int64"}:
            return np.dtype(np.int64)
        if self._types <= {"int64", "uint64"} and (self.low is None or self.low >= 0):
            return np.dtype(np.uint64)
        return np.dtype(np.float64)

    @property
    def ends(self) -> tuple[int, int] | tuple[float, float] | None:
        """Smallest and largest number; None if there is none."""
        if self.low is None or self.high is None:
            return None
        if self.type.kind in "iu":
            return int(self.low), int(self.high)
        return float(self.low), float(self.high)

    @property
    def is_integer(self) -> bool:
        """Whether all are integers, as far as their type tells."""
        if self.type.kind in "iu":
            return True
        if self.ends is None or self._has_fractions:
            return False
        return max(map(abs, self.ends)) < _EXACT_INTEGERS

    @property
    def step(self) -> int | float | None:
        """What all differences of integers are multiples of, or 0.1, 0.01, … for decimals.

        None: there is none, or there are too few numbers to tell.
        """
        if self.ends is None or self.low == self.high or self.count < STEP_VALUES:
            return None
        if self.is_integer:
            return self._divisor if self.type.kind in "iu" else float(self._divisor)
        # larger floats are so far apart that many have few decimals by chance
        largest = 2.0 ** (np.finfo(self._floats).nmant - 4) / 10.0**self._decimals
        if 0 < self._decimals <= MOST_DECIMALS and max(map(abs, self.ends)) < largest:
            return step_of_decimals(self._decimals)
        return None

    def are_identifiers(self, name: str) -> bool:
        """Whether these are integers that name the rows of a column.

        They differ all, and leave few gaps or have a name that says it. To be in order is not
        enough: so are times in a log. Floats are not, even where all are integers.
        """
        is_integer_type = self.type.kind in "iu"
        if not is_integer_type or self.ends is None or not self.step or self.count < MIN_ROWS:
            return False
        low, high = self.ends
        places = (high - low) / self.step + 1
        is_dense = places < 2 * self.count
        if not is_dense and not is_called_code(name):
            return False
        return self._is_rising or self._is_falling or self._is_distinct(places)

    def _is_distinct(self, places: float) -> bool:
        """Whether no number was kept twice; of a sample, only if it would have been otherwise."""
        kept = np.concatenate([part.astype(self.type, copy=False) for part in self._kept])
        is_enough = len(kept) == self.count or len(kept) ** 2 > 20 * min(places, self.count)
        return is_enough and len(np.unique(kept)) == len(kept)

    def take_sample(self) -> NDArray[Any]:
        """The numbers that were kept, in the order of the rows, which are then released.

        Of a sample, the smallest and the largest number of all rows are part.
        """
        kept, self._kept = self._kept, []
        numbers = np.concatenate([part.astype(self.type, copy=False) for part in kept])
        if len(numbers) < self.count:
            numbers = np.concatenate([numbers, np.array(self.ends, self.type)])
        return numbers


def _rises(values: NDArray[Any]) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _count_decimals(values: NDArray[np.float64], least: int, kind: np.dtype[Any]) -> int:
    """Decimals that these floats of a type are written with; MOST_DECIMALS + 1: none suffice."""
    for decimals in range(least, MOST_DECIMALS + 1):
        if _has_decimals(values[:1000], decimals, kind) and _has_decimals(values, decimals, kind):
            return decimals
    return MOST_DECIMALS + 1


def _has_decimals(values: NDArray[np.float64], decimals: int, kind: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore"):
        rounding = 2.0 * np.spacing(np.abs(values).astype(kind))
        return bool((np.abs(np.round(values, decimals) - values) <= rounding).all())


class LevelSummary:
    """The levels of one category and how many rows have each.

    Where they need more than ``limits`` bytes, the rarest go: as many counts as the most frequent
    of those has are taken off every level (Misra and Gries), so a level that is gone has been seen
    at most ``lost`` times in all, a small part of the rows. What is left is to be counted again.
    """

    def __init__(self, limits: int | None = None) -> None:
        self.limits = limits
        self.missing = 0
        self.lost = 0
        """0: every level is here, with its exact count"""
        self._found = _counts(pa.chunked_array([], pa.large_string()))
        self._new: list[pa.Table] = []
        self._new_bytes = 0

    def add(self, text: pa.ChunkedArray) -> None:
        self.missing += text.null_count
        counts = _counts(text)
        self._new.append(counts)
        self._new_bytes += _size(counts)
        if self.limits is not None and self._new_bytes > self.limits // 2:
            self._merge()

    def counts(self) -> pa.Table:
        """All levels found: ``text`` and ``count``, in no order."""
        self._merge()
        return self._found

    def _merge(self) -> None:
        if self._new:
            both = pa.concat_tables([self._found, *self._new])
            self._new, self._new_bytes = [], 0
            if both.num_rows:
                grouped = pa.TableGroupBy(both, "text", use_threads=False)
                both = grouped.aggregate([("count", "sum")])
                both = both.select(["text", "count_sum"]).rename_columns(["text", "count"])
            self._found = both
        if self.limits is not None and _size(self._found) > self.limits:
            self._drop_rare(self.limits // 2)

    def _drop_rare(self, wanted: int) -> None:
        """Take counts off until the levels left need at most ``wanted`` bytes."""
        order = pc.sort_indices(self._found["count"], sort_keys=[("", "descending")])
        sizes = pc.binary_length(self._found["text"].take(order)).to_numpy() + _ENTRY
        kept = int(np.searchsorted(sizes.cumsum(), wanted, side="right"))
        rarest = self._found["count"].take(order)[kept].as_py()
        self.lost += rarest
        left = pc.subtract(self._found["count"], rarest)
        table = pa.table({"text": self._found["text"], "count": left})
        self._found = table.filter(pc.greater(left, 0)).combine_chunks()


def count_again(levels: pa.ChunkedArray, blocks: Iterable[pa.ChunkedArray]) -> pa.Table:
    """Exact counts of some levels from texts of all rows, a block at a time."""
    wanted = levels.combine_chunks()
    counts = np.zeros(len(wanted), dtype=np.int64)
    for text in blocks:
        places = pc.index_in(text, value_set=wanted).drop_null().to_numpy()
        counts += np.bincount(places, minlength=len(wanted))
    return pa.table({"text": wanted, "count": counts})


def _counts(text: pa.ChunkedArray) -> pa.Table:
    counts = pc.value_counts(text.drop_null())
    texts = counts.field("values").cast(pa.large_string())
    return pa.table({"text": texts, "count": counts.field("counts").cast(pa.int64())})


def _size(counts: pa.Table) -> int:
    texts = pc.sum(pc.binary_length(counts["text"])).as_py() or 0
    return int(texts) + _ENTRY * counts.num_rows


# --- schema

Kind = Literal["numeric", "categorical", "datetime"]
KINDS: tuple[Kind, ...] = get_args(Kind)


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
    """A table as :func:`varjepa.tables.read_table` gives it, which is not read again."""

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
    left_out: LeftOut | None = None
    """Why the column is not modelled; None: it is."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table, in its order."""

    columns: tuple[Column, ...]

    @property
    def modelled(self) -> tuple[Column, ...]:
        """The columns that networks see."""
        return tuple(column for column in self.columns if column.left_out is None)

    @property
    def left_out(self) -> dict[str, LeftOut]:
        """The others by name."""
        return {c.name: c.left_out for c in self.columns if c.left_out is not None}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def draft_columns(
    source: TableSource, overrides: Mapping[str, Kind] | None = None
) -> tuple[Column, ...]:
    """Columns of which everything is known but whether their numbers are integers.

    Numbers, times of day and durations are numeric, dates and timestamps datetime, everything else
    categorical; text is numeric if every value that is there is a number (so codes with leading
    zeros, such as postcodes, want an override). ``overrides`` decides by name instead. Only text is
    read for it, and no further than the first cell that is no number.
    """
    schema, chosen = source.schema, overrides or {}
    if not len(schema):
        raise InputError("the table has no columns")
    if not source.rows:
        raise InputError("the table has no rows")
    for name, kind in chosen.items():
        if name not in schema.names:
            close = suggestion(str(name), schema.names)
            raise InputError(f"there is no column {quoted(name)} to treat as {kind}{close}")
        if kind not in KINDS:
            raise InputError(
                f"column {quoted(name)} must be one of {', '.join(KINDS)}, not {quoted(kind)}"
            )
    for field in schema:
        refuse_unsupported(field.name, field.type)
    drafts = []
    for field in schema:
        kind = chosen.get(field.name) or _kind(field, source)
        unit = _unit(field, source) if kind == "datetime" else None
        drafts.append(Column(field.name, kind, field.type, unit=unit))
    return tuple(drafts)


def _kind(field: pa.Field, source: TableSource) -> Kind:
    if is_text(field.type):
        return "numeric" if _is_text_of_numbers(field.name, source) else "categorical"
    if pa.types.is_boolean(field.type) or pa.types.is_dictionary(field.type):
        return "categorical"
    return "datetime" if is_instant(field.type) else "numeric"


def _is_text_of_numbers(name: str, source: TableSource) -> bool:
    """Whether some cell is a number and none is anything else but missing.

    Whole numbers next to a word such as NULL are codes: there the word is one more level.
    """
    is_number = has_fractions = has_words = False
    for block in source.blocks([name]):
        parsed, offender = parse_numbers(block[name])
        if offender is not None:
            return False
        is_number = is_number or parsed.null_count < len(parsed)
        has_fractions = has_fractions or pa.types.is_floating(parsed.type)
        has_words = has_words or has_missing_words(block[name])
    return is_number and (has_fractions or not has_words)


def _unit(field: pa.Field, source: TableSource) -> str:
    kind = field.type
    if is_text(value_type(kind)):
        kind = iso_type((block[field.name] for block in source.blocks([field.name])), field.name)
    return as_instants(pa.chunked_array([], kind), field.name).unit


# --- features

BOOLEAN_SPELLINGS = (("true", "false"), ("True", "False"), ("TRUE", "FALSE"), ("1", "0"))


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels seen in training: text in, codes out; code 0 is MISSING.

    They are sorted, so that row order and input format do not matter.
    """

    texts: pa.Array  # (L,) large_string, sorted
    """Canonical text of each level; level i has code i + 1."""
    counts: tuple[int, ...]
    """How many training rows had each level."""

    @classmethod
    def fit(cls, text: pa.ChunkedArray, max_levels: int | None = None) -> Levels:
        """All distinct texts, or the ``max_levels`` most frequent (ties: first in sorted order)."""
        return cls.of_counts(_counts(text), max_levels)

    @classmethod
    def of_counts(cls, counts: pa.Table, max_levels: int | None = None) -> Levels:
        """The same of a ``text`` and a ``count`` of each level."""
        if max_levels is not None and len(counts) > max_levels:
            by_count = [("count", "descending"), ("text", "ascending")]
            counts = counts.take(pc.sort_indices(counts, by_count)[:max_levels])
        counts = counts.sort_by("text")
        texts = counts["text"].combine_chunks().cast(pa.large_string())
        return cls(texts, tuple(counts["count"].to_pylist()))

    def __len__(self) -> int:
        return len(self.counts)

    def encode(self, text: pa.ChunkedArray) -> NDArray[np.int64]:  # (N,)
        """1..L for a known level; 0 for a missing cell and for an unknown level alike."""
        index = pc.index_in(text, value_set=self.texts)
        return pc.fill_null(index, -1).to_numpy().astype(np.int64) + 1


def category_text(
    column: pa.ChunkedArray, fitted: pa.DataType, levels: Levels | None = None
) -> pa.ChunkedArray:
    """Canonical text of a column as a codec fitted on type ``fitted`` would have written it.

    The same data arrives as text from one file and as numbers or booleans from another; this is
    where 1, 1.0, "1.0", True and "true" meet. ``levels`` are those of the fitted column, if any.
    """
    text = as_text(column)
    fitted, given = value_type(fitted), value_type(column.type)
    if pa.types.is_boolean(fitted):
        text = pc.utf8_lower(pc.utf8_trim_whitespace(text)) if is_text(given) else text
        text = drop_zero_decimals(text)
        for number, word in (("1", "true"), ("0", "false")):
            text = pc.if_else(pc.equal(text, number), word, text)
        return text.cast(pa.large_string())
    if pa.types.is_boolean(given) and levels is not None:
        yes, no = _boolean_spelling(levels)
        text = pc.if_else(pc.equal(text, "true"), yes, pc.if_else(pc.is_null(text), text, no))
        return text.cast(pa.large_string())
    if is_plain_number(fitted) and is_text(given):
        return drop_zero_decimals(pc.utf8_trim_whitespace(text))
    return text


def _boolean_spelling(levels: Levels) -> tuple[str, str]:
    """How a column that was fitted as text or numbers writes true and false."""
    for spelling in BOOLEAN_SPELLINGS:
        if pc.any(pc.is_in(levels.texts, value_set=pa.array(spelling, pa.large_string()))).as_py():
            return spelling
    return BOOLEAN_SPELLINGS[0]


# --- the model tokens of a table, and how each is fitted on a column's training rows

VALUE = "value"
"""The one part of a numeric column; a datetime column has elapsed time and calendar parts."""

MARGINAL_QUANTILES = 101


@dataclass(frozen=True, slots=True)
class Feature:
    """One model token. A datetime column has several, every other column exactly one."""

    name: str
    """The column's name; ``column:part`` for the parts of a datetime column."""
    column: str
    kind: Literal["numeric", "categorical"]
    levels: int
    """Number of levels of a categorical feature, MISSING not counted; 0 if numeric."""


@dataclass(frozen=True, slots=True)
class Marginal:
    """How one feature is distributed over the training rows, for sampling and for baselines."""

    missing_share: float
    quantiles: tuple[float, ...] = ()
    """Numeric: 101 evenly spaced quantiles of the observed cells in network scale; empty if there
    were none."""
    counts: tuple[int, ...] = ()
    """Categorical: training rows of each level."""

    def frequencies(self) -> NDArray[np.float64]:  # (L,)
        """Share of each level among the training rows that have one."""
        counts = np.asarray(self.counts, dtype=np.float64)
        return counts / max(counts.sum(), 1.0)


@dataclass(frozen=True, slots=True)
class NumericFeature:
    """A number of a row: a numeric column, or one part of a datetime column."""

    column: str
    part: str
    """``value`` for a numeric column; elapsed, month, weekday or hour for a datetime column."""
    scaler: Scaler
    marginal: Marginal
    bins: Bins
    """Of the training values in network scale, rounded to float32, as networks get them."""

    @property
    def feature(self) -> Feature:
        name = self.column if self.part == VALUE else f"{self.column}:{self.part}"
        return Feature(name, self.column, "numeric", 0)


@dataclass(frozen=True, slots=True)
class CategoricalFeature:
    """A category of a row, which is always a whole column."""

    column: str
    levels: Levels
    missing_share: float
    rare: int = 0
    """Training rows with a level that is too rare to be among ``levels``."""

    @property
    def feature(self) -> Feature:
        return Feature(self.column, self.column, "categorical", len(self.levels))

    @property
    def unseen_probability(self) -> float:
        """Chance that the next row has a level that is not among ``levels`` (Good and Turing).

        It is the share of training rows whose level no other row has, or is not kept: at least
        1 / (n + 1), at most .5.
        """
        rows = sum(self.levels.counts) + self.rare
        alone = self.levels.counts.count(1) + self.rare
        return min(max(alone, rows / (rows + 1)) / max(rows, 1), 0.5) if rows else 0.5

    @property
    def marginal(self) -> Marginal:
        return Marginal(self.missing_share, counts=self.levels.counts)


@dataclass(frozen=True, slots=True)
class Parts:
    """The numbers of one column, by part; all parts are there or not together."""

    values: dict[str, NDArray[Any]]  # each (N,) int64, uint64 or float64
    valid: NDArray[np.bool_]  # (N,)
    infinite: int = 0
    """How many ±inf were set aside as missing."""


def read_parts(column: Column, data: pa.ChunkedArray) -> Parts:
    """Read a numeric or datetime column as the kind it was fitted as."""
    if column.unit is None:
        numbers = as_numbers(data, column.name)
        return Parts({VALUE: numbers.values}, numbers.valid, numbers.infinite)
    instants = as_instants(data, column.name).in_unit(column.unit)
    return Parts(instants.parts(), instants.valid)
