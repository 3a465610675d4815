"""The levels of a categorical column: canonical text in, codes out; code 0 is MISSING."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from varjepa.tables.arrow_types import is_plain_number, is_text, value_type
from varjepa.tables.summaries import LevelSummary
from varjepa.tables.values import as_text, drop_zero_decimals

BOOLEAN_SPELLINGS = (("true", "false"), ("True", "False"), ("TRUE", "FALSE"), ("1", "0"))


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels seen in training, sorted, so that row order and input format do not matter."""

    texts: pa.Array  # (L,) large_string, sorted
    """Canonical text of each level; level i has code i + 1."""

    counts: tuple[int, ...]
    """How many training rows had each level."""

    @classmethod
    def fit(cls, text: pa.ChunkedArray, max_levels: int | None = None) -> Levels:
        """All distinct texts, or the ``max_levels`` most frequent (ties: first in sorted order)."""
        found = LevelSummary()
        found.add(text)
        return cls.of_counts(found.counts(), max_levels)

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
