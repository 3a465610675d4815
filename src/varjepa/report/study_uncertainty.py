"""Uncertainty and the estimator's defaults on the study page."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from varjepa.datasets.catalogue import DATASETS
from varjepa.evaluation.classification import COVERAGES
from varjepa.experiments.results import Row
from varjepa.experiments.summaries import Summary, group
from varjepa.experiments.tabular_paper import downstream_paper_value, uncertainty_paper_value
from varjepa.experiments.tabular_settings import SETTINGS
from varjepa.experiments.uncertainty_findings import PAPER_DATASETS, uncertainty_findings
from varjepa.experiments.uncertainty_scores import LATENT, PAPER_SCORES, SHARED_SCORES
from varjepa.report.defaults import defaults_table
from varjepa.report.page import shorten
from varjepa.report.study_cells import (
    Cell,
    CellTable,
    Figure,
    Group,
    Line,
    Section,
    accuracy_cell,
    metric_cell,
    named_findings,
)
from varjepa.report.study_markdown import table_of_markdown
from varjepa.report.svg import inline
from varjepa.report.uncertainty import METRICS, mean_of, ranking_seeds, shared_error
from varjepa.report.uncertainty_figures import draw_corruption, draw_uncertainty

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
