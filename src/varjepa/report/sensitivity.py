"""The two sensitivity tables as Markdown, from ``sensitivity.json``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from varjepa.evaluation.classification import COVERAGES
from varjepa.experiments.downstream_findings import group, summarise
from varjepa.experiments.results import Row
from varjepa.experiments.tabular_paper import sensitivity_paper_value
from varjepa.experiments.tabular_settings import SENSITIVITY, SENSITIVITY_PREDICTORS
from varjepa.files import write_text
from varjepa.report.beside import LEGEND, beside, header, line
from varjepa.report.downstream import TITLES

HEADINGS = {
    "weights": "Weights of the loss",
    "architecture": "Architecture and optimisation",
}


def write_sensitivity_report(folder: Path, rows: Sequence[Row]) -> None:
    """Write ``sensitivity.md``."""
    write_text(folder / "sensitivity.md", sensitivity_report(rows))


def sensitivity_report(rows: Sequence[Row]) -> str:
    """Both tables; what is not computed yet is shown as missing."""
    cells = group(rows, "table", "column", "predictor", "coverage")
    lines = ["# Sensitivity on Adult (Appendix B.2)", "", f"Test accuracy. {LEGEND}"]
    for table, columns in SENSITIVITY.items():
        lines += ["", f"## {HEADINGS[table]}", ""]
        lines += header(["", "left out", *columns])
        changed = [", ".join(f"{k} {v}" for k, v in c.items()) for c in columns.values()]
        lines.append(line(["changed", "", *changed]))
        others = {row["predictor"] for row in rows} - set(SENSITIVITY_PREDICTORS)
        for predictor in (*SENSITIVITY_PREDICTORS, *sorted(others)):
            for coverage in COVERAGES:
                shown = []
                for column in columns:
                    here = cells.get((table, column, predictor, coverage))
                    paper = sensitivity_paper_value(table, column, predictor, coverage)
                    shown.append(beside(summarise(here, "accuracy") if here else None, paper))
                lines.append(line([TITLES[predictor], f"{1 - coverage:.0%}", *shown]))
    return "\n".join(lines) + "\n"
