"""Errors that are put into clean tables: which cells, and what stands there instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.ground.tables import Bools

SHARE = 0.03
"""of the known cells that are made wrong"""

NUMBER_ERRORS = ("other row", "times ten", "sign")
TEXT_ERRORS = ("other row", "wrong level", "typing error")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class SpoiledTable:
    frame: pd.DataFrame
    is_wrong: Bools  # (n, columns)


def spoil(clean: pd.DataFrame, seed: int, share: float = SHARE) -> SpoiledTable:
    """Make a share of the known cells wrong, each by one of the kinds that its column can have.

    A cell counts as wrong only where its value really changed: minus zero is zero, and another row
    may hold the same value.
    """
    rng = np.random.default_rng([seed, 19])
    picked = (rng.random(clean.shape) < share) & clean.notna().to_numpy()
    wrong = np.zeros(clean.shape, dtype=bool)
    columns: dict[Any, pd.Series] = {}
    for j, name in enumerate(clean.columns):
        column = clean[name]
        known = column.dropna().unique().tolist()
        values = column.astype(object).to_numpy(copy=True)
        for i in np.flatnonzero(picked[:, j]):
            new = _wrong_value(values[i], column, known, rng)
            if new != clean[name].iloc[i]:
                values[i], wrong[i, j] = new, True
        columns[name] = _restored(values, column)
    return SpoiledTable(pd.DataFrame(columns, index=clean.index), wrong)


def _wrong_value(value: Any, column: pd.Series, levels: list[Any], rng: np.random.Generator) -> Any:
    is_number = pd.api.types.is_numeric_dtype(column) and column.dtype != bool
    is_date = pd.api.types.is_datetime64_any_dtype(column)
    kinds = NUMBER_ERRORS if is_number else ("other row",) if is_date else TEXT_ERRORS
    if column.dtype == bool:
        return not value
    kind = kinds[int(rng.integers(len(kinds)))]
    if kind == "other row":
        return column.dropna().iloc[int(rng.integers(column.notna().sum()))]
    if kind == "wrong level":
        return levels[int(rng.integers(len(levels)))]
    if kind == "typing error":
        return _mistyped(str(value), rng)
    return value * 10 if kind == "times ten" else -value


def _mistyped(text: str, rng: np.random.Generator) -> str:
    """One letter replaced, dropped or doubled."""
    place = int(rng.integers(max(1, len(text))))
    letter = LETTERS[int(rng.integers(len(LETTERS)))]
    middle = (letter, "", text[place : place + 1] * 2)[int(rng.integers(3))]
    return text[:place] + middle + text[place + 1 :]


def _restored(values: Any, like: pd.Series) -> pd.Series:
    """The column's own type; integers that grew too large become wider."""
    column = pd.Series(values, index=like.index)
    if pd.api.types.is_integer_dtype(like):
        return column.astype(np.int64 if like.notna().all() else np.float64)
    return column.astype(like.dtype)
