"""A number beside the paper's, as a cell of a table.

Names of predictors and representations as a reader sees them.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from paper.published import Quoted
from paper.results import Finding, Summary, deviations, is_reached
from paper.simulation_findings import Summary as SimulationSummary

TITLES = {
    "mlp": "MLP",
    "dcn_v2": "DCNv2",
    "resnet": "ResNet",
    "autoint": "AutoInt",
    "ft_transformer": "FT-Transformer",
    "xgboost": "XGBoost",
    "linear_probe": "linear probe",
    "logistic": "logistic regression",
    "raw": "raw",
    "pca": "PCA of raw",
    "t_jepa": "T-JEPA",
    "var_t_jepa": "Var-T-JEPA",
    "raw+var_t_jepa": "raw + Var-T-JEPA",
}


# --- A cell of a Markdown table: ours above, the paper's below, and how far apart they are.

MISSING = "missing"

LEGEND = (
    "Each cell: ours, below it *the paper's*; mean ± standard deviation over seeds. In brackets "
    "the difference in standard deviations, which count the seeds of both and that the two test "
    "splits differ (binomial). ✓: at or above the paper's mean minus the larger of its standard "
    "deviation and two binomial standard errors of the rows kept."
)

MARKS = {True: "✓", False: "✗", None: "○"}
"""of a finding that holds, does not hold, or is open because cells are missing"""


def beside(ours: Summary | None, paper: Quoted | None) -> str:
    """Ours beside the paper's; either may not be there."""
    below = "" if paper is None else f"<br>*{plus_minus(*paper)}*"
    if ours is None:
        return MISSING + below if paper is not None else ""
    above = plus_minus(ours.mean, ours.std)
    if paper is not None:
        mark = " ✓" if is_reached(ours, paper) else ""
        above += f" ({deviations(ours, paper):+.1f}){mark}"
    return above + below


def plus_minus(mean: float, std: float | None) -> str:
    """.849 ± .0014, as the paper writes its numbers."""
    return short(mean) if std is None else f"{short(mean)} ± {short(std, 4)}"


def short(value: float | None, digits: int = 3) -> str:
    """Without the zero in front; a dash where there is none."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def header(titles: Sequence[str]) -> list[str]:
    """The first two lines of a table."""
    return [line(titles), "| --- " * len(titles) + "|"]


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """A list; open ones are marked as such."""
    return [f"- {MARKS[f.holds]} {f.claim}: {f.evidence}" for f in findings]


# --- Cells of the study page: ours, the paper's, how far apart they are and what that means.
#
# A verdict is written as a sign as well as a colour:
#
# ``better``, ``worse``  more than two standard deviations apart, in the sense of the metric
# ``near``               within two
# ``differs``            apart, where neither side is better: a diagnostic that should agree
# ``missing``            the paper has it, we do not yet
# ``plain``              ours alone

Verdict = Literal["better", "near", "worse", "differs", "missing", "plain"]

FAR = 2.0
"""standard deviations from which a difference counts"""
PRINTED = 0.0005
"""half a unit of the last digit that the paper prints"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of a table; empty texts are left out."""

    ours: str = ""
    paper: str = ""
    gap: str = ""
    """ours minus the paper's: in standard deviations (σ), or plain"""
    verdict: Verdict = "plain"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table."""

    title: str
    cells: Sequence[Cell]


@dataclass(frozen=True, slots=True)
class Group:
    """Lines that belong together."""

    title: str
    """above them; empty: none"""
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class CellTable:
    """A table of the page."""

    title: str
    corner: str
    """what the first column names"""
    columns: Sequence[str]
    groups: Sequence[Group]
    note: str = ""
    under: Sequence[str] = ()
    """a remark below each column's name, or none at all"""
    is_open: bool = True
    """shown at once, or only its title until somebody asks"""

    def __post_init__(self) -> None:
        for group in self.groups:
            for line in group.lines:
                if len(line.cells) != len(self.columns):
                    raise ValueError(f"{line.title}: {len(line.cells)} cells")

    @property
    def counts(self) -> Counter[Verdict]:
        """How many cells have each verdict."""
        return Counter(c.verdict for g in self.groups for line in g.lines for c in line.cells)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the page."""

    title: str
    svg: str
    """an element made by ``svg``"""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One study."""

    study: str
    """as ``python -m paper`` calls it"""
    title: str
    about: str = ""
    """what is compared, and how to read it"""
    remarks: Sequence[str] = ()
    """what a reader must know before believing the numbers"""
    findings: Sequence[Finding] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[CellTable] = ()
    """none: not run yet"""

    @property
    def counts(self) -> Counter[Verdict]:
        return sum((table.counts for table in self.tables), Counter())


def named_findings(by_setting: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """Findings of all settings; each says whose it is where there are several."""
    some = {setting: found for setting, found in by_setting.items() if found}
    return [
        replace(one, claim=f"setting {setting}: {one.claim}") if len(some) > 1 else one
        for setting, found in some.items()
        for one in found
    ]


def plain_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
) -> CellTable:
    """A table that the paper does not have; the first column names the lines."""
    lines = [Line(row[0], [Cell(text) for text in row[1:]]) for row in rows]
    return CellTable(title, columns[0], columns[1:], [Group("", lines)], note, is_open=False)


def accuracy_cell(ours: Summary | None, paper: Quoted | None) -> Cell:
    """Accuracy or F1; ✓ where the paper is reached within its slack."""
    if ours is None:
        return Cell() if paper is None else Cell("", plus_minus(*paper), "", "missing")
    if paper is None:
        return Cell(plus_minus(ours.mean, ours.std))
    gap = deviations(ours, paper)
    mark = " ✓" if is_reached(ours, paper) else ""
    return Cell(
        plus_minus(ours.mean, ours.std) + mark, plus_minus(*paper), in_deviations(gap), judged(gap)
    )


def diagnostic_cell(ours: SimulationSummary, paper: Quoted, is_same: bool) -> Cell:
    """A number that should agree with the paper's by a rule of its own."""
    own = 0.0 if math.isnan(ours.std) else ours.std
    spread = math.hypot(own, paper[1] or 0.0)
    gap = in_deviations((ours.mean - paper[0]) / spread) if spread else ""
    return Cell(
        spread_text(ours.mean, ours.std) + (" ✓" if is_same else ""),
        spread_text(paper[0], paper[1]),
        gap,
        "near" if is_same else "differs",
    )


def metric_cell(values: Sequence[float], paper: float | None, lower_is_better: bool) -> Cell:
    """Runs beside a single number of the paper; where runs do not differ, the plain difference."""
    mean = statistics.fmean(values)
    std = statistics.stdev(values) if len(values) > 1 else None
    text = short(mean, 4) if std is None else f"{short(mean, 4)} ± {short(std, 4)}"
    if paper is None:
        return Cell(text)
    better = -1 if lower_is_better else 1
    if std is not None and std > PRINTED / 5:
        gap = (mean - paper) / std
        return Cell(text, short(paper), in_deviations(gap), judged(better * gap))
    gap = mean - paper
    verdict: Verdict = "near" if abs(gap) <= PRINTED else "better" if better * gap > 0 else "worse"
    return Cell(text, short(paper), signed(gap, 3), verdict)


def judged(gap: float) -> Verdict:
    """Of a difference in standard deviations that is good where positive."""
    return "better" if gap >= FAR else "worse" if gap <= -FAR else "near"


def in_deviations(gap: float) -> str:
    """+1.2 σ, with a real minus sign."""
    return f"{signed(gap, 1) if abs(gap) < 1000 else signed(gap, 0)} σ"


def signed(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")  # + 0: no minus zero


def spread_text(mean: float, std: float | None) -> str:
    """A diagnostic of any magnitude; no deviation where there is a single run."""

    def one(value: float) -> str:
        far = 0 < abs(value) < 0.001 or abs(value) >= 1e5
        return f"{value:.1e}" if far else f"{value:.3f}"

    return one(mean) if std is None or math.isnan(std) else f"{one(mean)} ± {one(std)}"


# --- A section of a Markdown report as a table of the study page, so that its words are written
# once.
#
# Only for reports whose cells are our own words: a name that holds a bar would shift its
# text_line.


def table_of_markdown(lines: Sequence[str], title: str = "") -> list[CellTable]:
    """The heading, the words below it and the table; nothing where there is no table.

    Examples:
        >>> [found] = table_of_markdown(["## Costs", "In s.", "| a | b |", "|---|", "| x | 1 |"])
        >>> found.title, found.note, found.columns, found.groups[0].lines[0].title
        ('Costs', 'In s.', ['b'], 'x')
    """
    rows = [text_line[2:-2].split(" | ") for text_line in lines if text_line.startswith("|")]
    words = [text_line for text_line in lines if text_line and not text_line.startswith(("|", "#"))]
    for text_line in lines:
        if text_line.startswith("#"):
            title = text_line.lstrip("# ")
    if len(rows) < 3:
        return []
    return [plain_table(title, rows[0], rows[2:], " ".join(words))]
