"""How a step's time grows: the figure of ``varjepa bench growth``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from varjepa.report.drawing import DARK, LIGHT, check_can_draw, save_svg

PANELS = {"features": "columns", "batch": "rows of a batch", "depth": "layers of both encoders"}


def draw_growth(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel each for columns, rows and layers; a line per device, attention's share in grey."""
    check_can_draw()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    panels = figure.subplots(1, len(PANELS))
    for panel, (varied, label) in zip(panels, PANELS.items(), strict=True):
        for device, colour in (("cuda", DARK), ("cpu", LIGHT)):
            here = [
                r for r in rows if (r["varied"], r["device"]) == (varied, device) and r["step_ms"]
            ]
            if here:
                values = [int(r["name"]) for r in here]
                panel.plot(values, [r["step_ms"] for r in here], "o-", color=colour, label=device)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xlabel(label)
        panel.set_ylabel("ms a step")
        panel.grid(alpha=0.2)
    panels[1].legend(frameon=False)
    _draw_attention(panels[0].twinx(), [r for r in rows if r["varied"] == "features"])
    save_svg(figure, path)


def _draw_attention(axis: Any, rows: Sequence[dict[str, Any]]) -> None:
    shares = {int(r["features"]): r["attention_share"] for r in rows}  # the same on every device
    axis.plot(list(shares), list(shares.values()), ":", color="grey")
    axis.set_ylim(0, 1)
    axis.set_ylabel("attention's share of the arithmetic", color="grey", fontsize=8)
