"""The uncertainty table in both arrangements as Markdown, from ``uncertainty.json``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from varjepa.experiments.ambiguity_rows import BALANCED_SPLITS
from varjepa.experiments.results import Row
from varjepa.experiments.summaries import group
from varjepa.experiments.tabular_paper import uncertainty_paper_value
from varjepa.experiments.tabular_settings import SETTINGS
from varjepa.experiments.uncertainty_findings import PAPER_DATASETS, uncertainty_findings
from varjepa.experiments.uncertainty_scores import (
    BALANCED,
    LATENT,
    PAPER_SCORES,
    SHARED_SCORES,
    TOLD,
)
from varjepa.files import write_text
from varjepa.report.beside import MISSING, finding_lines, header, line, short
from varjepa.report.uncertainty_figures import draw_corruption, draw_uncertainty

METRICS = {
    "spearman": "Spearman ↑",
    "auroc": "AUROC (u ≥ q75) ↑",
    "aurc": "AURC (mean) ↓",
    "aurc_trapezoid": "AURC (trapezoid) ↓",
    "aurc_collapsed": "AURC (collapsed) ↓",
    "augrc": "AUGRC ↓",
    "error_rate": "error of its classifier",
}

SEED_METRICS = ("spearman", "auroc", "aurc")

WORDS = (
    "Mean ± standard deviation over runs. AURC by three estimators: mean of the running risk; "
    "trapezoid rule; ties collapsed and flat to coverage 0. The paper does not name its own."
)


def write_uncertainty_report(folder: Path, rows: Sequence[Row], per_row: Sequence[Row]) -> None:
    """Write ``uncertainty.md`` and the figures that there are rows for."""
    write_text(folder / "uncertainty.md", uncertainty_report(rows))
    for (setting,), here in group(per_row, "setting").items():
        first = [row for row in here if row["embedding_seed"] == 0]
        if first:
            draw_uncertainty(first, folder / f"uncertainty-{setting}.svg")
    images = [row["images"] for row in per_row if row.get("images")]
    if images:
        draw_corruption(images[0], folder / "mnist_corruption.svg")


def uncertainty_report(rows: Sequence[Row]) -> str:
    """The goals, then per dataset and setting all scores in both arrangements."""
    return "\n".join(["# Uncertainty (Appendix B.3)", *uncertainty_tables(rows)]) + "\n"


def uncertainty_tables(rows: Sequence[Row]) -> list[str]:
    """Per dataset and setting: all scores on one classifier, then the paper's arrangement."""
    lines = ["", WORDS]
    for setting in SETTINGS:
        found = uncertainty_findings(rows, setting)
        if found:
            lines += ["", f"Setting {setting}:", "", *finding_lines(found)]
    lines += ranking_seeds(rows)
    groups = group(rows, "dataset", "setting", "embedding_seed")
    wanted: list[tuple[Any, ...]] = [(name, "paper", 0) for name in PAPER_DATASETS]
    for about in dict.fromkeys([*wanted, *sorted(groups)]):
        dataset, setting, seed = about
        here = group(groups.get(about, []), "arrangement", "score")
        lines += ["", f"## {dataset}, setting {setting}, pre-training seed {seed}"]
        lines += ["", "### One shared classifier", "", shared_error(here), ""]
        lines += header(["score", *METRICS.values()])
        lines += [
            line([score, *(mean_of(here.get(("shared", score)), m) for m in METRICS)])
            for score in SHARED_SCORES
        ]
        lines += ["", "### The paper's arrangement: each score on its own classifier", ""]
        lines += header(["score", *METRICS.values()])
        lines += [paper_line(here.get(("paper", score)), dataset, score) for score in PAPER_SCORES]
    return lines


def ranking_seeds(rows: Sequence[Row]) -> list[str]:
    """The latent score of each pre-training seed, where there are several."""
    mine = [r for r in rows if r["arrangement"] == "paper" and r["score"] == LATENT]
    lines = []
    for (dataset, setting), here in sorted(group(mine, "dataset", "setting").items()):
        by_seed = group(here, "embedding_seed")
        if len(by_seed) < 2:
            continue
        for (seed,), some in sorted(by_seed.items()):
            found = [mean_of(some, metric) for metric in SEED_METRICS]
            lines.append(line([dataset, setting, str(seed), some[0]["latent"] or "–", *found]))
    if not lines:
        return []
    titles = ["dataset", "setting", "pre-training seed", "score"]
    return [
        "",
        "## Pre-training seeds, latent score",
        "",
        *header([*titles, *(METRICS[metric] for metric in SEED_METRICS)]),
        *lines,
    ]


def shared_error(here: Mapping[tuple[Any, ...], Sequence[Row]]) -> str:
    """The error that makes the AURCs below comparable; what a balanced score finds of u, and
    what bounds that.
    """
    rows = here.get(("shared", "random"))
    if not rows:
        return "The shared classifier is a perceptron; not computed yet."
    error = statistics.fmean(row["error_rate"] for row in rows)
    said = f"The shared classifier is a perceptron with an error of {short(error)}."
    balanced = here.get(("balanced", BALANCED))
    if balanced:
        said += (
            f" {BALANCED} (how unlikely the values of a row are given its other columns, numbers "
            f"and categories in equal parts, {BALANCED_SPLITS} splits) finds u with a Spearman of "
            f"{mean_of(balanced, 'spearman')} and an AUROC of {mean_of(balanced, 'auroc')}."
        )
    told = here.get(("bound", TOLD))
    if told:
        said += (
            " Boosted trees that are told u of the training rows find it in the test rows' columns "
            f"with a Spearman of {mean_of(told, 'spearman')} and an AUROC of "
            f"{mean_of(told, 'auroc')}."
        )
    return said


def mean_of(rows: Sequence[Row] | None, metric: str) -> str:
    """Over runs, as text."""
    if not rows:
        return MISSING
    values = [row[metric] for row in rows if row[metric] is not None]
    if not values:
        return "–"
    mean = short(statistics.fmean(values), 4)
    return mean if len(values) == 1 else f"{mean} ± {short(statistics.stdev(values), 4)}"


def paper_line(rows: Sequence[Row] | None, dataset: str, score: str) -> str:
    """A line of the paper's table, its numbers below ours."""
    cells = []
    for metric in METRICS:
        paper = uncertainty_paper_value(metric, dataset, score)
        below = "" if paper is None else f"<br>*{short(paper)}*"
        cells.append(mean_of(rows, metric) + below)
    name = f"{score} ({rows[0]['latent']})" if rows and score == LATENT else score
    return line([name, *cells])
