"""The generated parts of documents, by name: what the Markdown reports say, from one folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from varjepa.datasets.catalogue import DATASETS
from varjepa.experiments.downstream_findings import downstream_findings
from varjepa.experiments.embeddings import SCORES
from varjepa.experiments.findings import Finding
from varjepa.experiments.results import Row
from varjepa.experiments.settings import SIMULATION_VARIANTS
from varjepa.experiments.tabular_paper import PAPER_REPRESENTATIONS
from varjepa.experiments.tabular_settings import SENSITIVITY, SETTINGS
from varjepa.experiments.uncertainty_findings import uncertainty_findings
from varjepa.report.beside import LEGEND, MARKS, header, line
from varjepa.report.downstream import (
    against_raw,
    first_embeddings,
    metric_table,
    representation_table,
)
from varjepa.report.headline import begun, headline_tables
from varjepa.report.labels import labels_tables
from varjepa.report.origins import origin_table
from varjepa.report.sensitivity import sensitivity_tables
from varjepa.report.simulation import simulation_table
from varjepa.report.study_files import FoundFile
from varjepa.report.trainings import embedding_table, training_table
from varjepa.report.tries import TRIES_TITLE, tries_table
from varjepa.report.uncertainty import uncertainty_tables
from varjepa.report.words import TITLES

TITLE = "The paper, in numbers"


@dataclass(frozen=True, slots=True)
class Rows:
    """What a folder holds, without names that this version does not know."""

    simulation: Sequence[Row]
    downstream: Sequence[Row]
    trainings: Sequence[Row]
    uncertainty: Sequence[Row]
    sensitivity: Sequence[Row]
    labels: Sequence[Row]
    tries: Sequence[Row]


def build_blocks(found: Mapping[str, FoundFile]) -> dict[str, str]:
    """Every block as text; one of a study without rows says which command runs it."""
    rows = known_rows(found)
    made = {name: build(rows) for name, build in BLOCKS.items()}
    shown = {name: file for name, file in found.items() if file.kind.study != "defaults"}
    made["origins"] = ["## Where the rows come from", *origin_table(shown)]
    return {name: "\n".join(lines).strip() for name, lines in made.items()}


def known_rows(found: Mapping[str, FoundFile]) -> Rows:
    """Rows of datasets, representations, predictors and settings that have a name in reports."""

    def rows(name: str) -> list[Row]:
        return list(found[name].rows) if name in found else []

    known: Mapping[str, object] = {
        "dataset": DATASETS,
        "representation": TITLES,
        "predictor": TITLES,
        "model": TITLES,
        "setting": SETTINGS,
        "variant": SIMULATION_VARIANTS,
        "table": SENSITIVITY,
        "uncertainty": (*SCORES, None),
    }

    def named(name: str) -> list[Row]:
        return [
            row
            for row in rows(name)
            if all(row[column] in known[column] for column in known if column in row)  # type: ignore[operator]
        ]

    return Rows(
        named("simulation.json"),
        named("downstream.json"),
        named("representations.json"),
        named("uncertainty.json"),
        named("sensitivity.json"),
        named("low_labels.json"),
        named("tries.json"),
    )


def _headline(rows: Rows) -> list[str]:
    return headline_tables(rows.simulation, rows.downstream, rows.uncertainty)


def _goals(rows: Rows) -> list[str]:
    """A line per goal, a column per setting."""
    by_setting: dict[str, list[Finding]] = {
        setting: [
            *downstream_findings(rows.downstream, setting, rows.trainings),
            *uncertainty_findings(rows.uncertainty, setting),
        ]
        for setting in SETTINGS
    }
    there = {setting: found for setting, found in by_setting.items() if found}
    lines = [
        "## Goals",
        "",
        f"{MARKS[True]} holds, {MARKS[False]} does not, {MARKS[None]} open: cells that would "
        "decide it are missing.",
    ]
    if not there:
        return [*lines, "", "No rows of `reproduce downstream` and `reproduce uncertainty` yet."]
    lines += ["", *header(["", *(f"setting {setting}" for setting in there)])]
    for claim in dict.fromkeys(f.claim for found in there.values() for f in found):
        cells = []
        for found in there.values():
            mine = next((f for f in found if f.claim == claim), None)
            cells.append(f"{MARKS[mine.holds]} {mine.evidence}" if mine else MARKS[None])
        lines.append(line([claim, *cells]))
    return lines


def _simulation(rows: Rows) -> list[str]:
    if not rows.simulation:
        return _not_run("Simulation study (Section 4.1, Table 1)", "simulation")
    return deeper(simulation_table(rows.simulation).splitlines())


def _accuracy(rows: Rows) -> list[str]:
    title = "Var-T-JEPA by coverage (Section 4.2, Appendix B.1)"
    if not rows.downstream:
        return _not_run(title, "downstream")
    lines = [f"## {title}", "", f"Accuracy. {LEGEND}"]
    for setting in begun(rows.downstream):
        mine = _of(rows.downstream, setting)
        lines += ["", f"### Setting: {setting}", ""]
        lines += metric_table(mine, "accuracy", setting, ["var_t_jepa"])
    return lines


def _representations(rows: Rows) -> list[str]:
    title = "Representations compared"
    if not rows.downstream:
        return _not_run(title, "downstream")
    first = first_embeddings(rows.downstream)
    lines = [f"## {title}", "", "Accuracy on all test rows; cells as above.", ""]
    return lines + representation_table(first) + deeper(against_raw(first))


def _f1(rows: Rows) -> list[str]:
    title = "F1"
    if not rows.downstream:
        return _not_run(title, "downstream")
    lines = [
        f"## {title}",
        "",
        'Ours is *weighted* F1 and stands beside what the paper calls "macro F1": its cells of '
        "constant predictions fit only the weighted one.",
    ]
    for setting in begun(rows.downstream):
        mine = _of(rows.downstream, setting)
        lines += ["", f"### Setting: {setting}", ""]
        lines += metric_table(mine, "f1_weighted", setting, PAPER_REPRESENTATIONS)
    return lines


def _uncertainty(rows: Rows) -> list[str]:
    title = "Uncertainty (Appendix B.3)"
    if not rows.uncertainty:
        return _not_run(title, "uncertainty")
    return [f"## {title}", *deeper(uncertainty_tables(rows.uncertainty))]


def _seeds(rows: Rows) -> list[str]:
    found = embedding_table(rows.downstream)
    return found or [
        "## Pre-training seeds",
        "",
        "No dataset has been embedded from several seeds.",
    ]


def _sensitivity(rows: Rows) -> list[str]:
    title = "Sensitivity on Adult (Appendix B.2)"
    if not rows.sensitivity:
        return _not_run(title, "sensitivity")
    return [f"## {title}", *deeper(sensitivity_tables(rows.sensitivity))]


def _labels(rows: Rows) -> list[str]:
    title = "Few labels (not in the paper)"
    if not rows.labels:
        return _not_run(title, "labels")
    return [f"## {title}", *deeper(labels_tables(rows.labels))]


def _tries(rows: Rows) -> list[str]:
    if not rows.tries:
        return _not_run(TRIES_TITLE, "tries")
    return [f"## {TRIES_TITLE}", "", *tries_table(rows.tries)]


def _cost(rows: Rows) -> list[str]:
    return training_table(rows.trainings) or _not_run("Trainings", "downstream")


def _of(rows: Sequence[Row], setting: str) -> list[Row]:
    return [row for row in first_embeddings(rows) if row["setting"] == setting]


def _not_run(title: str, study: str) -> list[str]:
    return [f"## {title}", "", f"Not run yet: `varjepa reproduce {study} --out DIR`."]


def deeper(lines: Sequence[str]) -> list[str]:
    """Headings one level down.

    Examples:
        >>> deeper(["# A", "a # b"])
        ['## A', 'a # b']
    """
    return [f"#{text}" if text.startswith("#") else text for text in lines]


BLOCKS: Mapping[str, Callable[[Rows], list[str]]] = {
    "headline": _headline,
    "goals": _goals,
    "simulation": _simulation,
    "accuracy": _accuracy,
    "representations": _representations,
    "f1": _f1,
    "uncertainty": _uncertainty,
    "seeds": _seeds,
    "sensitivity": _sensitivity,
    "labels": _labels,
    "tries": _tries,
    "cost": _cost,
}
