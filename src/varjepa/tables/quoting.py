"""Names and cells in messages: quoted, on one line, and never longer than a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
