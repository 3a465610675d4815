"""How a training step's cost grows with columns, rows and layers, for the first version's defaults.

Tables are numeric, masks of the middle size. Every point is a training of its own: random rows
through the trainer's step, the median of a few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.measures import race
from benchmarks.steps import (
    BenchShape,
    flops_by_operator,
    middle_masks,
    random_workload,
    trainer_step,
)
from paper.figures import DARK, LIGHT, panels, save_svg
from paper.settings import FIRST_VERSION
from varjepa.environment import describe_environment
from varjepa.estimators import VarTJEPA
from varjepa.nn.layers import TableShape
from varjepa.settings import nested

FEATURES = (8, 16, 32, 64, 128, 250, 500, 1000, 2000)
BATCHES = (32, 64, 128, 256, 512, 1024)
DEPTHS = (1, 2, 3, 4, 8, 16)
WIDE = 500
"""columns of a wide table, for which some settings are compared"""

WIDE_SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "targets=1": {"targets": 1},
    "targets=1, target_share=(.05, .2)": {"targets": 1, "target_share": (0.05, 0.2)},
    "context_share=(.05, .3)": {"context_share": (0.05, 0.3)},
    "d=32, ff=64": {"d": 32, "ff": 64, "imputer_width": 32, "imputer_ff": 64},
    "depth=2, imputer_depth=1": {"depth": 2, "imputer_depth": 1},
}


@dataclass(frozen=True, slots=True)
class Point:
    varied: str
    """features, batch, depth or settings"""
    name: str
    features: int
    batch: int
    settings: dict[str, Any]
    """of the estimator, where they differ from its first version's defaults"""


def points(batch: int, features: int) -> Iterator[Point]:
    """Every training; ``batch`` rows and ``features`` columns where neither is varied."""
    for value in FEATURES:
        yield Point("features", str(value), value, batch, {})
    for value in BATCHES:
        yield Point("batch", str(value), features, value, {})
    for value in DEPTHS:
        yield Point("depth", str(value), features, batch, {"depth": value})
    for name, settings in WIDE_SETTINGS.items():
        yield Point("settings", name, WIDE, batch, settings)


def bench_growth(
    device: str,
    batch: int,
    repeats: int,
    features: int = 32,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
    max_features: int = max(FEATURES),
) -> list[dict[str, Any]]:
    """One row per point. A step that does not fit in memory has no time."""
    environment = describe_environment(device)
    rows = []
    for point in points(batch, features):
        if point.features > max_features:
            continue
        rows.append(_time(point, device, repeats) | {"environment": environment})
        on_row(rows[-1])
    return rows


def _time(point: Point, device: str, repeats: int) -> dict[str, Any]:
    shape = shape_of(point)
    try:
        with trainer_step(random_workload(shape, device)) as step:
            step_ms = round(1e3 * race([step], repeats, device)[0], 2)
    except torch.OutOfMemoryError:
        step_ms = None
    return {
        "varied": point.varied,
        "name": point.name,
        "features": point.features,
        "batch": point.batch,
        "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in point.settings.items()},
        "device": device,
        "repeats": repeats,
        "step_ms": step_ms,
        "attention_share": round(attention_share(shape), 4),
    }


def shape_of(point: Point) -> BenchShape:
    """The estimator's networks for a numeric table."""
    settings = {**FIRST_VERSION, **point.settings}
    estimator = VarTJEPA().set_params(**nested(VarTJEPA.settings_kinds, settings))
    shape = BenchShape(
        TableShape(point.features),
        estimator.settings("architecture"),
        estimator.settings("objective"),
        batch=point.batch,
    )
    return replace(shape, masks=middle_masks(shape))


def attention_share(shape: BenchShape) -> float:
    """Share of a step's arithmetic that is attention's own products, which grow with tokens²."""
    by_operator = flops_by_operator(random_workload(replace(shape, batch=2)))
    pairwise = sum(v for k, v in by_operator.items() if "mm" not in str(k) or "bmm" in str(k))
    return pairwise / sum(by_operator.values())


PANELS = {"features": "columns", "batch": "rows of a batch", "depth": "layers of both encoders"}


def draw_growth(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel each for columns, rows and layers; a line per device, attention's share in grey."""
    figure, axes = panels((10.5, 3.2), 1, len(PANELS))
    for panel, (varied, label) in zip(axes, PANELS.items(), strict=True):
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
    axes[1].legend(frameon=False)
    by_columns = [r for r in rows if r["varied"] == "features"]
    shares = {
        int(r["features"]): r["attention_share"] for r in by_columns
    }  # the same on every device
    axis = axes[0].twinx()
    axis.plot(list(shares), list(shares.values()), ":", color="grey")
    axis.set_ylim(0, 1)
    axis.set_ylabel("attention's share of the arithmetic", color="grey", fontsize=8)
    save_svg(figure, path)
