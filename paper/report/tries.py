"""What was tried for "ours" and how it did on validation rows, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paper.datasets.catalogue import DATASETS
from paper.report.cells import MARKS, MISSING, header, line, short
from paper.results import Row
from paper.settings import OURS, tries
from paper.tries import mean_accuracy, rows_of
from varjepa.metrics.selective import COVERAGES

TRIES_TITLE = 'How "ours" was found'


def tries_table(rows: Sequence[Row]) -> list[str]:
    """A line per try, the best of a dataset first."""
    lines: list[str] = []
    for dataset in DATASETS:
        found = {name: rows_of(rows, dataset, name) for name in tries(dataset)}
        there = {name: some for name, some in found.items() if some}
        best_first = sorted(there, key=lambda name: -mean_accuracy(there[name]))
        lines += [_line(dataset, name, there[name]) for name in best_first]
    coverages = [f"{c:.0%}" for c in COVERAGES]
    titles = ["dataset", "try", "", "mean", *coverages, "by", "Spearman with u", "epoch kept"]
    return [
        "Accuracy on validation rows, mean over the predictors that are fast and their seeds; by: "
        f"the uncertainty that these rows prefer. What is taken is marked. {_count(rows)}",
        "",
        *header(titles),
        *lines,
    ]


def _line(dataset: str, name: str, rows: Sequence[Row]) -> str:
    by_coverage = [[r for r in rows if r["coverage"] == c] for c in COVERAGES]
    means = [short(mean_accuracy(some)) if some else MISSING for some in by_coverage]
    first = rows[0]
    told = "–" if first["spearman"] is None else short(first["spearman"])
    return line(
        [
            dataset,
            name,
            MARKS[True] if OURS[dataset] == name else "",
            short(mean_accuracy(rows), 4),
            *means,
            first["uncertainty"],
            told,
            str(first["best_epoch"]),
        ]
    )


def _count(rows: Sequence[Row]) -> str:
    run = {(row["dataset"], row["try"]) for row in rows}
    worth = {(dataset, name) for dataset in DATASETS for name in tries(dataset)}
    return f"{len(run & worth)} of {len(worth)} tries have been run."


# --- The table of what the defaults give, from ``defaults.json``.

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
    lines = [_default_line(COLUMNS), _default_line(["---"] * len(COLUMNS))]
    for dataset, by in sorted(groups):
        mine = [r for r in rows if (r["dataset"], r["selected_by"]) == (dataset, by)]
        lines.append(_default_line(_cells(dataset, by, mine)))
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


def _default_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
