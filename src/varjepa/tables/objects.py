"""Columns of Python objects, which have no type until every value has been looked at."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.tables.quoting import quoted
from varjepa.tables.values import as_text

_NUMBERS = (int, float, Decimal, np.integer, np.floating)
_SCALARS = (str, bool, np.bool_, *_NUMBERS)
_MISSING_TYPES = ("NoneType", "NAType", "NaTType")
"""By name, because two of them are pandas' own."""


def from_objects(values: NDArray[Any], name: str) -> pa.Array:
    """The type Arrow infers; else numbers too large for it; else text for mixed scalars."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    kinds = {kind for kind in set(map(type, values)) if kind.__name__ not in _MISSING_TYPES}
    for kind in kinds:
        if not issubclass(kind, _SCALARS):
            raise InputError(
                f"column {quoted(name)} holds {kind.__name__} values, which have no encoding"
            )
    if all(issubclass(kind, _NUMBERS) and kind is not bool for kind in kinds):
        return _large_numbers(values, name)
    try:
        return _mixed_text(values)
    except UnicodeEncodeError as error:
        raise InputError(f"column {quoted(name)} holds text that is not Unicode") from error


def _large_numbers(values: NDArray[Any], name: str) -> pa.Array:
    """Python integers beyond 64 bits signed, decimals of more digits than Arrow's."""
    if not any(isinstance(value, Decimal) for value in values):
        try:
            return pa.array(values, pa.uint64(), from_pandas=True)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass
    try:
        return pa.array([None if _is_missing(v) else float(v) for v in values], pa.float64())
    except OverflowError as error:
        raise InputError(f"column {quoted(name)} holds a number too large for a float") from error


def _mixed_text(values: NDArray[Any]) -> pa.Array:
    """Canonical text of each scalar, the same that a column of its own type would get."""
    texts: list[str | None] = [
        None if _is_missing(v) else str(v).lower() if isinstance(v, bool | np.bool_) else str(v)
        for v in values
    ]
    floats = [
        i
        for i, v in enumerate(values)
        if isinstance(v, float | np.floating | Decimal) and not _is_missing(v)
    ]
    numbers = pa.array([float(values[i]) for i in floats], pa.float64())
    canonical = as_text(pa.chunked_array([numbers]))
    for i, text in zip(floats, canonical.to_pylist(), strict=True):
        texts[i] = text
    return pa.array(texts, pa.large_string())


def _is_missing(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.is_nan()
    return type(value).__name__ in _MISSING_TYPES or (
        isinstance(value, float | np.floating) and bool(np.isnan(value))
    )
