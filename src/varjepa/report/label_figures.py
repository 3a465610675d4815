"""Accuracy against the number of labels: a panel per model and dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from varjepa.datasets.catalogue import DATASETS
from varjepa.experiments.few_label_fits import LABEL_PREDICTORS
from varjepa.experiments.few_labels import COMPARED
from varjepa.experiments.representations import LEARNED
from varjepa.experiments.results import Row
from varjepa.experiments.summaries import group, standard_error
from varjepa.experiments.tabular_settings import SETTINGS
from varjepa.report.drawing import DARK, LIGHT, check_can_draw, save_svg
from varjepa.report.words import TITLES

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
    for line, model in zip(panels, models, strict=True):
        line[0].set_ylabel(f"{TITLES[model]}\naccuracy", fontsize=8)
        for panel, dataset in zip(line, datasets, strict=True):
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
            (line,) = panel.plot(at, [fmean(v) for v in values], stroke, color=colour)
            low, high = zip(*(_band(v) for v in values), strict=True)
            panel.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
            name = TITLES[representation] + (f", setting {setting}" if learned else "")
            named[name] = line
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
