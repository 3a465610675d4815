"""Figures of the report page: arrays in, an ``<svg>`` element for the page out.

matplotlib draws lines, points and tick numbers only. Names from the data stay outside, in the HTML
around a figure, where they wrap on a phone and are escaped in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from varjepa.report.marks import COLOURS, DISC, Corners, Mark, Stroke
from varjepa.report.svg import draw_svg, page_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    room = 0.1 * (high - low) or 0.05
    return min(0.0, low) - 0.02 * (high - low), high + room


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
