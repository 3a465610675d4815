"""What is known of a column after any number of blocks of rows, in memory that is bounded.

A table in memory is one block. What is asked of many blocks (ends, types, levels and their counts)
is the same to the last bit as of one; only where a table is so large that ``limits`` is given, the
inner quantiles of numbers come from a sample of the rows, and of a category with more levels than
memory allows, the frequent ones are found first and counted in a second reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

EXACT_WHOLE = 2.0**53
_ENTRY = 32
"""Bytes of a level besides its text: an offset, a count, and their share of a hash table."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """How much of a large table its codec may hold in memory."""

    numbers: int = 1 << 23
    """numbers of all numeric columns together, 8 bytes each"""

    level_bytes: int = 1 << 26
    """levels of all categories together"""


class NumberSummary:
    """The numbers of one column, or of one part of a date."""

    def __init__(self) -> None:
        self.low: int | float | None = None
        self.high: int | float | None = None
        self.count = 0
        """of all known numbers"""
        self._types: set[str] = set()
        self._has_fractions = False
        self._kept: list[NDArray[Any]] = []

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
        if not is_integer_type and not self._has_fractions:
            self._has_fractions = not bool((np.rint(known) == known).all())

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
        return max(map(abs, self.ends)) < EXACT_WHOLE

    def take_kept(self) -> NDArray[Any]:
        """The numbers that were kept, in the order of the rows, which are then released.

        Of a sample, the smallest and the largest number of all rows are part.
        """
        kept, self._kept = self._kept, []
        numbers = np.concatenate([part.astype(self.type, copy=False) for part in kept])
        if len(numbers) < self.count:
            numbers = np.concatenate([numbers, np.array(self.ends, self.type)])
        return numbers


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
        """Count a block's levels."""
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
        found = pc.index_in(text, value_set=wanted).drop_null().to_numpy()
        counts += np.bincount(found, minlength=len(wanted))
    return pa.table({"text": wanted, "count": counts})


def _counts(text: pa.ChunkedArray) -> pa.Table:
    found = pc.value_counts(text.drop_null())
    texts = found.field("values").cast(pa.large_string())
    return pa.table({"text": texts, "count": found.field("counts").cast(pa.int64())})


def _size(counts: pa.Table) -> int:
    texts = pc.sum(pc.binary_length(counts["text"])).as_py() or 0
    return int(texts) + _ENTRY * counts.num_rows
