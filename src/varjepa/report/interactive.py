"""Self-contained HTML pages with a script: the frame that such pages share.

A page is three files of its package (HTML, CSS, JS), which go into ``interactive.html`` together
with the shared ``interactive.css`` and ``interactive.js``. The policy forbids every request and
every script but this one, which it names by its hash. The data is a JSON block; the script shows it
through ``textContent`` alone.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any

LONGEST = 1000
"""characters of a value that a page holds"""

_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f]"
)
"""Controls, changes of direction, what has no width, and what no UTF-8 file may hold."""


def render_interactive(package: str, name: str, title: str, data: Any, fallback: str = "") -> str:
    """A page from a package's ``name.html``, ``name.css`` and ``name.js``, and its data.

    ``fallback`` is HTML for readers without scripts. The same input gives the same text.
    """

    def parts(ending: str) -> str:
        shared = _read("varjepa.report", f"interactive.{ending}")
        return f"{shared}\n{_read(package, f'{name}.{ending}')}"

    script = parts("js")
    digest = base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode()
    return Template(_read("varjepa.report", "interactive.html")).substitute(
        title=html.escape(visible(title)),
        script_hash=f"sha256-{digest}",
        style=parts("css"),
        body=_read(package, f"{name}.html"),
        fallback=fallback,
        data=dump_data(data),
        script=script,
    )


def dump_data(data: Any) -> str:
    """JSON that no HTML parser and no script parser takes for anything else."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


def visible(text: str) -> str:
    r"""The text cut where long, with the code in place of a character that does not show.

    >>> visible("to\u202egpj\x00")
    'to⟨U+202E⟩gpj⟨U+0000⟩'
    """
    cut = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", cut)


def figure(value: float | None, digits: int = 6) -> float | None:
    """A few digits; None where the number is not finite, which JSON does not know."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def pack_texts(values: Sequence[str | None]) -> dict[str, Any]:
    """A column of texts; its distinct ones and their places where they repeat.

    >>> pack_texts(["a", "b", "a", None, "a"])
    {'levels': ['a', 'b'], 'codes': [0, 1, 0, -1, 0]}
    >>> pack_texts(["a", None])
    {'values': ['a', None]}
    """
    levels = dict.fromkeys(value for value in values if value is not None)
    if 2 * len(levels) >= len(values):
        return {"values": [None if value is None else visible(value) for value in values]}
    places = {level: place for place, level in enumerate(levels)}
    codes = [-1 if value is None else places[value] for value in values]
    return {"levels": [visible(level) for level in levels], "codes": codes}


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
