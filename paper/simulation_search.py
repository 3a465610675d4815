"""The search that settled what the paper leaves open about its simulation study.

    python -m paper.simulation_search FILE

Every candidate runs all ten variants on seeds that are never reported and is scored by the number
of Table 1's cells that agree. paper/LOG.md reads the result. Resumable; about 2
minutes a candidate on two cores.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from paper.published import SIMULATION_METRICS
from paper.simulation import LATENTS, SIMULATION_VARIANTS, SimulationSettings, run_variant
from paper.simulation_findings import count_agreeing, summarise
from varjepa.environment import describe_environment
from varjepa.files import read_json, write_json

SEARCH_SEEDS = (1001, 1002, 1003)
"""Never reported: the reported runs use seeds 0–4."""

START: dict[str, Any] = {
    "train_rows": 5000,
    "hidden_layers": 1,
    "activation": "gelu",
    "scale": "log_var",
    "noise_scale": "log_var",
    "map_gains": (1.0, 1.0),
    "probe_hidden": 64,
}

CANDIDATES: tuple[dict[str, Any], ...] = (
    {},
    {"probe_hidden": 0},
    {"noise_scale": "log_std"},
    {"noise_scale": "softplus_std"},
    {"noise_scale": "log_std", "activation": "silu"},
    {"noise_scale": "log_std", "activation": "tanh"},
    {"noise_scale": "log_std", "map_gains": (1.5, 1.0)},
    {"noise_scale": "log_std", "map_gains": (0.63, 1.15)},
    {"noise_scale": "log_std", "scale": "log_std"},
    {"noise_scale": "softplus_std", "scale": "softplus_std"},
    {"noise_scale": "log_std", "activation": "relu"},
    {"noise_scale": "log_std", "hidden_layers": 2},
    {"noise_scale": "log_std", "train_rows": 4000},
)
"""What each candidate changes from START."""

CHOSEN: dict[str, Any] = {"noise_scale": "log_std", "activation": "silu"}
"""The candidate whose settings are the study's defaults."""


def settings_for(changes: dict[str, Any]) -> SimulationSettings:
    """The study's settings with a candidate's changes."""
    chosen = {**START, **changes}
    base = SimulationSettings()
    return replace(
        base,
        train_rows=chosen["train_rows"],
        process=replace(base.process, map_gains=tuple(chosen["map_gains"])),
        model=replace(
            base.model,
            hidden_layers=chosen["hidden_layers"],
            activation=chosen["activation"],
            scale=chosen["scale"],
            noise_scale=chosen["noise_scale"],
        ),
        probe=replace(base.probe, hidden=chosen["probe_hidden"]),
    )


def try_candidate(changes: dict[str, Any]) -> dict[str, Any]:
    """Run all variants and count the cells that agree."""
    start = time.perf_counter()
    settings = settings_for(changes)
    means: dict[str, dict[str, float | None]] = {}
    agreeing: dict[str, int] = {}
    for variant in SIMULATION_VARIANTS:
        rows = run_variant(variant, SEARCH_SEEDS, settings).table
        agreeing[variant], _ = count_agreeing(rows, [variant])
        for latent in LATENTS:
            cells = {m: summarise(rows, variant, latent, m) for m in SIMULATION_METRICS}
            means[f"{variant} {latent}"] = {
                m: float(f"{cell.mean:.5g}") if cell else None for m, cell in cells.items()
            }
    return {
        "changes": changes,
        "cells_agreeing": sum(agreeing.values()),
        "by_variant": agreeing,
        "means": means,
        "seeds": SEARCH_SEEDS,
        "settings": asdict(settings),
        "seconds": round(time.perf_counter() - start, 1),
        "environment": describe_environment(),
    }


def search(path: Path) -> None:
    """Try every candidate that the file does not hold yet."""
    done: list[dict[str, Any]] = read_json(path) if path.exists() else []
    for changes in CANDIDATES:
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in changes.items()}
        if not any(row["changes"] == plain for row in done):
            done.append({**try_candidate(changes), "changes": plain})
            write_json(path, done)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m paper.simulation_search FILE")
    search(Path(sys.argv[1]))
