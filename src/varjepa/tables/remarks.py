"""What one call found odd but could live with: collected by column, said once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from varjepa.tables.quoting import joined, listed, quoted


@dataclass(slots=True)
class Remarks:
    """Counts of odd cells by column; columns without any are not kept."""

    infinite: dict[str, int] = field(default_factory=dict)
    """±inf in numeric columns."""

    unseen: dict[str, int] = field(default_factory=dict)
    """Levels that training never saw, and numbers in columns that were empty in training."""

    extra: list[str] = field(default_factory=list)
    """Columns that were not there in training."""

    def add(self, other: Remarks) -> None:
        """Count another call's remarks too."""
        for mine, more in ((self.infinite, other.infinite), (self.unseen, other.unseen)):
            for name, count in more.items():
                if count:
                    mine[name] = mine.get(name, 0) + count
        self.extra += [name for name in other.extra if name not in self.extra]

    def warn(self, stacklevel: int) -> None:
        """At most one warning for each of the three; none where somebody gathers them."""
        gathered = _gathered.get()
        if gathered is not None:
            gathered.add(self)
            return
        messages = []
        if self.extra:
            messages.append(
                "ignored columns that were not there when the codec was fitted: "
                + listed(self.extra)
            )
        for what, cells in (
            ("infinite values", self.infinite),
            ("values that were not seen when the codec was fitted", self.unseen),
        ):
            found = [f"{quoted(name)} ({count})" for name, count in cells.items() if count]
            if found:
                messages.append(f"treated as missing: {what}, in {joined(found)}")
        for message in messages:
            warnings.warn(message, UserWarning, stacklevel=stacklevel + 1)


_gathered: ContextVar[Remarks | None] = ContextVar("gathered remarks", default=None)


@contextmanager
def gathering_remarks() -> Iterator[Remarks]:
    """Add up the remarks of every call within, which then do not warn: who gathers, warns."""
    remarks = Remarks()
    token = _gathered.set(remarks)
    try:
        yield remarks
    finally:
        _gathered.reset(token)
