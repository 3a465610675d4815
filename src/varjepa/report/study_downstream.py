"""The downstream and sensitivity tables on the study page, the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from varjepa.datasets.catalogue import DATASETS
from varjepa.evaluation.classification import COVERAGES
from varjepa.experiments.downstream import is_ranked
from varjepa.experiments.downstream_findings import downstream_findings
from varjepa.experiments.embeddings import SCORES
from varjepa.experiments.representations import REPRESENTATIONS
from varjepa.experiments.results import Row
from varjepa.experiments.summaries import group, summarise
from varjepa.experiments.tabular_paper import (
    PAPER_PREDICTORS,
    downstream_paper_value,
    sensitivity_paper_value,
)
from varjepa.experiments.tabular_settings import (
    SENSITIVITY,
    SENSITIVITY_PREDICTORS,
    SETTINGS,
)
from varjepa.report.downstream import METRICS, against_raw, first_embeddings, wanted_names
from varjepa.report.label_figures import draw_label_curves, drawable
from varjepa.report.labels import WORDS, curve_table, gain_table
from varjepa.report.sensitivity import HEADINGS, column_changes, sensitivity_cost
from varjepa.report.study_cells import (
    Cell,
    CellTable,
    Figure,
    Group,
    Line,
    Section,
    accuracy_cell,
    named_findings,
)
from varjepa.report.study_markdown import table_of_markdown
from varjepa.report.svg import inline
from varjepa.report.trainings import embedding_table, training_table
from varjepa.report.tries import TRIES_TITLE, tries_table
from varjepa.report.words import TITLES

DOWNSTREAM_TITLE = "Downstream predictors (Section 4.2, Appendix B.1)"
SENSITIVITY_TITLE = "Sensitivity on Adult (Appendix B.2)"
LABELS_TITLE = "Few labels (not in the paper)"

Groups = Mapping[tuple[Any, ...], list[Row]]


def downstream_section(
    rows: Sequence[Row], trainings: Sequence[Row], remarks: Sequence[str]
) -> Section:
    """A table per setting and metric; then where embeddings lose, how seeds vary, what it cost."""
    first = first_embeddings(rows)
    known = [
        row
        for row in rows
        if row["dataset"] in DATASETS and {row["representation"], row["predictor"]} <= TITLES.keys()
    ]
    settings = dict.fromkeys([*SETTINGS, *(row["setting"] for row in first)])
    tables = []
    for setting in settings:
        mine = [row for row in first if row["setting"] == setting]
        if mine or (setting == "paper" and rows):
            tables += [_metric_table(mine, metric, setting) for metric in METRICS]
    trained = [r for r in trainings if r["dataset"] in DATASETS and r["model"] in TITLES]
    for lines in (
        against_raw(first_embeddings(known)),
        embedding_table(known),
        training_table(trained),
    ):
        tables += table_of_markdown(lines)
    return Section(
        "downstream",
        DOWNSTREAM_TITLE,
        "Six predictors on raw columns and on embeddings; with Var-T-JEPA also on the rows that "
        "it is surest of. ✓: at or above the paper's mean minus the larger of its standard "
        "deviation and two binomial standard errors of the rows kept.",
        remarks,
        named_findings(
            {setting: downstream_findings(known, setting, trained) for setting in settings}
        ),
        (),
        tables,
    )


def _metric_table(rows: Sequence[Row], metric: str, setting: str) -> CellTable:
    """A group of lines per predictor, a line per representation and coverage."""
    cells = group(rows, "dataset", "representation", "predictor", "coverage")
    datasets = dict.fromkeys([*DATASETS, *(row["dataset"] for row in rows)])
    predictors = [p for p in TITLES if p not in REPRESENTATIONS]
    representations = dict.fromkeys([*REPRESENTATIONS, *(r["representation"] for r in rows)])
    wanted = wanted_names(rows, metric, setting)
    there = {key[1:] for key in cells}
    groups = []
    for predictor in dict.fromkeys([*predictors, *(row["predictor"] for row in rows)]):
        lines = []
        for name in representations:
            covered = sorted({c for n, p, c in there if (n, p) == (name, predictor)}, reverse=True)
            if name in wanted and predictor in PAPER_PREDICTORS:
                covered = sorted({*covered, *_coverages(name)}, reverse=True)
            for coverage in covered:
                shown = [_cell(cells, metric, d, name, predictor, coverage) for d in datasets]
                lines.append(Line(TITLES.get(name, name) + _left_out(coverage), shown))
        if lines:
            groups.append(Group(TITLES.get(predictor, predictor), lines))
    columns = [DATASETS[d].short if d in DATASETS else d for d in datasets]
    title = f"{METRICS[metric]}; setting: {setting}"
    return CellTable(title, "representation", columns, groups, is_open=metric == "accuracy")


def _coverages(representation: str) -> tuple[float, ...]:
    return COVERAGES if is_ranked(representation) else COVERAGES[:1]


def _left_out(coverage: float) -> str:
    return "" if coverage == 1 else f", {1 - coverage:.0%} left out"


def _cell(
    cells: Groups, metric: str, dataset: str, name: str, predictor: str, coverage: float
) -> Cell:
    here = cells.get((dataset, name, predictor, coverage))
    paper = None
    if dataset in DATASETS:
        paper = downstream_paper_value(metric, dataset, name, predictor, coverage)
    return accuracy_cell(summarise(here, metric) if here else None, paper)


def sensitivity_section(rows: Sequence[Row], remarks: Sequence[str]) -> Section:
    """Both tables; columns that the paper does not have come last."""
    cells = group(rows, "table", "column", "predictor", "coverage")
    predictors = dict.fromkeys([*SENSITIVITY_PREDICTORS, *(row["predictor"] for row in rows)])
    tables = []
    for table in dict.fromkeys([*SENSITIVITY, *(row["table"] for row in rows)]):
        changes = SENSITIVITY.get(table, {})
        mine = [row["column"] for row in rows if row["table"] == table]
        columns = list(dict.fromkeys([*changes, *mine]))
        groups = [
            Group(
                TITLES.get(predictor, predictor),
                [
                    Line(
                        f"{1 - coverage:.0%} left out",
                        [_sensitivity_cell(cells, table, c, predictor, coverage) for c in columns],
                    )
                    for coverage in COVERAGES
                ],
            )
            for predictor in predictors
        ]
        under = [column_changes(changes.get(c, {})) for c in columns]
        title = HEADINGS.get(table, table)
        tables.append(CellTable(title, "rows", columns, groups, under=under))
    return Section(
        "sensitivity",
        SENSITIVITY_TITLE,
        "Test accuracy on Var-T-JEPA embeddings; each column is a training of its own. ✓ as above. "
        + sensitivity_cost(rows),
        remarks,
        tables=tables if rows else (),
    )


def _sensitivity_cell(
    cells: Groups, table: str, column: str, predictor: str, coverage: float
) -> Cell:
    here = cells.get((table, column, predictor, coverage))
    paper = None
    if column in SENSITIVITY.get(table, {}):
        paper = sensitivity_paper_value(table, column, predictor, coverage)
    return accuracy_cell(summarise(here, "accuracy") if here else None, paper)


def labels_section(rows: Sequence[Row], remarks: Sequence[str]) -> Section:
    """What embeddings add to raw columns where labels are few."""
    known = [
        row
        for row in rows
        if row["dataset"] in DATASETS and {row["representation"], row["predictor"]} <= TITLES.keys()
    ]
    tables = [*table_of_markdown(gain_table(known)), *table_of_markdown(curve_table(known))]
    shown = [replace(table, is_open=number == 0) for number, table in enumerate(tables)]
    return Section("labels", LABELS_TITLE, WORDS, remarks, tables=shown, figures=_curves(known))


def _curves(rows: Sequence[Row]) -> list[Figure]:
    if not any(map(drawable, rows)):
        return []
    svg = inline(
        lambda path: draw_label_curves(rows, path),
        key="labels",
        label="A panel per model and dataset: accuracy over the number of labels",
    )
    return [Figure("Accuracy by number of labels", svg, "Bands: one standard error.")]


def tries_section(rows: Sequence[Row], remarks: Sequence[str]) -> Section:
    """How the settings that are called ours did on validation rows."""
    known = [row for row in rows if row["dataset"] in DATASETS and row["uncertainty"] in SCORES]
    tables = table_of_markdown(tries_table(known), "Tries")
    return Section("tries", TRIES_TITLE, "", remarks, tables=tables)
