"""Figure 3 (risk–coverage, uncertainty against ambiguity, ROC) and Figure 5 (MNIST corrupted)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_curve

from varjepa.evaluation.ambiguity import auroc_of_ambiguous, spearman
from varjepa.evaluation.selective import aurc, risk_coverage
from varjepa.experiments.results import Row
from varjepa.report.drawing import DARK, LIGHT, check_can_draw, save_svg

SIDE = 28
"""pixels of an MNIST image's side"""
BINS = 20
"""of ambiguity, whose mean uncertainties are joined by a line"""


def draw_uncertainty(per_row: Sequence[Row], path: Path) -> None:
    """A line of three panels per dataset; the last two only where the ambiguity is known."""
    check_can_draw()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.1 * len(per_row)), layout="constrained")
    axes = figure.subplots(len(per_row), 3, squeeze=False)
    for letter, panels, row in zip("ABCDEFG", axes, per_row, strict=False):
        unsure, wrong = np.asarray(row["uncertainty"]), np.asarray(row["wrong"], dtype=float)
        curve = risk_coverage(wrong, unsure)
        panels[0].plot(curve.coverage, curve.risk, color=DARK)
        panels[0].axhline(wrong.mean(), color="grey", linestyle=":", linewidth=1)
        _label(
            panels[0],
            f"{letter}. {row['dataset']}: AURC {aurc(wrong, unsure):.3f}",
            "coverage",
            "risk",
        )
        if row["ambiguity"] is None:
            panels[1].axis("off")
            panels[2].axis("off")
            continue
        _draw_ambiguity(panels[1], panels[2], unsure, np.asarray(row["ambiguity"]))
    save_svg(figure, path)


def draw_corruption(images: Sequence[Row], path: Path) -> None:
    """Digits of the dataset, a column per level of u."""
    check_can_draw()
    from matplotlib.figure import Figure

    levels = list(dict.fromkeys(image["level"] for image in images))
    columns = [[image for image in images if image["level"] == level] for level in levels]
    deep = max(map(len, columns))
    figure = Figure(figsize=(1.2 * len(levels), 1.3 * deep), layout="constrained")
    axes = figure.subplots(deep, len(levels), squeeze=False)
    for j, column in enumerate(columns):
        for i in range(deep):
            axes[i][j].axis("off")
            if i < len(column):
                pixels = np.asarray(column[i]["pixels"], dtype=np.uint8).reshape(SIDE, SIDE)
                axes[i][j].imshow(pixels, cmap="gray", vmin=0, vmax=255)
                axes[i][j].set_title(f"u = {column[i]['u']:.2f}", fontsize=8)
    save_svg(figure, path)


def _draw_ambiguity(scatter: Any, roc: Any, unsure: Any, truth: Any) -> None:
    spread = unsure.std() or 1.0
    standard = (unsure - unsure.mean()) / spread
    scatter.scatter(truth, standard, s=4, color=LIGHT, linewidth=0, rasterized=True)
    edges = np.quantile(truth, np.linspace(0, 1, BINS + 1))
    bins = np.clip(np.searchsorted(edges, truth, side="right") - 1, 0, BINS - 1)
    filled = [b for b in range(BINS) if (bins == b).any()]
    scatter.plot(
        [truth[bins == b].mean() for b in filled],
        [standard[bins == b].mean() for b in filled],
        color=DARK,
    )
    _label(
        scatter,
        f"Spearman {spearman(unsure, truth):.3f}",
        "ambiguity u",
        "uncertainty, standardised",
    )
    hits, alarms, _ = roc_curve(truth >= np.quantile(truth, 0.75), unsure)
    roc.plot(hits, alarms, color=DARK)
    roc.plot([0, 1], [0, 1], color="grey", linestyle=":", linewidth=1)
    title = f"u ≥ q75: AUROC {auroc_of_ambiguous(unsure, truth):.3f}"
    _label(roc, title, "false positives", "true positives")


def _label(axis: Any, title: str, across: str, up: str) -> None:
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.grid(alpha=0.2)
