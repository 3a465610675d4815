"""Figures in files of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from varjepa.files import replacing
from varjepa.report.charts import check_can_draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIGHT, DARK = "#8fb8de", "#1f4e79"


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
