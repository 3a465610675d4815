"""Charts as SVG elements of a page: one style, the same bytes every time.

matplotlib draws lines, points and tick numbers only. Names from the data stay outside, in the HTML
around a figure, where they wrap on a phone and are escaped in one place.
"""

from __future__ import annotations

import importlib.util
import io
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    check_can_draw()
    import matplotlib.style

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


# --- figures in files of their own

LIGHT, DARK = "#8fb8de", "#1f4e79"


def check_can_draw() -> None:
    """Say before hours of work, not after, that figures need an extra."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("figures need matplotlib: pip install 'varjepa[report]'")


def panels(size: tuple[float, float], rows: int, columns: int, **options: Any) -> tuple[Any, Any]:
    """An empty figure, and its panels."""
    check_can_draw()
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def save_svg(figure: Figure, path: Path) -> None:
    """A fixed salt and no date: the same numbers give the same file."""
    import matplotlib as mpl

    with (
        mpl.rc_context({"svg.hashsalt": "varjepa", "svg.fonttype": "none"}),
        replacing(path) as file,
    ):
        figure.savefig(file, format="svg", metadata={"Date": None})


# --- how classes and curves look: never by colour alone

Corners = tuple[tuple[float, float], ...]

# Okabe–Ito, strongest on white first: eight colours that the colour-blind can tell apart
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
GREY = "#8a8f98"


def _star(points: int, turn: float, *, inner: float = 1.0, size: float = 1.0) -> Corners:
    """Corners at radius `size` and `size · inner` in turn; `turn` in eighths of a circle."""
    steps = range(2 * points)
    radii = [size if i % 2 == 0 else size * inner for i in steps]
    angles = [math.pi * (turn / 4 + i / points) for i in steps]
    return tuple(
        (round(r * math.cos(a), 3), round(r * math.sin(a), 3))
        for r, a in zip(radii, angles, strict=True)
    )


DISC = _star(8, 0, size=0.8)
# all of about one area; an inner radius of cos(π/points) makes a star a polygon
_SHAPES = (
    DISC,
    _star(4, 1, inner=math.cos(math.pi / 4)),  # square
    _star(3, 2, inner=0.5, size=1.2),  # triangle
    _star(4, 2, inner=math.cos(math.pi / 4)),  # diamond
    _star(3, -2, inner=0.5, size=1.2),  # triangle pointing down
    _star(4, 1, inner=0.4, size=1.25),  # cross
    _star(5, 2, inner=0.4, size=1.25),  # star
    _star(4, 2, inner=0.4, size=1.25),  # upright cross
)


@dataclass(frozen=True)
class Mark:
    """How the points of one class look; shape and colour both differ, so that grey prints read."""

    colour: str  # #rrggbb
    corners: Corners  # polygon around 0 of about two square units, y upwards


@dataclass(frozen=True)
class Stroke:
    """How one curve looks; dashes differ as well as colours."""

    colour: str  # #rrggbb
    dashes: tuple[float, ...]  # lengths drawn and skipped in turn; empty: solid
    width: float  # in points


def class_marks(count: int, *, has_rest: bool) -> list[Mark]:
    """One mark per class, at most eight; the last is grey where it stands for all others."""
    marks = [Mark(c, s) for c, s in zip(COLOURS, _SHAPES, strict=True)][:count]
    if has_rest:
        marks[-1] = Mark(GREY, marks[-1].corners)
    return marks


def curve_strokes(names: Sequence[str]) -> list[Stroke]:
    """One stroke per curve; random and oracle orderings are references, so they stay grey."""
    references = {"random": (5.0, 3.0), "oracle": (1.2, 2.4)}
    patterns = ((), (7.0, 2.5), (2.0, 2.0), (7.0, 2.0, 2.0, 2.0))
    strokes, own = [], 0
    for name in names:
        if name.lower() in references:
            strokes.append(Stroke(GREY, references[name.lower()], 1.6))
        else:
            colour = COLOURS[own % (len(COLOURS) - 1)]  # without yellow, too faint for a line
            strokes.append(Stroke(colour, patterns[own % len(patterns)], 2.0))
            own += 1
    return strokes


# --- figures of the report page

Floats = NDArray[np.float64]


def choose_points(count: int, limit: int) -> NDArray[np.intp]:
    """At most `limit` of `count` row numbers in random order, the same ones every time."""
    return np.random.default_rng(0).permutation(count)[:limit]


def uncertainty_range(uncertainty: Floats) -> tuple[float, float]:
    """Where the colours begin and end; the outermost 2 % on either side do not stretch them."""
    low, high = np.quantile(uncertainty, [0.02, 0.98])
    return float(low), float(high)


def uncertainty_gradient(stops: int = 9) -> list[str]:
    """The colours of :func:`draw_uncertainty` from low to high, as #rrggbb."""
    with page_style("gradient"):
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        return [to_hex(c) for c in colormaps["viridis_r"](np.linspace(0, 1, stops))]


def draw_series(epochs: Floats, values: Floats, *, key: str, label: str, log: bool) -> str:
    """One training curve; NaN leaves a gap, and few points get dots so that none is invisible."""

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        marker = "o" if len(values) <= 30 or not np.isfinite(values).all() else ""
        axes.plot(epochs, values, color=COLOURS[0], linewidth=1.6, marker=marker, markersize=2.5)
        if log:
            _log_scale(axes, np.nanmax(values) / np.nanmin(values))
        axes.grid(axis="y")
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.margins(x=0.03)

    return draw_svg(draw, (3.8, 2.2), key=key, label=label)


def draw_classes(
    x: Floats, y: Floats, groups: NDArray[np.intp], marks: Sequence[Mark], *, key: str, label: str
) -> str:
    """Map by class, `groups` numbering the marks; the rarer lie on top of the more frequent."""

    def draw(axes: Axes) -> None:
        across, up = _centred(x, y)
        for group in np.argsort(-np.bincount(groups, minlength=len(marks)), kind="stable"):
            here, mark = groups == group, marks[group]
            _scatter(axes, across[here], up[here], mark.corners, points=len(x), color=mark.colour)
        _bare(axes)

    return draw_svg(draw, (5.0, 4.2), key=key, label=label)


def draw_uncertainty(
    x: Floats, y: Floats, uncertainty: Floats, limits: tuple[float, float], *, key: str, label: str
) -> str:
    """Map by uncertainty; the most uncertain are drawn last, where nothing covers them."""

    def draw(axes: Axes) -> None:
        across, up = _centred(x, y)
        order = np.argsort(uncertainty, kind="stable")
        low, high = limits
        share = (uncertainty - low) / (high - low) if high > low else np.full(len(x), 0.5)
        _scatter(
            axes,
            across[order],
            up[order],
            DISC,
            points=len(x),
            c=np.clip(share[order], 0, 1),
            cmap="viridis_r",
            vmin=0,
            vmax=1,
        )
        _bare(axes)

    return draw_svg(draw, (5.0, 4.2), key=key, label=label)


def draw_risk_coverage(
    coverage: Floats, risks: Sequence[Floats], strokes: Sequence[Stroke], *, key: str, label: str
) -> str:
    """Risk among the rows kept, against the share kept; the first curve lies on top."""

    def draw(axes: Axes) -> None:
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

    return draw_svg(draw, (5.4, 3.6), key=key, label=label)


def _settled_range(coverage: Floats, risks: Sequence[Floats]) -> tuple[float, float]:
    """Heights from a tenth of the rows on: the risk of a handful of rows is any number."""
    settled = np.concatenate([risk[coverage >= min(0.1, coverage.max())] for risk in risks])
    low, high = float(np.nanmin(settled)), float(np.nanmax(settled))
    margin = 0.1 * (high - low) or 0.05
    return min(0.0, low) - 0.02 * (high - low), high + margin


def draw_lines(
    x: Floats,
    lines: Sequence[tuple[Floats, Floats]],
    strokes: Sequence[Stroke],
    axes_labels: tuple[str, str],
    *,
    key: str,
    label: str,
) -> str:
    """Heights with error bars (NaN: none) over a few places that are named on a log axis."""

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

        for (heights, errors), stroke in zip(lines, strokes, strict=True):
            axes.errorbar(
                x,
                heights,
                yerr=errors,
                color=stroke.colour,
                linewidth=stroke.width,
                linestyle=(0, stroke.dashes) if stroke.dashes else "-",
                marker="o",
                markersize=4,
                capsize=3,
                elinewidth=1.2,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(x.tolist()))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(axes_labels[0])
        axes.set_ylabel(axes_labels[1])
        axes.grid()

    return draw_svg(draw, (5.4, 3.6), key=key, label=label)


def _scatter(
    axes: Axes, x: Floats, y: Floats, corners: Corners, *, points: int, **colours: Any
) -> None:
    """Points of one shape, smaller where there are many in all."""
    marker: Any = list(corners)  # vertices are a marker too, though the annotations do not say so
    area = 9.0 if points > 1000 else 14.0 if points > 300 else 26.0
    # matplotlib blows every outline up to the same box: undo that, or stars outshine triangles
    area *= max(abs(c) for corner in corners for c in corner) ** 2 / 0.64
    # without clipping a point is one short element of the SVG instead of a group
    axes.scatter(x, y, marker=marker, s=area, linewidths=0, alpha=0.85, clip_on=False, **colours)


def _bare(axes: Axes) -> None:
    """A map's axes mean nothing alone: equal scales, no frame, no numbers."""
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_axis_off()


def _centred(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Both axes on one scale around 0, so that no magnitude is too large or small to draw."""
    x, y = x / 2 - (x.min() / 4 + x.max() / 4), y / 2 - (y.min() / 4 + y.max() / 4)
    widest = max(np.abs(x).max(), np.abs(y).max()) or 1.0
    return x / widest, y / widest


def _log_scale(axes: Axes, ratio: float) -> None:
    """Plain numbers on a log axis: matplotlib's own labels are mathtext, which is switched off."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if ratio > 500 else (1.0, 3.0), numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
