"""A fitted codec as JSON, and the strict way back: what is not exactly right is refused by name.

Python writes floats with as many digits as it takes to read the same float again, and integers in
full, so ranges, quantiles and codes survive unchanged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varjepa.errors import InputError
from varjepa.tables.columns import (
    KINDS,
    MOST_DECIMALS,
    REASONS,
    VALUE,
    CategoricalFeature,
    Column,
    LeftOut,
    Levels,
    Marginal,
    NumericFeature,
    TableSchema,
)
from varjepa.tables.messages import listed
from varjepa.tables.scaling import MOST_BINS, SCALINGS, TAILS, Bins, Scaler, step_of_decimals
from varjepa.tables.values import CALENDAR_PARTS, ELAPSED, NANOSECONDS, parse_type

Check = Callable[[Any, str], Any]
"""Takes a JSON value and where it stands; returns what it means, or raises InputError."""

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class StrictObject:
    """A JSON object of which every key must be taken, once."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise InputError(f"{where} must be a JSON object")
        self.left, self.where = dict(value), where

    def take(self, key: str, check: Check) -> Any:
        if key not in self.left:
            raise InputError(f"{self.where} lacks {key!r}")
        return check(self.left.pop(key), f"{self.where}.{key}")

    def take_all(self, **checks: Check) -> dict[str, Any]:
        """The values of all keys there may be."""
        values = {key: self.take(key, check) for key, check in checks.items()}
        self.finish()
        return values

    def finish(self) -> None:
        if self.left:
            raise InputError(f"{self.where} has unknown keys: {listed(list(self.left))}")


def text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where} must be text")
    return value


def whole_text(value: Any, where: str) -> str:
    """Text without halves of characters: JSON can spell them, no file or Arrow table holds them."""
    if _HALF_CHARACTER.search(text(value, where)):
        raise InputError(f"{where} must be text of whole characters")
    return str(value)


def flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{where} must be true or false")
    return value


def integer(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**64:
        raise InputError(f"{where} must be an integer of 64 bits")
    return value


def count(value: Any, where: str) -> int:
    if not 0 <= integer(value, where) < 2**63:
        raise InputError(f"{where} must be a count")
    return int(value)


def number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where} must be a finite number")
    try:
        as_float = float(value)
    except OverflowError:
        as_float = math.inf
    if not math.isfinite(as_float):
        raise InputError(f"{where} must be a finite number")
    return as_float


def integer_or_number(value: Any, where: str) -> int | float:
    """Keeps the difference between 1 and 1.0: it tells integer columns from others."""
    return value if type(value) is int else number(value, where)


def share(value: Any, where: str) -> float:
    if not 0.0 <= number(value, where) <= 1.0:
        raise InputError(f"{where} must be between 0 and 1")
    return float(value)


def optional(check: Check) -> Check:
    return lambda value, where: None if value is None else check(value, where)


def one_of(choices: tuple[str, ...]) -> Check:
    def check(value: Any, where: str) -> str:
        if not isinstance(value, str) or value not in choices:
            raise InputError(f"{where} must be one of {', '.join(choices)}")
        return value

    return check


def list_of(check: Check) -> Check:
    def checked(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise InputError(f"{where} must be a JSON list")
        return tuple(check(item, f"{where}[{i}]") for i, item in enumerate(value))

    return checked


# --- the codec

FORMAT = "varjepa-table-codec"
VERSION = 2
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def fitted_from_json(value: Any) -> dict[str, Any]:
    """The fields of a TableCodec, by name."""
    fields = StrictObject(value, "codec").take_all(
        format=one_of((FORMAT,)),
        version=_version,
        scaling=one_of(SCALINGS),
        columns=list_of(_column),
        numeric=list_of(_numeric),
        categorical=list_of(_categorical),
    )
    del fields["format"], fields["version"]
    columns = fields.pop("columns")
    _check_agreement(columns, fields["numeric"], fields["categorical"])
    return {"schema": TableSchema(columns), **fields}


def _version(value: Any, where: str) -> None:
    if integer(value, where) != VERSION:
        raise InputError(f"{where} is {value}; this version of varjepa reads {VERSION}")


def _column(value: Any, where: str) -> Column:
    column = Column(
        **StrictObject(value, where).take_all(
            name=whole_text,
            kind=one_of(KINDS),
            type=_type,
            is_integer=flag,
            unit=optional(one_of(tuple(NANOSECONDS))),
            left_out=optional(_left_out),
        )
    )
    if (column.unit is not None) != (column.kind == "datetime"):
        raise InputError(f"{where}.unit belongs to datetime columns, and only to them")
    if column.left_out is not None and column.left_out.reason == "constant":
        _check_constant(column, column.left_out.value, f"{where}.left_out")
    return column


def _left_out(value: Any, where: str) -> LeftOut:
    left_out = LeftOut(
        **StrictObject(value, where).take_all(
            reason=one_of(REASONS), missing_share=share, values=count, value=optional(_constant)
        )
    )
    if (left_out.value is not None) != (left_out.reason == "constant"):
        raise InputError(f"{where}.value belongs to constant columns, and only to them")
    return left_out


def _constant(value: Any, where: str) -> int | float | str:
    if isinstance(value, str):
        return whole_text(value, where)
    return integer(value, where) if type(value) is int else number(value, where)


def _check_constant(column: Column, value: int | float | str | None, where: str) -> None:
    if isinstance(value, str) != (column.kind == "categorical"):
        raise InputError(f"{where}.value must be text in categorical columns, else a number")
    if column.kind == "datetime" and not (type(value) is int and value < 2**63):
        raise InputError(f"{where}.value must be an integer in datetime columns")


def _type(value: Any, where: str) -> pa.DataType:
    if len(text(value, where)) > 200:  # one type inside another, and so on
        raise InputError(f"{where} is not a column type this version knows")
    return parse_type(value)


def _numeric(value: Any, where: str) -> NumericFeature:
    fields = StrictObject(value, where).take_all(
        column=whole_text,
        part=one_of((VALUE, ELAPSED, *CALENDAR_PARTS)),
        missing_share=share,
        quantiles=list_of(_network_number),
        bins=_bins,
        low=optional(integer_or_number),
        high=optional(integer_or_number),
        is_integer=flag,
        shift=number,
        scale=number,
        knots=list_of(number),
        heights=list_of(number),
        step=optional(integer_or_number),
    )
    column, part = fields.pop("column"), fields.pop("part")
    marginal = Marginal(fields.pop("missing_share"), fields.pop("quantiles"))
    bins = fields.pop("bins")
    scaler = Scaler(**fields)
    _check_scaler(scaler, where)
    if scaler.is_empty != (len(bins) == 0):
        raise InputError(f"{where}.bins belong to columns with values, and only to them")
    return NumericFeature(column, part, scaler, marginal, bins)


def _bins(value: Any, where: str) -> Bins:
    numbers = list_of(_network_number)
    bins = Bins(
        **StrictObject(value, where).take_all(
            low=numbers, high=numbers, upper=numbers, share=list_of(share), mean=numbers
        )
    )
    n = len(bins)
    most = 2 * MOST_BINS + len(TAILS)
    if not {len(bins.high), len(bins.share), len(bins.mean)} == {n} or n > most:
        raise InputError(f"{where} must have one low, high, share and mean for each of few bins")
    if len(bins.upper) != max(0, n - 1):
        raise InputError(f"{where}.upper must have one number between each two bins")
    if not all(a <= b <= c for a, b, c in zip(bins.low, bins.mean, bins.high, strict=True)):
        raise InputError(f"{where}.mean must lie between low and high")
    ends = zip(bins.low, bins.high, bins.low[1:], bins.high[1:], bins.upper, strict=False)
    for low, high, next_low, next_high, upper in ends:
        if not (high <= next_low and low < next_high and low <= upper < next_high):
            raise InputError(f"{where} must be sorted and disjoint")
    if any(left >= right for left, right in pairwise(bins.upper)):
        raise InputError(f"{where}.upper must increase")
    if any(left >= right for left, right in pairwise(map(np.float32, bins.knots))):
        raise InputError(f"{where} must have ends that differ in float32")
    if n and not abs(math.fsum(bins.share) - 1.0) < 1e-6:
        raise InputError(f"{where}.share must sum to 1")
    return bins


def _network_number(value: Any, where: str) -> float:
    """What a network is given must be finite in its own precision too."""
    if abs(number(value, where)) > LARGEST_FLOAT32:
        raise InputError(f"{where} must be a finite number in float32")
    return float(value)


def _check_scaler(scaler: Scaler, where: str) -> None:
    low, high = scaler.low, scaler.high
    if type(low) is not type(high) or (low is not None and high is not None and low > high):
        raise InputError(f"{where}.low and high must be of one type and in order")
    if isinstance(low, int) and isinstance(high, int):
        fits = low >= -(2**63) and high < (2**64 if low >= 0 else 2**63)
        if not (fits and scaler.is_integer):
            raise InputError(f"{where}.low and high must be those of a 64-bit integer column")
    if scaler.step is not None and not _is_step(scaler):
        raise InputError(f"{where}.step must be one of the values between low and high")
    if scaler.scale <= 0:
        raise InputError(f"{where}.scale must be above 0")
    if not abs(2.0 - scaler.shift) + 3.0 < LARGEST_FLOAT32 * min(scaler.scale, 1.0):
        raise InputError(f"{where}.shift and scale must give numbers that are finite in float32")
    if len(scaler.knots) != len(scaler.heights) or len(scaler.knots) == 1:
        raise InputError(f"{where}.knots and heights must be of one length")
    for key in ("knots", "heights"):
        curve = getattr(scaler, key)
        if any(left >= right for left, right in pairwise(curve)):
            raise InputError(f"{where}.{key} must increase")


def _is_step(scaler: Scaler) -> bool:
    """Whether the range can be walked in this step."""
    low, high, step = scaler.low, scaler.high, scaler.step
    if low is None or high is None or step is None or type(step) is not type(low):
        return False
    if step < 1:
        return step in [step_of_decimals(k) for k in range(1, MOST_DECIMALS + 1)]
    return step % 1 == 0 and low < high and (high - low) % step == 0


def _categorical(value: Any, where: str) -> CategoricalFeature:
    fields = StrictObject(value, where).take_all(
        column=whole_text,
        missing_share=share,
        rare=count,
        levels=list_of(whole_text),
        counts=list_of(integer),
    )
    texts, counts = pa.array(fields["levels"], pa.large_string()), fields["counts"]
    if len(texts) != len(counts) or (counts and not 0 <= min(counts) <= max(counts) < 2**63):
        raise InputError(f"{where} must have one count, not negative, for each level")
    if len(texts) > 1 and not pc.all(pc.less(texts[:-1], texts[1:])).as_py():
        raise InputError(f"{where}.levels must be distinct and sorted")
    levels = Levels(texts, counts)
    return CategoricalFeature(fields["column"], levels, fields["missing_share"], fields["rare"])


def _check_agreement(
    columns: tuple[Column, ...],
    numeric: tuple[NumericFeature, ...],
    categorical: tuple[CategoricalFeature, ...],
) -> None:
    """Every modelled column has its features, in order, and no feature is without a column."""
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        raise InputError("codec.columns has the same name twice")
    columns = tuple(column for column in columns if column.left_out is None)
    if not columns:
        raise InputError("codec.columns has no column that is modelled")
    calendar = [(item.column, item.part) for item in numeric]
    expected = [
        (column.name, part)
        for column in columns
        if column.kind != "categorical"
        for part in ((VALUE,) if column.unit is None else (ELAPSED, *CALENDAR_PARTS))
        if part not in CALENDAR_PARTS or (column.name, part) in calendar
    ]
    if calendar != expected:
        raise InputError("codec.numeric does not fit codec.columns")
    categories = [column.name for column in columns if column.kind == "categorical"]
    if [category.column for category in categorical] != categories:
        raise InputError("codec.categorical does not fit codec.columns")
