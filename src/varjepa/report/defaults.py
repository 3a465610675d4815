"""The table of what the defaults give, from ``defaults.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from varjepa.experiments.results import Row

COLUMNS = (
    "dataset",
    "checkpoint by",
    "seeds",
    "epoch kept",
    "accuracy at 100 / 90 / 80 / 50 %, predictive",
    "at 50 %: posterior, surprise, nll",
    "5 % holes: RMSE, mean's; right, mode's",
    "20 % holes",
    "drawn rows: columns, pairs, AUROC (other real rows)",
)


def defaults_table(rows: Sequence[Row]) -> str:
    """One line per dataset and selection, means over seeds, as Markdown."""
    groups = {(row["dataset"], row["selected_by"]) for row in rows}
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    for dataset, by in sorted(groups):
        mine = [r for r in rows if (r["dataset"], r["selected_by"]) == (dataset, by)]
        lines.append(_line(_cells(dataset, by, mine)))
    return "\n".join(lines) + "\n"


def _cells(dataset: str, by: str, rows: Sequence[Row]) -> list[str]:
    def mean(*path: str) -> str:
        values: list[Any] = list(rows)
        for key in path:
            values = [value[key] for value in values]
        return f"{np.mean(values):.3f}".removeprefix("0")

    def holes(share: str) -> str:
        names = ("rmse", "mean_rmse", "accuracy", "mode_accuracy")
        error, plain, right, mode = (mean("holes", share, name) for name in names)
        return f"{error}, {plain}; {right}, {mode}"

    drawn, real = (
        ", ".join(mean("samples", kind, name) for name in ("marginal", "pairwise", "auroc"))
        for kind in ("drawn", "real")
    )
    coverages = ("100%", "90%", "80%", "50%")
    return [
        dataset,
        by,
        str(len(rows)),
        " ".join(f"{r['best_epoch']}/{r['epochs']}" for r in rows),
        " ".join(mean("accuracy", "predictive", c) for c in coverages),
        " ".join(mean("accuracy", kind, "50%") for kind in ("posterior", "surprise", "nll")),
        holes("5%"),
        holes("20%"),
        f"{drawn} ({real})",
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
