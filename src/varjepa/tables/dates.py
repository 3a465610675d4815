"""Dates and times as integer counts since 1970, and the calendar parts of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.tables.messages import quoted
from varjepa.tables.values import is_instant, is_text, undictionary

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
        found = {
            ELAPSED: self.counts,
            "month": months % 12 + 1,
            "weekday": (days + 3) % 7,  # 1 January 1970 was a Thursday
        }
        if self.unit != "D":
            hour = 3600 * NANOSECONDS["s"] // NANOSECONDS[self.unit]
            found["hour"] = self.counts // hour % 24
        return found


def as_instants(column: pa.ChunkedArray, name: str) -> Instants:
    """Read dates, timestamps, or ISO 8601 text of them; anything else is refused by name."""
    column = undictionary(column)
    if is_text(column.type):
        column = _parse(column, name)
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


def iso_unit(texts: Iterable[pa.ChunkedArray], name: str) -> str:
    """The unit of the coarsest type that reads every cell of every block."""
    kinds = _ISO_TYPES
    for text in texts:
        text = undictionary(text)
        kinds = tuple(kind for kind in kinds if _is_read_as(text, kind))
        if not kinds:
            raise _not_iso(text, name)
    return "D" if pa.types.is_date(kinds[0]) else str(kinds[0].unit)


def _parse(text: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """The coarsest type that reads every cell, so that dates come back as dates."""
    for kind in _ISO_TYPES:
        if _is_read_as(text, kind):
            return text.cast(kind)
    raise _not_iso(text, name)


def _is_read_as(text: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _not_iso(text: pa.ChunkedArray, name: str) -> InputError:
    return InputError(
        f"column {quoted(name)} holds text that is not ISO 8601 dates or times, such as "
        f"{quoted(_first_unreadable(text))}"
    )


def _first_unreadable(text: pa.ChunkedArray) -> str:
    """An example for the message: the first cell that does not start like a date."""
    strange = text.filter(pc.invert(pc.match_substring_regex(text, r"^\d{4}-\d{2}-\d{2}")))
    return (strange if len(strange) else text.drop_null())[0].as_py()
