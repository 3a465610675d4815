"""What figures in files of their own share: whether they can be drawn, colours, how to save."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from varjepa.errors import InputError
from varjepa.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIGHT, DARK = "#8fb8de", "#1f4e79"


def check_can_draw() -> None:
    """Say before hours of work, not after, that figures need an extra."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("figures need matplotlib: pip install 'varjepa[report]'")


def save_svg(figure: Figure, path: Path) -> None:
    """A fixed salt and no date: the same numbers give the same file."""
    import matplotlib as mpl

    with (
        mpl.rc_context({"svg.hashsalt": "varjepa", "svg.fonttype": "none"}),
        replacing(path) as file,
    ):
        figure.savefig(file, format="svg", metadata={"Date": None})
