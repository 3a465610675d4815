"""Ours compared with the paper's: means over seeds, cells of tables, findings, report blocks."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paper.published import Quoted
from paper.store import Row
from varjepa.evaluate.run import REPRESENTATIONS
from varjepa.report.tables import Cell, Mark, Table

TITLES = {
    "mlp": "MLP",
    "dcn_v2": "DCNv2",
    "resnet": "ResNet",
    "autoint": "AutoInt",
    "ft_transformer": "FT-Transformer",
    "xgboost": "XGBoost",
    "linear_probe": "linear probe",
    "logistic": "logistic regression",
    **REPRESENTATIONS,
}
"""predictors and representations as a reader sees them"""

MISSING = "missing"

LEGEND = (
    "Each cell: ours, below it *the paper's*; mean ± standard deviation over seeds. In brackets "
    "the difference in standard deviations, which count the seeds of both and that the two test "
    "splits differ (binomial). ✓: at or above the paper's mean minus the larger of its standard "
    "deviation and two binomial standard errors of the rows kept."
)

FAR = 2.0
"""standard deviations from which a difference counts"""
PRINTED = 0.0005
"""half a unit of the last digit that the paper prints"""

Groups = Mapping[tuple[Any, ...], list[Row]]


# --- means over the seeds of a cell, and how far they are from the paper's


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the seeds of one cell."""

    mean: float
    std: float | None = None
    """sample standard deviation; None for a single seed"""
    rows: int = 1
    """test rows that the mean is about"""


def summarise(rows: Sequence[Row], metric: str) -> Summary:
    values = [row[metric] for row in rows]
    kept = max(1, round(rows[0]["coverage"] * rows[0]["test_rows"]))
    return Summary(statistics.fmean(values), deviation(values), kept)


def deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean; None for a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def group(rows: Sequence[Row], *names: str) -> Groups:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def binomial(mean: float, rows: int) -> float:
    """Standard error of a share of so many rows, which another split alone would bring."""
    return math.sqrt(max(mean * (1 - mean), 0.0) / rows)


def deviations(ours: Summary, paper: Quoted) -> float:
    """Our mean minus the paper's in standard deviations of that difference.

    Three things make it vary: the seeds here, the seeds there, and two different test splits.
    """
    mean, std = paper
    split = binomial(ours.mean, ours.rows)
    variance = (ours.std or 0.0) ** 2 + (std or 0.0) ** 2 + 2 * split**2
    return (ours.mean - mean) / math.sqrt(variance) if variance else 0.0


def is_reached(ours: Summary, paper: Quoted) -> bool:
    """At or above the paper's mean minus the larger of its deviation and two binomial errors.

    The errors are those of the paper's share on the rows that ours is about: the bar does not
    depend on what was measured.
    """
    mean, std = paper
    slack = max(std or 0.0, 2 * binomial(mean, ours.rows))
    return ours.mean >= mean - slack - 1e-12  # .852 − .002 is not quite .850 in binary


# --- texts and cells


def short(value: float | None, digits: int = 3) -> str:
    """Without the zero in front; a dash where there is none."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def plus_minus(mean: float, std: float | None) -> str:
    """.849 ± .0014, as the paper writes its numbers."""
    return short(mean) if std is None else f"{short(mean)} ± {short(std, 4)}"


def mean_text(values: Sequence[float]) -> str:
    """Mean ± standard deviation with four digits; a dash where there is nothing."""
    if not values:
        return "–"
    std = deviation(values)
    mean = short(statistics.fmean(values), 4)
    return mean if std is None else f"{mean} ± {short(std, 4)}"


def signed(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")  # + 0: no minus zero


def in_deviations(gap: float) -> str:
    """+1.2 σ, with a real minus sign."""
    return f"{signed(gap, 1) if abs(gap) < 1000 else signed(gap, 0)} σ"


def mark_of(gap: float) -> Mark:
    """Of a difference in standard deviations that is good where positive."""
    return "better" if gap >= FAR else "worse" if gap <= -FAR else "near"


def accuracy_cell(ours: Summary | None, paper: Quoted | None) -> Cell:
    """Accuracy or F1; ✓ where the paper is reached within its slack."""
    if ours is None:
        return Cell() if paper is None else Cell("", plus_minus(*paper), "", "missing")
    text = plus_minus(ours.mean, ours.std)
    if paper is None:
        return Cell(text)
    gap = deviations(ours, paper)
    tick = " ✓" if is_reached(ours, paper) else ""
    return Cell(text + tick, plus_minus(*paper), in_deviations(gap), mark_of(gap))


def metric_cell(values: Sequence[float], paper: float | None, lower_is_better: bool) -> Cell:
    """Runs and a single number of the paper; where runs do not differ, the plain difference."""
    text = mean_text(values)
    if paper is None:
        return Cell(text)
    mean, std = statistics.fmean(values), deviation(values)
    better = -1 if lower_is_better else 1
    if std is not None and std > PRINTED / 5:
        gap = (mean - paper) / std
        return Cell(text, short(paper), in_deviations(gap), mark_of(better * gap))
    gap = mean - paper
    mark: Mark = "near" if abs(gap) <= PRINTED else "better" if better * gap > 0 else "worse"
    return Cell(text, short(paper), signed(gap, 3), mark)


# --- a claim, and whether result rows show it; what is missing is neither for nor against


@dataclass(frozen=True, slots=True)
class Finding:
    claim: str
    holds: bool | None
    """None: open, because cells that would decide it are missing"""
    evidence: str

    @property
    def sign(self) -> str:
        return {True: "✓", False: "✗", None: "○"}[self.holds]


def at_least(count: int, goal: int, missing: int) -> bool | None:
    """Whether enough cells are for a claim; open as long as missing ones could decide.

    Examples:
        >>> at_least(160, 160, 8), at_least(150, 160, 9), at_least(150, 160, 10)
        (True, False, None)
    """
    if count >= goal:
        return True
    return False if count + missing < goal else None


def at_most(amount: float, goal: float, missing: int) -> bool | None:
    """The same for what may only grow with the missing ones.

    Examples:
        >>> at_most(5, 3, 1), at_most(2, 3, 1), at_most(3, 3, 0)
        (False, None, True)
    """
    if amount > goal:
        return False
    return None if missing else True


def counted(names: Iterable[str]) -> str:
    """How often each name occurs, in their order.

    Examples:
        >>> counted(["sim", "adult", "sim"])
        'sim 2, adult 1'
    """
    return ", ".join(f"{name} {count}" for name, count in Counter(names).items())


def with_missing(evidence: str, missing: int) -> str:
    return f"{evidence}; {missing} missing" if missing else evidence


# --- a part of the report; a page and a Markdown file show the same parts


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, drawn when it is needed."""

    file: str
    """where a study writes it"""
    title: str
    draw: Callable[[Path], None]
    """writes an SVG file"""
    label: str
    """what it shows, in words"""
    note: str = ""
    has_formulas: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """Findings, figures and tables under one heading."""

    name: str
    """in a document: ``<!-- generated: NAME -->``"""
    study: str
    """as ``python -m paper`` calls it"""
    title: str
    about: str = ""
    findings: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    """by setting; "" where there are none"""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    summary: str = ""
    """one line for the terminal"""
    shows_gaps: bool = True
    """in Markdown; a page always does"""
    is_run: bool = True
