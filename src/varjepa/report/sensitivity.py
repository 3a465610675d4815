"""The two sensitivity tables as Markdown, from ``sensitivity.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from varjepa.evaluation.classification import COVERAGES
from varjepa.experiments.results import Row
from varjepa.experiments.summaries import group, summarise
from varjepa.experiments.tabular_paper import sensitivity_paper_value
from varjepa.experiments.tabular_settings import SENSITIVITY, SENSITIVITY_PREDICTORS
from varjepa.files import write_text
from varjepa.report.beside import LEGEND, beside, header, line
from varjepa.report.words import TITLES

HEADINGS = {
    "weights": "Weights of the loss",
    "architecture": "Architecture and optimisation",
}


def write_sensitivity_report(folder: Path, rows: Sequence[Row]) -> None:
    """Write ``sensitivity.md``."""
    write_text(folder / "sensitivity.md", sensitivity_report(rows))


def sensitivity_report(rows: Sequence[Row]) -> str:
    """Both tables; what is not computed yet is shown as missing."""
    return "\n".join(["# Sensitivity on Adult (Appendix B.2)", *sensitivity_tables(rows)]) + "\n"


def sensitivity_tables(rows: Sequence[Row]) -> list[str]:
    """Both tables with the words above them."""
    cells = group(rows, "table", "column", "predictor", "coverage")
    lines = ["", f"Test accuracy. {LEGEND} {sensitivity_cost(rows)}".rstrip()]
    for table, columns in SENSITIVITY.items():
        lines += ["", f"## {HEADINGS[table]}", ""]
        lines += header(["", "left out", *columns])
        lines.append(line(["changed", "", *map(column_changes, columns.values())]))
        others = {row["predictor"] for row in rows} - set(SENSITIVITY_PREDICTORS)
        for predictor in (*SENSITIVITY_PREDICTORS, *sorted(others)):
            for coverage in COVERAGES:
                shown = []
                for column in columns:
                    here = cells.get((table, column, predictor, coverage))
                    paper = sensitivity_paper_value(table, column, predictor, coverage)
                    shown.append(beside(summarise(here, "accuracy") if here else None, paper))
                lines.append(line([TITLES[predictor], f"{1 - coverage:.0%}", *shown]))
    return lines


def column_changes(changes: Mapping[str, Any]) -> str:
    """What a column changes in Adult's setting."""
    return ", ".join(f"{k} {v}" for k, v in changes.items()) or "as in the paper"


def sensitivity_cost(rows: Sequence[Row]) -> str:
    """What the trainings took; empty where nothing says so."""
    seconds = {
        (row["table"], row["column"]): row["training_seconds"]
        for row in rows
        if isinstance(row.get("training_seconds"), int | float)
    }
    if not seconds:
        return ""
    return f"The {len(seconds)} trainings took {sum(seconds.values()) / 60:.1f} min together."
