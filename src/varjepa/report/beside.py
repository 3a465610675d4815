"""A cell of a Markdown table: ours above, the paper's below, and how far apart they are."""

from __future__ import annotations

from collections.abc import Sequence

from varjepa.experiments.findings import Finding
from varjepa.experiments.summaries import Summary, deviations, is_reached
from varjepa.experiments.tabular_paper import Quoted

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
