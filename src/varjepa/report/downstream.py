"""The downstream tables as Markdown, from ``downstream.json`` and ``representations.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from varjepa.datasets.catalogue import DATASETS
from varjepa.evaluation.classification import COVERAGES
from varjepa.experiments.downstream import is_ranked
from varjepa.experiments.downstream_findings import downstream_findings
from varjepa.experiments.representations import LEARNED, REPRESENTATIONS
from varjepa.experiments.results import Row
from varjepa.experiments.summaries import group, summarise
from varjepa.experiments.tabular_paper import (
    PAPER_PREDICTORS,
    PAPER_REPRESENTATIONS,
    downstream_paper_value,
)
from varjepa.experiments.tabular_settings import SETTINGS
from varjepa.files import write_text
from varjepa.report.beside import LEGEND, beside, finding_lines, header, line
from varjepa.report.trainings import embedding_table, training_table
from varjepa.report.words import TITLES

METRICS = {
    "accuracy": "Accuracy",
    "f1_weighted": "F1, weighted (the paper's table calls it macro)",
    "f1_macro": "F1, macro (not in the paper)",
}

Groups = Mapping[tuple[Any, ...], list[Row]]


def write_downstream_report(folder: Path, rows: Sequence[Row], trainings: Sequence[Row]) -> None:
    """Write ``downstream.md``."""
    write_text(folder / "downstream.md", downstream_report(rows, trainings))


def downstream_report(rows: Sequence[Row], trainings: Sequence[Row]) -> str:
    """All tables; a cell of the paper that is not computed yet is shown as missing."""
    first = first_embeddings(rows)
    lines = ["# Downstream predictors (Section 4.2, Appendix B.1)", "", LEGEND]
    for setting in SETTINGS:
        mine = [row for row in first if row["setting"] == setting]
        if setting != "paper" and not mine:
            continue
        lines += ["", f"## Setting: {setting}", ""]
        lines += finding_lines(downstream_findings(rows, setting, trainings))
        for metric, title in METRICS.items():
            lines += ["", f"### {title}", "", *metric_table(mine, metric, setting)]
    lines += against_raw(first) + embedding_table(rows) + training_table(trainings)
    return "\n".join(lines) + "\n"


def first_embeddings(rows: Sequence[Row]) -> list[Row]:
    """Rows of the first pre-training seed, which the tables are about."""
    return [row for row in rows if row["embedding_seed"] == 0]


def wanted_names(rows: Sequence[Row], metric: str, setting: str) -> tuple[str, ...]:
    """Representations whose cells are shown as missing where they are not there.

    All that the paper has; in another setting those that have been begun.
    """
    if metric == "f1_macro":
        return ()
    if setting == "paper":
        return PAPER_REPRESENTATIONS
    begun = {row["representation"] for row in rows} & LEARNED.keys()
    return tuple(name for name in PAPER_REPRESENTATIONS if name in begun)


def metric_table(
    rows: Sequence[Row], metric: str, setting: str, names: Sequence[str] = REPRESENTATIONS
) -> list[str]:
    """A line per predictor, representation and coverage; a column per dataset."""
    cells = group(rows, "dataset", "representation", "predictor", "coverage")
    there = {key[1:] for key in cells}
    wanted = wanted_names(rows, metric, setting)
    lines = header(["", "representation", *(info.short for info in DATASETS.values())])
    for predictor in (p for p in TITLES if p not in REPRESENTATIONS):
        for name in names:
            for coverage in COVERAGES if is_ranked(name) else COVERAGES[:1]:
                of_paper = name in wanted and predictor in PAPER_PREDICTORS
                if of_paper or (name, predictor, coverage) in there:
                    left_out = "" if coverage == 1 else f" ({1 - coverage:.0%} left out)"
                    shown = _cells(cells, metric, name, predictor, coverage)
                    lines.append(line([TITLES[predictor], TITLES[name] + left_out, *shown]))
    return lines


def representation_table(rows: Sequence[Row]) -> list[str]:
    """Accuracy on all rows: every representation and setting that there is, by predictor."""
    full = [row for row in rows if row["coverage"] == 1]
    lines = header(["", "representation", "setting", *(info.short for info in DATASETS.values())])
    for predictor in (p for p in TITLES if p not in REPRESENTATIONS):
        for name in REPRESENTATIONS:
            for setting in SETTINGS:
                mine = [row for row in full if row["setting"] == setting]
                cells = group(mine, "dataset", "representation", "predictor", "coverage")
                wanted = name in wanted_names(mine, "accuracy", setting)
                has_setting = name in LEARNED or setting != "paper"  # of raw columns: the trees
                of_paper = wanted and predictor in PAPER_PREDICTORS
                if of_paper or any(key[1:3] == (name, predictor) for key in cells):
                    about = [TITLES[predictor], TITLES[name], setting if has_setting else ""]
                    lines.append(line([*about, *_cells(cells, "accuracy", name, predictor, 1.0)]))
    return lines


def _cells(cells: Groups, metric: str, name: str, predictor: str, coverage: float) -> list[str]:
    shown = []
    for dataset in DATASETS:
        here = cells.get((dataset, name, predictor, coverage))
        paper = downstream_paper_value(metric, dataset, name, predictor, coverage)
        shown.append(beside(summarise(here, metric) if here else None, paper))
    return shown


def against_raw(rows: Sequence[Row]) -> list[str]:
    """Where embeddings lose to raw columns with the same predictor, said plainly."""
    full = [row for row in rows if row["coverage"] == 1]
    means = {
        key: summarise(here, "accuracy").mean
        for key, here in group(full, "dataset", "predictor", "representation", "setting").items()
    }
    lines = []
    for dataset in DATASETS:
        for setting in SETTINGS:
            for name in ("var_t_jepa", "raw+var_t_jepa"):
                raw = {
                    predictor: mean
                    for which in ("paper", setting)  # raw columns have a setting where trees do
                    for (d, predictor, other, s), mean in means.items()
                    if (d, other, s) == (dataset, "raw", which)
                }
                gains = {
                    predictor: mean - raw[predictor]
                    for (d, predictor, representation, s), mean in means.items()
                    if (d, representation, s) == (dataset, name, setting) and predictor in raw
                }
                if gains:
                    lost = [f"{TITLES[p]} {gain:+.3f}" for p, gain in gains.items() if gain < 0]
                    cells = [dataset, setting, TITLES[name], f"{len(lost)} of {len(gains)}"]
                    lines.append(line([*cells, ", ".join(lost)]))
    if not lines:
        return []
    titles = ["dataset", "setting", "representation", "loses to raw", "by how much"]
    return ["", "## Against raw columns with the same predictor", "", *header(titles), *lines]
