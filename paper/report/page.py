"""Everything a results folder holds as one HTML file that loads nothing.

Every table of the paper with its number beside ours and how far apart they are, every figure, what
is still missing, and the command that would compute it.
"""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.report.cells import Section
from paper.report.downstream import (
    COLUMNS,
    DOWNSTREAM_TITLE,
    LABELS_TITLE,
    SENSITIVITY_TITLE,
    downstream_section,
    labels_section,
    origins,
    sensitivity_section,
    tries_section,
    word,
)
from paper.report.files import FoundFile, read_results
from paper.report.simulation import TITLE as SIMULATION_TITLE
from paper.report.simulation import simulation_section
from paper.report.tries import TRIES_TITLE
from paper.report.uncertainty import (
    DEFAULTS_TITLE,
    UNCERTAINTY_TITLE,
    defaults_section,
    uncertainty_section,
)
from varjepa.environment import describe_environment
from varjepa.errors import InputError
from varjepa.report.charts import check_can_draw
from varjepa.report.page import ReportPage, render_template, trusted, write_report

STUDIES = {
    "simulation": SIMULATION_TITLE,
    "downstream": DOWNSTREAM_TITLE,
    "uncertainty": UNCERTAINTY_TITLE,
    "sensitivity": SENSITIVITY_TITLE,
    "labels": LABELS_TITLE,
    "tries": TRIES_TITLE,
    "defaults": DEFAULTS_TITLE,
}


def check_can_report() -> None:
    """Say before hours of work, not after, that a page needs an extra."""
    check_can_draw()
    if importlib.util.find_spec("jinja2") is None:
        raise InputError("a report needs jinja2: pip install 'varjepa[report]'")


def write_study_page(folder: Path, path: Path) -> None:
    """Read and render first, then replace the file in one step."""
    write_report(render_study_page(folder), path)


def render_study_page(folder: Path) -> str:
    """The whole page as HTML; the same files give the same text."""
    found = read_results(folder)
    sections = build_sections(found)
    commands = {
        study: f"python -m paper {study} --out {shlex.quote(str(folder))}" for study in STUDIES
    }
    here = describe_environment()
    page = ReportPage(
        title="varjepa: the paper's experiments, and ours beside them",
        subtitle=f"Results in {folder.resolve().name}. Each cell: ours, below it the paper's, and "
        "the difference.",
        footer={"page made by varjepa": word(here["varjepa"]), "commit": word(here["commit"])},
    )
    return render_template(
        "study_page.html.j2",
        "paper.report",
        page=page,
        sections=sections,
        commands=commands,
        origins=origins(found),
        origin_columns=COLUMNS,
        trusted=trusted,
    )


def build_sections(found: Mapping[str, FoundFile]) -> list[Section]:
    """A section per study; one without tables has not been run."""

    def rows(name: str) -> Sequence[dict[str, Any]]:
        return found[name].rows if name in found else ()

    def remarks(study: str) -> list[str]:
        return [f.remark for f in found.values() if f.kind.study == study and f.remark]

    made = [
        simulation_section(
            rows("simulation.json"), rows("epoch_diagnostics.json"), remarks("simulation")
        ),
        downstream_section(
            rows("downstream.json"), rows("representations.json"), remarks("downstream")
        ),
        uncertainty_section(
            rows("uncertainty.json"), rows("uncertainty_rows.json"), remarks("uncertainty")
        ),
        sensitivity_section(rows("sensitivity.json"), remarks("sensitivity")),
        labels_section(rows("low_labels.json"), remarks("labels")),
        tries_section(rows("tries.json"), remarks("tries")),
        defaults_section(rows("defaults.json"), remarks("defaults")),
    ]
    ran = {file.kind.study for file in found.values()}
    return [
        section if section.study in ran else Section(section.study, section.title)
        for section in made
    ]
