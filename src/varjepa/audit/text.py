"""Typing errors: a rare text that is close to a frequent one which the row makes likely.

That a rare level has a close neighbour says nothing in a column of codes, whose levels are all
close to each other. So closeness counts by how rare it is among the column's frequent levels. A
number with a decoration such as "0.05%" is an error of form if most cells are plain numbers and the
same decoration is on many of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import OSA
from rapidfuzz.process import cdist

from varjepa.tables.columns import Levels
from varjepa.tables.values import MISSING_WORDS

Floats = NDArray[np.float64]

FREQUENT = 3
"""Rows that a level has at least if it is to be what was meant."""

NEW_TEXT = 0.5, 0.15
"""Share of errors that are a text nobody else has: close to a frequent one, and like none."""

TIMES = 10
"""How much rarer than what was meant a typing error is."""

CLOSE = 0.6
"""Similarity from which a text may be a typing error of another: 1 − edits / length."""

MOST_EVIDENCE = 100.0
"""What closeness may multiply the odds with."""

MOST_CONTEXT = 20.0
"""The same of what the other cells say about the texts nearby."""

EDIT_COST = 3.0
"""Log odds that an edit costs."""

OTHER_CAUSE = -9.0
"""Log odds of a wrong level that is no typing error."""

MOST_TEXTS = 5000
"""Different rare texts of a column and block that are compared with its levels."""


@dataclass(frozen=True)
class TextColumn:
    """The levels of a category, and how close they are to each other."""

    levels: Sequence[str]
    counts: NDArray[np.int64]  # (L,)
    known: Mapping[str, int] = field(repr=False)
    """place of each level"""

    @classmethod
    def of(cls, levels: Levels) -> TextColumn:
        texts = levels.texts.to_pylist()
        known = {text: place for place, text in enumerate(texts)}
        return cls(texts, np.array(levels.counts, dtype=np.int64), known)

    @cached_property
    def frequent(self) -> NDArray[np.int64]:
        """Places of levels that may be what was meant."""
        return np.flatnonzero(self.counts >= FREQUENT)

    @cached_property
    def own_similarity(self) -> Floats:
        """How close each frequent level is to the closest other, ascending."""
        texts = [self.levels[i] for i in self.frequent[np.argsort(-self.counts[self.frequent])]]
        texts = texts[:MOST_LEVELS]
        if len(texts) < 2:
            return np.zeros(len(texts))
        similar = similarities(texts, texts)
        np.fill_diagonal(similar, 0.0)
        return np.sort(similar.max(1))

    def closeness(self, text: str, similar: Floats) -> tuple[Floats, float]:
        """Of each frequent level, log weight as the meaning of the text; log odds of closeness.

        −inf where it is too frequent to be a typing error of that level, or too far away.
        """
        own = self.counts[self.known[text]] if text in self.known else 0
        rarer = self.counts[self.frequent] >= TIMES * max(own, 1)
        length = np.array([max(len(text), len(self.levels[i])) for i in self.frequent])
        edits = np.round((1.0 - similar) * length)
        close = rarer & (edits > 0) & ((similar >= CLOSE) | ((edits == 1) & (length > 1)))
        weights = np.where(close, -EDIT_COST * edits, -np.inf)
        if not close.any():
            return weights, 0.0
        nearest = similar[close].max()
        genuine = len(self.own_similarity) - np.searchsorted(self.own_similarity, nearest)
        odds = 0.9 * (len(self.own_similarity) + 2.0) / (genuine + 1.0)
        return weights, float(np.log(np.clip(odds, 1.0, MOST_EVIDENCE)))


MOST_LEVELS = 2000
"""Frequent levels that are compared with each other."""


def similarities(texts: Sequence[str], others: Sequence[str]) -> Floats:
    """1 − edits / length of all pairs; transposed letters are one edit.

    Examples:
        >>> similarities(["birmingxam"], ["birmingham", "york"]).round(1).tolist()
        [[0.9, 0.1]]
    """
    return cdist(texts, others, scorer=OSA.normalized_similarity, dtype=np.float64)


# --- numbers with decorations

_DECORATED = re.compile(r"^(\D*?)([+-]?\d+(?:\.\d+)?|[+-]?\.\d+)(\D*)$")
_PLAIN = re.compile(r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$")


def plain_number(text: str) -> str | None:
    """The number of a text that may have a unit or a sign around it; None if there is none.

    White space around a plain number, and words for missing, are no other form.

    Examples:
        >>> plain_number("12.0 oz"), plain_number("12.0"), plain_number("twelve")
        ('12.0', '12.0', None)
    """
    if _PLAIN.match(text.strip()) or text.strip() in MISSING_WORDS:
        return text
    match = _DECORATED.match(text)
    return match.group(2) if match else None


MIN_DECORATED = 5
"""Different numbers that a decoration is on."""


def decorated_numbers(texts: Mapping[str, int]) -> dict[str, str]:
    """Texts that are numbers in another form than most of their column, with the plain number.

    ``texts`` counts the rows of every text.

    Examples:
        >>> counts = {f"{n}": 2 for n in range(10)} | {f"{n} kg": 1 for n in range(8)}
        >>> decorated_numbers(counts)["3 kg"]
        '3'
        >>> decorated_numbers({"1": 5, "2": 5, "3": 5, ">3": 4})
        {}
        >>> decorated_numbers({f"{n}": 2 for n in range(9)} | {f"{n}a": 1 for n in range(9)})
        {}
    """
    plain = {text.strip() for text in texts if _PLAIN.match(text.strip())}
    rows = sum(count for text, count in texts.items() if text.strip() in plain)
    if 2 * rows <= sum(texts.values()):
        return {}
    found: dict[tuple[str, str], dict[str, str]] = {}
    for text in texts:
        match = None if text.strip() in plain else _DECORATED.match(text)
        if match:
            before, number, after = match.groups()
            found.setdefault((before.strip(), after.strip()), {})[text] = number
    return {
        text: number
        for decoration, numbers in found.items()
        if len(numbers) >= MIN_DECORATED and not _is_letter("".join(decoration))
        for text, number in numbers.items()
    }


def _is_letter(text: str) -> bool:
    """House numbers such as 12a are no other form of 12."""
    return len(text) == 1 and text.isalpha()
