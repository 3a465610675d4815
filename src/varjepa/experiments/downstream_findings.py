"""What the downstream rows say: means over seeds beside the paper's, and the claims it makes."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from varjepa.evaluation.classification import COVERAGES
from varjepa.experiments.results import Row
from varjepa.experiments.simulation_findings import Finding
from varjepa.experiments.tabular_paper import PAPER_PREDICTORS, Quoted, downstream_paper_value

REAL_TABLES = ("adult", "covertype", "electricity", "credit_default", "bank_marketing")


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the seeds of one cell."""

    mean: float
    std: float | None
    """sample standard deviation; None for a single seed"""
    rows: int
    """test rows that the mean is about"""

    @property
    def binomial(self) -> float:
        """Standard error of a share of so many rows, which another split alone would bring."""
        return math.sqrt(max(self.mean * (1 - self.mean), 0.0) / self.rows)


def summarise(rows: Sequence[Row], metric: str) -> Summary:
    """Mean and standard deviation of rows that differ in their seeds."""
    values = [row[metric] for row in rows]
    std = statistics.stdev(values) if len(values) > 1 else None
    kept = max(1, round(rows[0]["coverage"] * rows[0]["test_rows"]))
    return Summary(statistics.fmean(values), std, kept)


def group(rows: Sequence[Row], *names: str) -> Mapping[tuple[Any, ...], list[Row]]:
    """Rows by the values of some columns."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return found


def deviations(ours: Summary, paper: Quoted) -> float:
    """Our mean minus the paper's in standard deviations of that difference.

    Three things make it vary: the seeds here, the seeds there, and two different test splits.
    """
    mean, std = paper
    variance = (ours.std or 0.0) ** 2 + (std or 0.0) ** 2 + 2 * ours.binomial**2
    return (ours.mean - mean) / math.sqrt(variance) if variance else 0.0


def is_reached(ours: Summary, paper: Quoted) -> bool:
    """At or above the paper's mean minus the larger of its deviation and two binomial errors."""
    mean, std = paper
    return ours.mean >= mean - max(std or 0.0, 2 * ours.binomial)


def downstream_findings(rows: Sequence[Row], setting: str) -> list[Finding]:
    """The claims of Section 4.2 on the embeddings of one setting, as far as there are cells."""
    mine = [r for r in rows if r["setting"] == setting and r["embedding_seed"] == 0]
    cells = {
        key: summarise(here, "accuracy")
        for key, here in group(mine, "dataset", "representation", "predictor", "coverage").items()
    }
    return [
        found
        for found in (_reached(cells), _rising(cells), _beats_t_jepa(cells))
        if found is not None
    ]


Cells = Mapping[tuple[Any, ...], Summary]


def _reached(cells: Cells) -> Finding | None:
    compared = [
        (ours, paper)
        for (dataset, name, predictor, coverage), ours in cells.items()
        if name == "var_t_jepa"
        and (paper := downstream_paper_value("accuracy", dataset, name, predictor, coverage))
    ]
    if not compared:
        return None
    reached = sum(is_reached(ours, paper) for ours, paper in compared)
    above = sum(ours.mean > paper[0] for ours, paper in compared)
    return Finding(
        "Var-T-JEPA reaches the paper's accuracy in 160 of 168 cells and exceeds it in 120",
        reached >= len(compared) * 160 / 168 and above >= len(compared) * 120 / 168,
        f"reached {reached}, exceeded {above} of the {len(compared)} cells there are",
    )


def _rising(cells: Cells) -> Finding | None:
    datasets = sorted({key[0] for key in cells if key[1] == "var_t_jepa"})
    gains = {}
    for dataset in datasets:
        means = [
            statistics.fmean(values)
            for coverage in (COVERAGES[0], COVERAGES[-1])
            if (
                values := [
                    cell.mean
                    for key, cell in cells.items()
                    if key[0] == dataset
                    and key[1] == "var_t_jepa"
                    and key[2] in PAPER_PREDICTORS
                    and key[3] == coverage
                ]
            )
        ]
        if len(means) == 2:
            gains[dataset] = means[1] - means[0]
    if not gains:
        return None
    return Finding(
        "in every dataset accuracy rises when the most uncertain half is left out",
        all(gain > 0 for gain in gains.values()),
        ", ".join(f"{dataset} {gain:+.3f}" for dataset, gain in gains.items()),
    )


def _beats_t_jepa(cells: Cells) -> Finding | None:
    pairs = [
        (cells[dataset, "var_t_jepa", predictor, 1.0], cells[dataset, "t_jepa", predictor, 1.0])
        for dataset in REAL_TABLES
        for predictor in PAPER_PREDICTORS
        if (dataset, "var_t_jepa", predictor, 1.0) in cells
        and (dataset, "t_jepa", predictor, 1.0) in cells
    ]
    if not pairs:
        return None
    won = sum(ours.mean > other.mean for ours, other in pairs)
    return Finding(
        "Var-T-JEPA beats T-JEPA in at least 26 of the 30 cells of the five real tables",
        won >= len(pairs) * 26 / 30,
        f"{won} of the {len(pairs)} cells there are",
    )
