"""Columns that are not modelled: empty, constant, identifiers and free text.

They have no token and no level table. Tables come back with them as they came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

Reason = Literal["empty", "constant", "identifier", "free text"]
REASONS: tuple[Reason, ...] = get_args(Reason)

MIN_ROWS = 50
"""With fewer values it is not known whether nearly all differ."""

NEARLY_UNIQUE = 0.95
"""Different texts of a category, as a share of the rows that have one, above which it is none."""

FREE_TEXT_WORDS = 3.0
"""Words of a cell, on average, from which nearly unique text is free text."""

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
    words = pc.add(pc.count_substring_regex(counts["text"], r"\s+"), 1)
    return "free text" if pc.mean(words).as_py() >= FREE_TEXT_WORDS else "identifier"


def is_called_code(name: str) -> bool:
    """Whether a column's name says that its numbers are names.

    Examples:
        >>> is_called_code("customerId"), is_called_code("ZIP_code"), is_called_code("width")
        (True, True, False)
    """
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word in _CODE_WORDS or word.endswith("code") for word in words)
