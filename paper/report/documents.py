"""Generated blocks of Markdown documents.

Markdown files whose numbers come from result files, with words of their own in between.

    <!-- generated: headline -->
    whatever stands here is replaced
    <!-- end -->

Everything outside such blocks is left as it is. What each block holds is in ``blocks``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paper.datasets.catalogue import DATASETS
from paper.findings import downstream_findings, uncertainty_findings
from paper.protocol import SCORES
from paper.published import PAPER_REPRESENTATIONS
from paper.report.cells import LEGEND, MARKS, TITLES, header, line
from paper.report.downstream import (
    against_raw,
    begun,
    embedding_table,
    first_embeddings,
    headline_tables,
    metric_table,
    origin_table,
    representation_table,
    sensitivity_tables,
    training_table,
)
from paper.report.files import FoundFile, read_results
from paper.report.labels import labels_tables
from paper.report.simulation import simulation_table
from paper.report.tries import TRIES_TITLE, tries_table
from paper.report.uncertainty import uncertainty_tables
from paper.results import Finding, Row
from paper.settings import SENSITIVITY, SETTINGS
from paper.simulation import SIMULATION_VARIANTS
from varjepa.errors import InputError
from varjepa.report.page import write_report

BLOCK = re.compile(r"^<!-- generated: ([\w-]+) -->\n(.*?)^<!-- end -->$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- (?:generated:|end)")


def write_document(folder: Path, path: Path) -> None:
    """Fill the blocks of a file from a results folder; one that is not there gets all of them."""
    blocks = build_blocks(read_results(folder))
    text = fill(read_document(path), blocks, path.name) if path.exists() else fresh(blocks)
    write_report(text, path)


def read_document(path: Path) -> str:
    """The text of a Markdown file."""
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{path} is not a Markdown file") from error


def fill(text: str, blocks: Mapping[str, str], name: str) -> str:
    r"""The text with every block replaced; refused where the marks do not fit.

    Examples:
        >>> text = "Mine.\n<!-- generated: a -->\nold\n<!-- end -->\n"
        >>> print(fill(text, {"a": "new"}, "x.md"), end="")
        Mine.
        <!-- generated: a -->
        new
        <!-- end -->
    """
    found = list(BLOCK.finditer(text))
    if not found:
        raise InputError(
            f"{name} has no block to fill: lines <!-- generated: NAME --> and <!-- end -->, NAME "
            f"one of {', '.join(blocks)}"
        )
    if len(MARK.findall(text)) != 2 * len(found):
        raise InputError(f"{name} has a generated block that does not begin or end")
    for block in found:
        if block[1] not in blocks:
            raise InputError(
                f"{name} asks for the block {block[1]!r}; known are {', '.join(blocks)}"
            )
    return BLOCK.sub(lambda block: _block(block[1], blocks[block[1]]), text)


def fresh(blocks: Mapping[str, str]) -> str:
    """A document of all blocks and nothing else."""
    parts = [f"# {TITLE}", *(_block(name, body) for name, body in blocks.items())]
    return "\n\n".join(parts) + "\n"


def _block(name: str, body: str) -> str:
    return f"<!-- generated: {name} -->\n{body}\n<!-- end -->"


# --- The generated parts of documents, by name: what the Markdown reports say, from one folder.

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
    return [f"## {title}", "", f"Not run yet: `python -m paper {study} --out DIR`."]


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
