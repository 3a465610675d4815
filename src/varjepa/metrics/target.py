"""What a target is: classes, or numbers to regress on."""

from __future__ import annotations

from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

Task = Literal["classification", "regression"]

MAX_INTEGER_CLASSES = 20
"""Integers with more distinct values than this are numbers, not classes."""


def infer_task(y: ArrayLike) -> Task:
    """Text, booleans and few distinct integers are classes; all other numbers are regressed on.

    Missing values (None, NaN) are left out. Few are at most ``MAX_INTEGER_CLASSES`` distinct
    ones; floats without a fraction count as integers.

    Examples:
        >>> infer_task(["a", "b", "a"]), infer_task([0, 1, 1, 0]), infer_task(range(1900, 2000))
        ('classification', 'classification', 'regression')
    """
    values = np.asarray(list(y) if isinstance(y, range) else y)
    if values.dtype == object:
        known = [v for v in values if not _is_missing(v)]
        if not all(isinstance(v, Real) and not isinstance(v, bool | np.bool_) for v in known):
            return "classification"
        values = np.asarray(known)
    if values.dtype.kind not in "iuf":
        return "classification"
    values = values[np.isfinite(values)]
    if (values % 1 != 0).any():
        return "regression"
    is_few = len(np.unique(values)) <= MAX_INTEGER_CLASSES
    return "classification" if is_few else "regression"


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or bool(value != value)
