"""JSON of unknown origin: in bounded memory, every key once, no NaN, one sentence if not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from varjepa.errors import InputError

_FREE, _TIMES = 180 << 20, 5
"""What a file may take when it is parsed: 180 MB more than its size, or five times its size."""

_WIDTHS = ((re.compile(rb"[\xf0-\xff]"), 4), (re.compile(rb"[\xc4-\xef]"), 2))
"""First bytes of characters for which Python gives every character of a text so many bytes."""


class ModelFileError(InputError):
    """A model folder that is damaged, incomplete, of another version or no model at all."""


def parse_json(content: bytes, path: Path, beside: int = 0) -> Any:
    """The value a file holds, or a sentence that names the file.

    ``beside`` is the size of the weights that come with it: a model of a million categories has
    large files all round.
    """
    if _memory(content) > max(_FREE + len(content), _TIMES * len(content)) + beside:
        raise ModelFileError(f"{path} holds more values than a model of its size has")
    try:
        return json.loads(
            content.decode(), object_pairs_hook=_distinct, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not JSON that varjepa wrote") from error


def dump_json(value: dict[str, Any]) -> bytes:
    """One value, one spelling."""
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def _memory(content: bytes) -> int:
    """At most what content, text and value take: three characters can become a list of 56 bytes."""
    width = next((width for wide, width in _WIDTHS if wide.search(content)), 1)
    objects, lists, values = (content.count(mark) for mark in (b"{", b"[", b","))
    texts = content.count(b'"') // 2
    characters = (1 + 2 * width) * len(content)
    return characters + 300 * objects + 64 * lists + 42 * values + 56 * texts


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the same key twice")
    return found


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number")
