"""Decoded numbers, levels and instants back to a column of the type it came with."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.tables.arrow_types import is_span
from varjepa.tables.instants import Instants, instants_to_arrow
from varjepa.tables.values import PER_SECOND

_DAY = 86_400


def restore_numbers(
    values: NDArray[Any], valid: NDArray[np.bool_], kind: pa.DataType
) -> pa.Array:  # (N,)
    """A numeric column; values the type cannot hold are moved to the nearest it can."""
    if pa.types.is_dictionary(kind):
        return _dictionary(restore_numbers(values, valid, kind.value_type), kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    if is_span(kind):
        return _from_counts(pa.array(_span_counts(values, kind), mask=~valid), kind)
    if pa.types.is_decimal(kind):
        return _decimal(values, valid, kind)
    if pa.types.is_boolean(kind):
        values = np.clip(values, 0, 1)
    elif pa.types.is_integer(kind):
        ends = np.iinfo(kind.to_pandas_dtype())
        values = np.clip(values, max(ends.min, _least(values)), min(ends.max, _most(values)))
    numbers = pa.array(values, mask=~valid)
    if pa.types.is_floating(kind):
        return numbers.cast(kind, safe=False)
    return numbers.cast(kind)


def restore_levels(codes: NDArray[np.int64], texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """A categorical column; code 0 is a missing cell."""
    index = pa.array(codes - 1, mask=codes == 0)
    if pa.types.is_dictionary(kind):
        values = _levels_as(texts, kind.value_type)
        if pa.types.is_null(kind.value_type):
            index, values = pa.nulls(len(codes), pa.int64()), pa.nulls(0)
        return pa.DictionaryArray.from_arrays(
            index.cast(kind.index_type), values, ordered=kind.ordered
        )
    return _levels_as(texts, kind).take(index)


def restore_instants(instants: Instants, kind: pa.DataType) -> pa.Array:
    """A datetime column, of text if it was text."""
    if pa.types.is_dictionary(kind):
        return _dictionary(restore_instants(instants, kind.value_type), kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(instants.counts))
    found = instants_to_arrow(instants)
    return found.cast(kind, safe=False)


def _levels_as(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Canonical text to the column's own type, once per level and not per row."""
    if pa.types.is_null(kind):
        return pa.nulls(len(texts))
    if is_span(kind):
        return _from_counts(texts.cast(pa.int64()), kind)
    if pa.types.is_timestamp(kind):
        return texts.cast(pa.timestamp(kind.unit)).cast(kind)
    return texts.cast(kind)


def _span_counts(values: NDArray[Any], kind: pa.DataType) -> NDArray[np.int64]:
    """Seconds to whole units; times of day stay within one day, durations within 64 bits."""
    per_second = PER_SECOND[kind.unit]
    counts = np.rint(values.astype(np.float64) * per_second)
    if pa.types.is_time(kind):
        return np.clip(counts, 0, _DAY * per_second - 1).astype(np.int64)
    return np.clip(counts, -(2.0**63), np.nextafter(2.0**63, 0.0)).astype(np.int64)


def _from_counts(counts: pa.Array, kind: pa.DataType) -> pa.Array:
    return (counts.cast(pa.int32()) if pa.types.is_time32(kind) else counts).cast(kind)


def _decimal(values: NDArray[Any], valid: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    largest = Fraction(10**kind.precision - 1) / Fraction(10) ** kind.scale
    if values.dtype.kind in "iu":
        most = min(int(largest), _most(values))
        values = np.clip(values, max(-most, _least(values)), most)
        # Arrow refuses int64 → decimal128(5, 0) by type, whatever the values, but not by way of 38
        return pa.array(values, mask=~valid).cast(pa.decimal128(38, 0)).cast(kind)
    end = float(largest)
    while Fraction(end) > largest:
        end = float(np.nextafter(end, 0.0))
    return pa.array(np.clip(values, -end, end), mask=~valid).cast(kind)


def _dictionary(values: pa.Array, kind: pa.DataType) -> pa.Array:
    encoded = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(kind.index_type), encoded.dictionary, ordered=kind.ordered
    )


def _least(values: NDArray[Any]) -> int:
    return int(np.iinfo(values.dtype).min)


def _most(values: NDArray[Any]) -> int:
    return int(np.iinfo(values.dtype).max)
