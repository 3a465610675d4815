"""A figure of matplotlib's as an element of the page: one style, the same bytes every time."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from varjepa.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Draw = Callable[[Axes], None]

_TEXT, _FRAME, _GRID = "#3d444d", "#c4c9d0", "#e9ebee"

_STYLE = {
    "svg.fonttype": "none",  # text stays text: it can be searched, copied, read aloud
    "text.parse_math": False,  # a $ is a $
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same layout on every machine
    "font.size": 10,
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
    "xtick.labelcolor": _TEXT,
    "ytick.labelcolor": _TEXT,
    "xtick.color": _FRAME,
    "ytick.color": _FRAME,
    "axes.edgecolor": _FRAME,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "figure.facecolor": "none",  # the page's card shows through
    "axes.facecolor": "none",
}


def draw_svg(draw: Draw, inches: tuple[float, float], *, key: str, label: str) -> str:
    """Draw on a fresh figure and return its ``<svg>``; the same input gives the same bytes."""
    with page_style(key):
        from matplotlib.figure import Figure

        figure = Figure(figsize=inches, layout="constrained")
        draw(figure.subplots())
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return _for_html(file.getvalue(), key=key, label=label)


def inline(
    write: Callable[[Path], None], *, key: str, label: str, has_formulas: bool = False
) -> str:
    """A figure that a function writes to a file, in the page's style and as an element of it.

    ``has_formulas``: its own words hold mathematics (as ticks of a log axis do), and none of them
    comes from data.
    """
    with page_style(key), tempfile.TemporaryDirectory() as folder:
        import matplotlib as mpl

        path = Path(folder) / "figure.svg"
        with mpl.rc_context({"text.parse_math": has_formulas}):
            write(path)
        return _for_html(path.read_bytes(), key=key, label=label)


@contextmanager
def page_style(key: str) -> Iterator[None]:
    """The defaults of matplotlib and ours, whatever the user's own style is."""
    try:
        import matplotlib.style
    except ImportError as error:
        raise InputError("figures need matplotlib: pip install 'varjepa[report]'") from error

    with matplotlib.style.context(["default", {**_STYLE, "svg.hashsalt": key}]):
        yield


def _for_html(svg: bytes, *, key: str, label: str) -> str:
    """A stand-alone SVG file as an element inside a page.

    HTML knows SVG, so namespaces (the only web addresses in the file) are dropped. A ``<style>``
    would reach the whole page and is dropped too; the page's own style says the same. Ids are
    prefixed, since several figures share one page, and those nobody refers to are dropped.
    """
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    names = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}
    used: set[str] = set()

    def prefixed(match: re.Match[str]) -> str:
        if match["id"] not in names:
            return match[0]
        used.add(match["id"])
        return f"{match['before']}{key}-{match['id']}{match['after']}"

    for element in root.iter():
        element.tag = _local(element.tag)
        element.tail = None
        if element.text and not element.text.strip():
            element.text = None
        attributes = {_local(name): value for name, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update(
            (name, re.sub(r"(?P<before>^#|url\(#)(?P<id>[\w.-]+)(?P<after>\)|$)", prefixed, value))
            for name, value in attributes.items()
        )
    for element in root.iter():
        if (name := element.attrib.pop("id", None)) in used:
            element.attrib["id"] = f"{key}-{name}"
    # the page gives the size, the viewBox the proportions
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib.update({"role": "img", "aria-label": label})
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    return name.rpartition("}")[2]
