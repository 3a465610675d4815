"""Words of the data on a terminal: names cannot move the cursor, change colours or hide text.

Column names, file names and classes come from files that anybody may have written. An escape
sequence in one would be carried out by the terminal; a direction mark would turn the line around.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_UNSEEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f"  # C0 without the line feed, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks of writing direction
    "\u2028\u2029\ud800-\udfff]"  # line and paragraph separators, halves of characters
)


def visible(text: str) -> str:
    r"""The text with a � for each character that a terminal would obey instead of show.

    Examples:
        >>> visible("price\x1b[2J in \u202e€")
        'price�[2J in �€'
    """
    return _UNSEEN.sub("�", text)


class PlainConsole(Console):
    """Shows what it is given as text: no markup, no emoji names, no control characters."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False, highlight=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Rich's own styles are no part of a segment's text, so they pass."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)
