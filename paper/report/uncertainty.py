"""Tables and figures of Appendix B.3.

The uncertainty table in both arrangements as Markdown, from ``uncertainty.json``.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.datasets.catalogue import DATASETS
from paper.findings import PAPER_DATASETS, uncertainty_findings
from paper.published import downstream_paper_value, uncertainty_paper_value
from paper.report.cells import (
    MISSING,
    Cell,
    CellTable,
    Figure,
    Group,
    Line,
    Section,
    accuracy_cell,
    finding_lines,
    header,
    line,
    metric_cell,
    named_findings,
    short,
    table_of_markdown,
)
from paper.report.figures import draw_corruption, draw_uncertainty
from paper.report.tries import defaults_table
from paper.results import Row, Summary, group
from paper.settings import SETTINGS
from paper.uncertainty import BALANCED, BALANCED_SPLITS, LATENT, PAPER_SCORES, SHARED_SCORES, TOLD
from varjepa.files import write_text
from varjepa.metrics.selective import COVERAGES
from varjepa.report.charts import inline
from varjepa.report.page import shorten

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


# --- Uncertainty and the estimator's defaults on the study page.

UNCERTAINTY_TITLE = "Uncertainty (Appendix B.3, Figures 3 and 5)"
DEFAULTS_TITLE = "What the defaults give (not in the paper)"

LOWER_IS_BETTER = ("aurc", "aurc_trapezoid", "aurc_collapsed", "augrc", "error_rate")
MOST_PANELS = 7
"""lines of panels in a figure"""
TEST_SHARE = 0.2

Groups = Mapping[tuple[Any, ...], list[Row]]


def uncertainty_section(
    rows: Sequence[Row], per_row: Sequence[Row], remarks: Sequence[str]
) -> Section:
    """The paper's arrangement beside its numbers, all scores on one classifier, the figures."""
    groups = group(rows, "dataset", "setting", "embedding_seed")
    wanted: list[tuple[Any, ...]] = [(name, "paper", 0) for name in PAPER_DATASETS]
    tables = [
        table
        for about in dict.fromkeys([*wanted, *sorted(groups)])
        for table in _tables(about, group(groups.get(about, []), "arrangement", "score"))
    ]
    known = [row for row in rows if row["dataset"] in DATASETS and row["setting"] in SETTINGS]
    tables += table_of_markdown(ranking_seeds(known))
    return Section(
        "uncertainty",
        UNCERTAINTY_TITLE,
        "Which score finds ambiguous rows (Spearman, AUROC) and which finds errors (AURC, AUGRC). "
        "The paper gives one number a cell; σ are our runs' alone, and where these do not differ "
        "the plain difference stands.",
        remarks,
        named_findings({setting: uncertainty_findings(known, setting) for setting in SETTINGS}),
        _figures(per_row),
        tables if rows else (),
    )


def _tables(about: tuple[Any, ...], here: Groups) -> list[CellTable]:
    dataset, setting, seed = about
    which = f"{dataset}, setting {setting}" + (f", pre-training seed {seed}" if seed else "")
    titles = list(METRICS.values())
    scores = {
        arrangement: dict.fromkeys([*known, *(s for a, s in here if a == arrangement)])
        for arrangement, known in (("paper", PAPER_SCORES), ("shared", SHARED_SCORES))
    }
    paper = [
        Line(
            _score_name(here.get(("paper", score)), score),
            [_cell(here.get(("paper", score)), m, dataset, score) for m in METRICS],
        )
        for score in scores["paper"]
    ]
    shared = [
        Line(score, [Cell(mean_of(here.get(("shared", score)), m)) for m in METRICS])
        for score in scores["shared"]
    ]
    found = [
        CellTable(
            f"{which}: each score on its own classifier, as in the paper",
            "score",
            titles,
            [Group("", paper)],
        )
    ]
    if any(arrangement == "shared" for arrangement, _ in here):
        title = f"{which}: all scores on one classifier (not in the paper)"
        note = shared_error(here)
        found.append(CellTable(title, "score", titles, [Group("", shared)], note, is_open=False))
    return found


def _score_name(rows: Sequence[Row] | None, score: str) -> str:
    return f"{score} ({rows[0]['latent']})" if rows and score == LATENT else score


def _cell(rows: Sequence[Row] | None, metric: str, dataset: str, score: str) -> Cell:
    paper = uncertainty_paper_value(metric, dataset, score)
    values = [row[metric] for row in rows or () if row[metric] is not None]
    if values:
        return metric_cell(values, paper, metric in LOWER_IS_BETTER)
    if paper is not None:
        return Cell("", f"{paper:.3f}".removeprefix("0"), "", "missing")
    return Cell("–" if rows else "")


def _figures(per_row: Sequence[Row]) -> list[Figure]:
    figures = []
    first = [row for row in per_row if row["embedding_seed"] == 0]
    for number, ((setting,), rows) in enumerate(group(first, "setting").items()):
        named = [{**row, "dataset": shorten(row["dataset"], 24)} for row in rows[:MOST_PANELS]]
        figures.append(
            Figure(
                f"Risk and coverage, ambiguity, ROC; setting {setting}",
                _drawn(named, f"uncertainty{number}"),
                "Left: risk of a linear probe among the rows kept, the dotted line is all rows. "
                "Middle: uncertainty over the true ambiguity u. Right: finding u ≥ q75.",
            )
        )
    images = [row["images"] for row in per_row if row.get("images")]
    if images:
        svg = inline(
            lambda path: draw_corruption(images[0], path),
            key="corruption",
            label="Digits of MNIST, each column more corrupted than the one before",
        )
        figures.append(Figure("MNIST corrupted", svg, "From clean to almost noise."))
    return figures


def _drawn(rows: Sequence[Row], key: str) -> str:
    return inline(
        lambda path: draw_uncertainty(rows, path),
        key=key,
        label="Three panels a dataset: risk over coverage, uncertainty over ambiguity, ROC",
    )


def defaults_section(rows: Sequence[Row], remarks: Sequence[str]) -> Section:
    """Accuracy by coverage beside the paper's MLP, then everything that was judged."""
    groups = group(rows, "dataset", "selected_by")
    datasets = sorted({row["dataset"] for row in rows})
    shown = [
        Group(
            dataset,
            [
                Line(f"checkpoint by {by}", [_default_cell(dataset, here, c) for c in COVERAGES])
                for (name, by), here in sorted(groups.items())
                if name == dataset
            ],
        )
        for dataset in datasets
    ]
    table = CellTable(
        "Accuracy of a perceptron on the embeddings, by coverage of the posterior's spread",
        "dataset",
        [f"{c:.0%}" for c in COVERAGES],
        shown,
        "The paper's numbers are Var-T-JEPA with an MLP: trained on all rows with settings of "
        "each dataset. Ours: the training rows only, and no setting at all.",
    )
    known = [row for row in rows if row["dataset"] in DATASETS]
    everything = defaults_table(known).splitlines()
    return Section(
        "defaults",
        DEFAULTS_TITLE,
        "VarTJEPA() as it comes, on splits of its own.",
        remarks,
        tables=[table, *table_of_markdown(everything, "All that was judged")] if rows else (),
    )


def _default_cell(dataset: str, rows: Sequence[Row], coverage: float) -> Cell:
    values = [row["accuracy"]["posterior"][f"{coverage:.0%}"] for row in rows]
    std = statistics.stdev(values) if len(values) > 1 else None
    if dataset not in DATASETS:
        return accuracy_cell(Summary(statistics.fmean(values), std, 1), None)
    kept = round(TEST_SHARE * coverage * DATASETS[dataset].rows)
    paper = downstream_paper_value("accuracy", dataset, "var_t_jepa", "mlp", coverage)
    return accuracy_cell(Summary(statistics.fmean(values), std, kept), paper)
