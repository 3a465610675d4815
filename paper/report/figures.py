"""Figures of the uncertainty and few-label studies.

Figure 3 (risk–coverage, uncertainty against ambiguity, ROC) and Figure 5 (MNIST corrupted).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from sklearn.metrics import roc_curve

from paper.datasets.catalogue import DATASETS
from paper.labels import LABEL_PREDICTORS
from paper.report.cells import TITLES
from paper.representations import LEARNED
from paper.results import Row, group, standard_error
from paper.settings import SETTINGS
from varjepa.evaluate.few_labels import COMPARED
from varjepa.metrics.ambiguity import auroc_of_ambiguous, spearman
from varjepa.metrics.selective import aurc, risk_coverage
from varjepa.report.charts import DARK, LIGHT, check_can_draw, save_svg

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


# --- Accuracy against the number of labels: a panel per model and dataset.

COLOURS = {"paper": LIGHT, "ours": DARK}
"""of what a setting has learnt; raw columns are grey"""
STROKES = {"raw": ":", "raw+var_t_jepa": "--"}

Curves = Mapping[tuple[Any, ...], list[Row]]


def drawable(row: Row) -> bool:
    """Whether the figure has a place for a row."""
    return (
        row["dataset"] in DATASETS
        and row["predictor"] in LABEL_PREDICTORS
        and row["representation"] in COMPARED
        and row["setting"] in SETTINGS
    )


def draw_label_curves(rows: Sequence[Row], path: Path) -> None:
    """Means over draws of the labelled rows, with a band of one standard error.

    At least one row has to be drawable.
    """
    check_can_draw()
    from matplotlib.figure import Figure

    curves = group(
        [row for row in rows if drawable(row)],
        "dataset", "predictor", "representation", "setting",
    )  # fmt: skip
    datasets = [name for name in DATASETS if any(key[0] == name for key in curves)]
    models = [name for name in LABEL_PREDICTORS if any(key[1] == name for key in curves)]
    size = 1.9 * len(datasets) + 0.4, 1.8 * len(models) + 0.5
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(models), len(datasets), squeeze=False)
    named: dict[str, Any] = {}
    for panel_row, model in zip(panels, models, strict=True):
        panel_row[0].set_ylabel(f"{TITLES[model]}\naccuracy", fontsize=8)
        for panel, dataset in zip(panel_row, datasets, strict=True):
            named |= _draw_panel(panel, curves, dataset, model)
    for panel, dataset in zip(panels[0], datasets, strict=True):
        panel.set_title(DATASETS[dataset].title, fontsize=9)
    for panel in panels[-1]:
        panel.set_xlabel("labels", fontsize=8)
    figure.legend(
        named.values(),
        named,
        loc="outside lower center",
        ncols=max(1, min(len(named), len(datasets) - 1)),  # a name is wider than a panel
        fontsize=8,
        frameon=False,
    )
    save_svg(figure, path)


def _draw_panel(panel: Any, curves: Curves, dataset: str, model: str) -> dict[str, Any]:
    """Draw what there is; the lines by what they are called in the legend."""
    named: dict[str, Any] = {}
    sizes: set[int] = set()
    for representation in COMPARED:
        for setting in SETTINGS:
            rows = curves.get((dataset, model, representation, setting))
            if not rows:
                continue
            points = dict(sorted(group(rows, "labels").items()))
            at = [size for (size,) in points]
            values = [[row["accuracy"] for row in here] for here in points.values()]
            learned = representation in LEARNED
            colour = COLOURS[setting] if learned else "grey"
            stroke = STROKES.get(representation, "-")
            (panel_row,) = panel.plot(at, [fmean(v) for v in values], stroke, color=colour)
            low, high = zip(*(_band(v) for v in values), strict=True)
            panel.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
            name = TITLES[representation] + (f", setting {setting}" if learned else "")
            named[name] = panel_row
            sizes.update(at)
    if not named:
        panel.axis("off")
        return named
    panel.set_xscale("log")
    panel.set_xticks(sorted(sizes), [f"{size:,}" for size in sorted(sizes)], fontsize=6)
    panel.minorticks_off()
    panel.tick_params(axis="y", labelsize=7)
    panel.grid(alpha=0.2)
    return named


def _band(values: Sequence[float]) -> tuple[float, float]:
    error = standard_error(values) or 0.0
    return fmean(values) - error, fmean(values) + error
