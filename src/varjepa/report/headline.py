"""The few numbers to take home: means over predictors by dataset, and the uncertainty's."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from varjepa.datasets.catalogue import DATASETS
from varjepa.evaluation.classification import COVERAGES
from varjepa.experiments.downstream_findings import (
    Cells,
    accuracy_cells,
    paper_accuracy,
    reached_cells,
)
from varjepa.experiments.representations import LEARNED, UNLEARNED
from varjepa.experiments.results import Row
from varjepa.experiments.settings import SIMULATION_VARIANTS
from varjepa.experiments.simulation_findings import count_agreeing, findings
from varjepa.experiments.summaries import group
from varjepa.experiments.tabular_paper import PAPER_PREDICTORS, uncertainty_paper_value
from varjepa.experiments.tabular_settings import SETTINGS
from varjepa.experiments.uncertainty_findings import (
    PAPER_DATASETS,
    ambiguity_score,
    best_of,
    metric_mean,
)
from varjepa.experiments.uncertainty_scores import COMBINED, LATENT
from varjepa.report.beside import MISSING, header, line, short
from varjepa.report.words import TITLES

HALF = COVERAGES[-1]

COLUMNS = (("raw", 1.0), ("t_jepa", 1.0), ("var_t_jepa", 1.0), ("var_t_jepa", HALF))


def headline_tables(
    simulation: Sequence[Row], downstream: Sequence[Row], uncertainty: Sequence[Row]
) -> list[str]:
    """What there is, shortest form."""
    lines: list[str] = []
    if simulation:
        there = [v for v in SIMULATION_VARIANTS if any(r["variant"] == v for r in simulation)]
        agreeing, compared = count_agreeing(simulation, there)
        found = findings(simulation)
        lines += [
            f"Section 4.1: {agreeing} of {compared} numbers agree with the paper's, and "
            f"{sum(f.holds is True for f in found)} of {len(found)} findings hold."
        ]
    if downstream:
        lines += ["", *downstream_headline(downstream)]
    if uncertainty:
        lines += ["", *uncertainty_headline(uncertainty)]
    if not downstream or not uncertainty:
        missing = [
            name
            for name, rows in (("downstream", downstream), ("uncertainty", uncertainty))
            if not rows
        ]
        lines += ["", f"Section 4.2: no rows of `reproduce {'` and `reproduce '.join(missing)}`."]
    return lines


def downstream_headline(rows: Sequence[Row]) -> list[str]:
    """Accuracy by dataset, mean over the six predictors."""
    by_setting = {s: accuracy_cells(rows, s) for s in begun(rows)}
    lines = [
        "Section 4.2, accuracy, mean over the six predictors: *the paper's*, "
        + _ours(list(by_setting))
        + f". Last column: of 24 cells (6 predictors, {len(COVERAGES)} coverages) how many reach "
        "the paper's mean minus the larger of its standard deviation and two binomial standard "
        "errors.",
        "",
        *header(["", *(_column(name, coverage) for name, coverage in COLUMNS), "reach the paper"]),
    ]
    for dataset, info in DATASETS.items():
        shown = []
        for name, coverage in COLUMNS:
            paper = fmean(paper_accuracy(dataset, name, p, coverage)[0] for p in PAPER_PREDICTORS)
            ours = [
                _mean(cells, dataset, name, coverage)
                for setting, cells in by_setting.items()
                if setting == "paper" or _has_a_place(cells, name)
            ]
            shown.append(_several(paper, ours))
        counts = [reached_cells(cells, dataset) for cells in by_setting.values()]
        reached = [f"{count} of {there}" if there else MISSING for count, there in counts]
        lines.append(line([info.title, *shown, ", ".join(reached)]))
    return lines


def _has_a_place(cells: Cells, name: str) -> bool:
    """Whether a setting of ours is worth a place: T-JEPA's with a few cells is not, in this form.

    Var-T-JEPA's always is: there what is missing is to be seen.
    """
    if name == "var_t_jepa":
        return any(key[1] == name for key in cells)
    return name in LEARNED and any(_mean(cells, d, name, 1.0) is not None for d in DATASETS)


def uncertainty_headline(rows: Sequence[Row]) -> list[str]:
    """The latent score against the true ambiguity; AURC on one classifier's errors."""
    settings = begun(rows)
    first = [row for row in rows if row["embedding_seed"] == 0]
    groups = {
        s: group([r for r in first if r["setting"] == s], "dataset", "arrangement", "score")
        for s in settings
    }
    titles = [
        "",
        "Spearman",
        "AUROC (u ≥ q75)",
        "of the score",
        "AURC, combined score",
        "with ensemble",
        "best baseline",
    ]
    lines = [
        "Uncertainty of a row against its true ambiguity u: *the paper's*, "
        + _ours(settings)
        + (" with the latent score that agrees best with u on validation rows")
        * ("ours" in settings)
        + ". AURC: all scores on the errors of one classifier; not in the paper.",
        "",
        *header(titles),
    ]
    for dataset in PAPER_DATASETS:
        found = [ambiguity_score(groups[s], dataset, s) for s in settings]
        shown = []
        for metric in ("spearman", "auroc"):
            paper = uncertainty_paper_value(metric, dataset, LATENT)
            ours = [metric_mean(one[1], metric) if one else None for one in found]
            shown.append(_several(paper, ours))
        shown.append(" · ".join(one[0] if one else MISSING for one in found))
        best = [best_of(groups[s], dataset) for s in settings]
        for score in COMBINED:
            runs = [groups[s].get((dataset, "shared", score)) for s in settings]
            shown.append(" · ".join(_number(metric_mean(one, "aurc"), 4) for one in runs))
        shown.append(" · ".join(f"{short(b[1], 4)} ({b[0]})" if b else MISSING for b in best))
        lines.append(line([DATASETS[dataset].title, *shown]))
    return lines


def begun(rows: Sequence[Row]) -> list[str]:
    """Settings that have rows; the paper's always."""
    there = {row["setting"] for row in rows if row.get("representation", "") not in UNLEARNED}
    return [s for s in SETTINGS if s == "paper" or s in there]


def _ours(settings: Sequence[str]) -> str:
    words = {"paper": "ours in the paper's setting", "ours": "ours in our own"}
    return ", ".join(words[setting] for setting in settings)


def _column(name: str, coverage: float) -> str:
    return TITLES[name] if coverage == 1 else "its surest half of the rows"


def _mean(cells: Cells, dataset: str, name: str, coverage: float) -> float | None:
    """Over all six predictors; the mean of fewer could not stand beside the paper's."""
    keys = [(dataset, name, predictor, coverage) for predictor in PAPER_PREDICTORS]
    return fmean(cells[key].mean for key in keys) if all(key in cells for key in keys) else None


def _several(paper: float | None, ours: Sequence[float | None]) -> str:
    return " · ".join([f"*{short(paper)}*", *(_number(value, 3) for value in ours)])


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else short(value, digits)
