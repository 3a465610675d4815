"""Names and cells in messages: quoted, on one line, never longer than a line; and warnings."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from varjepa.errors import InputError

MOST_LETTERS = 60
MOST_NAMES = 5


def quoted(value: Any) -> str:
    r"""A name or a cell as Python writes it, control characters escaped; long ones lose their
    middle.

    Examples:
        >>> print(quoted("a\nb"), quoted("x" * 99 + "1"))
        'a\nb' 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…xxxxxxxxxxxxxxxxxx1'
    """
    return repr(shortened(value)) if isinstance(value, str) else shortened(repr(value))


def shortened(text: str, most: int = MOST_LETTERS) -> str:
    """Both ends of a long text: names that differ only there stay different."""
    tail = most // 3 - 1
    return text if len(text) <= most else f"{text[: most - tail - 1]}…{text[-tail:]}"


def printable(text: str) -> str:
    """The text with codes in place of characters that are not to be seen, or that turn lines."""
    return text if text.isprintable() else repr(text)[1:-1]


def listed(names: Sequence[Any]) -> str:
    """The first few, and how many more there are.

    Examples:
        >>> listed(["a", "b"]), listed("abcdefgh")
        ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 3 more")
    """
    return joined([*map(quoted, names[:MOST_NAMES])], len(names))


def joined(words: Sequence[str], count: int | None = None) -> str:
    """Words with commas; ``count`` is how many there are where these are the first of them."""
    more = (len(words) if count is None else count) - MOST_NAMES
    return ", ".join(words[:MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def refuse_bad_names(names: Sequence[str]) -> None:
    """Names that are empty, no text or not distinct would not tell columns apart."""
    for position, name in enumerate(names, start=1):
        if not name.strip():
            is_index = position == 1 < len(names)  # as pandas' to_csv writes it
            way_out = "; name it, or write the table without its index" if is_index else ""
            raise InputError(f"column {position} of the table has no name{way_out}")
        if any("\ud800" <= letter <= "\udfff" for letter in name):  # half of a UTF-16 pair
            raise InputError(f"the column name {quoted(name)} is not Unicode text")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(f"several columns are called {listed(repeated)}")


def suggestion(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that says what a mistyped name was meant to be.

    Examples:
        >>> suggestion("aeg", ["age", "town"]), suggestion("x", ["age"])
        ("; did you mean 'age'?", '')
    """
    folded = {other.casefold(): other for other in names}
    close = get_close_matches(name.casefold(), folded, n=1)
    return f"; did you mean {quoted(folded[close[0]])}?" if close else ""


# --- warnings: counted by column, said once


@dataclass(slots=True)
class TableWarnings:
    """Counts of odd cells by column."""

    infinite: dict[str, int] = field(default_factory=dict)
    """±inf in numeric columns."""
    unseen: dict[str, int] = field(default_factory=dict)
    """Levels that training never saw, and numbers in columns that were empty in training."""
    extra: list[str] = field(default_factory=list)
    """Columns that were not there in training."""

    def add(self, other: TableWarnings) -> None:
        for mine, more in ((self.infinite, other.infinite), (self.unseen, other.unseen)):
            for name, count in more.items():
                if count:
                    mine[name] = mine.get(name, 0) + count
        self.extra += [name for name in other.extra if name not in self.extra]

    def warn(self, stacklevel: int) -> None:
        """At most one warning for each of the three; none inside :func:`collect_warnings`."""
        collected = _collected.get()
        if collected is not None:
            collected.add(self)
            return
        messages = []
        if self.extra:
            messages.append(f"ignored columns that the model does not use: {listed(self.extra)}")
        for what, cells in (
            ("infinite values", self.infinite),
            ("values that were not seen when the model was fitted", self.unseen),
        ):
            columns = [f"{quoted(name)} ({count})" for name, count in cells.items() if count]
            if columns:
                messages.append(f"treated as missing: {what}, in {joined(columns)}")
        for message in messages:
            warnings.warn(message, UserWarning, stacklevel=stacklevel + 1)


_collected: ContextVar[TableWarnings | None] = ContextVar("collected warnings", default=None)


@contextmanager
def collect_warnings() -> Iterator[TableWarnings]:
    """Add up the warnings of every call within, which then do not warn themselves."""
    collected = TableWarnings()
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)
