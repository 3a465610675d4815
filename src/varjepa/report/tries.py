"""What was tried for "ours" and how it did on validation rows, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from varjepa.datasets.catalogue import DATASETS
from varjepa.evaluation.classification import COVERAGES
from varjepa.experiments.our_settings import OURS, tries
from varjepa.experiments.results import Row
from varjepa.experiments.tries import mean_accuracy, rows_of
from varjepa.report.beside import MARKS, MISSING, header, line, short

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
