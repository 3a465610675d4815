"""Charts as SVG elements of a page: one style, the same bytes every time.

matplotlib draws lines, points and tick numbers only. Names from the data stay outside, in the HTML
around a figure, where they wrap on a phone and are escaped in one place.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from varjepa.errors import InputError

Floats = NDArray[np.float64]

_TEXT, _FRAME, _GRID = "#3d444d", "#c4c9d0", "#e9ebee"

_STYLE = {
    "svg.fonttype": "none",  # text stays text: it can be searched, copied, read aloud
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


def inline(
    write: Callable[[Path], None], *, key: str, label: str, has_formulas: bool = False
) -> str:
    """A figure that a function writes to a file, in the page's style and as an element of it.

    ``has_formulas``: its own words hold mathematics (as ticks of a log axis do), and none of them
    comes from data. Else a $ is a $.
    """
    check_can_draw()
    import matplotlib.style

    # the defaults of matplotlib and ours, whatever the user's own style is
    ours = {**_STYLE, "svg.hashsalt": key, "text.parse_math": has_formulas}
    with matplotlib.style.context(["default", ours]), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.svg"
        write(path)
        return _for_html(path.read_bytes(), key=key, label=label)


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


def check_can_draw() -> None:
    """Say before hours of work, not after, that figures need an extra."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("figures need matplotlib: pip install 'varjepa[report]'")


# --- how curves look: never by colour alone

# Okabe–Ito, strongest on white first, without yellow: the colour-blind can tell them apart
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
GREY = "#8a8f98"


@dataclass(frozen=True)
class Stroke:
    """How one curve looks; dashes differ as well as colours."""

    colour: str  # #rrggbb
    dashes: tuple[float, ...]  # lengths drawn and skipped in turn; empty: solid
    width: float  # in points


def curve_strokes(names: Sequence[str]) -> list[Stroke]:
    """One stroke per curve; random and oracle orderings are references, so they stay grey."""
    references = {"random": (5.0, 3.0), "oracle": (1.2, 2.4)}
    patterns = ((), (7.0, 2.5), (2.0, 2.0), (7.0, 2.0, 2.0, 2.0))
    strokes, own = [], 0
    for name in names:
        if name.lower() in references:
            strokes.append(Stroke(GREY, references[name.lower()], 1.6))
        else:
            strokes.append(Stroke(COLOURS[own % len(COLOURS)], patterns[own % len(patterns)], 2.0))
            own += 1
    return strokes


def draw_risk_coverage(
    coverage: Floats, risks: Sequence[Floats], strokes: Sequence[Stroke], label: str
) -> str:
    """Risk among the rows kept, against the share kept; the first curve lies on top.

    The same input gives the same bytes.
    """

    def write(path: Path) -> None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for order, (risk, stroke) in enumerate(zip(risks, strokes, strict=True)):
            axes.plot(
                coverage,
                risk,
                color=stroke.colour,
                linewidth=stroke.width,
                linestyle=(0, stroke.dashes) if stroke.dashes else "-",
                zorder=3 - order / len(risks),
                marker="o" if len(coverage) == 1 else "",
            )
        axes.set_xlabel("coverage: share of rows kept")
        axes.set_ylabel("risk among them")
        axes.grid()
        axes.margins(x=0.02)
        axes.set_ylim(*_settled_range(coverage, risks))
        figure.savefig(path, format="svg", metadata={"Date": None})

    return inline(write, key="risk", label=label)


def _settled_range(coverage: Floats, risks: Sequence[Floats]) -> tuple[float, float]:
    """Heights from a tenth of the rows on: the risk of a handful of rows is any number."""
    settled = np.concatenate([risk[coverage >= min(0.1, coverage.max())] for risk in risks])
    low, high = float(np.nanmin(settled)), float(np.nanmax(settled))
    margin = 0.1 * (high - low) or 0.05
    return min(0.0, low) - 0.02 * (high - low), high + margin
