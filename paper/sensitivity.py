"""Sensitivity on Adult: seven settings of the weights, seven of architecture and optimisation.

    python -m paper sensitivity --out DIR

Each column of the paper's two tables is a training of its own (Appendix B.2); the first is the
paper's setting, whose embedding is the downstream table's. A perceptron and a ResNet, five seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paper.cells import predictor_settings, score_cell, seeds_of
from paper.compare import LEGEND, TITLES, Block, Groups, accuracy_cell, group, summarise
from paper.published import sensitivity_paper_value
from paper.representations import Workbench, embedding_name
from paper.settings import (
    FULL,
    SENSITIVITY,
    SENSITIVITY_DATASET,
    SENSITIVITY_PREDICTORS,
    Pretraining,
    Scale,
    paper_score,
    pretraining,
)
from paper.store import Job, Log, ResultStore, Row, no_log, plain, run_jobs
from varjepa.files import study_folder
from varjepa.metrics.selective import COVERAGES
from varjepa.report.tables import Cell, Table

FILE = "sensitivity.json"
KEY = ("table", "column", "predictor", "seed", "coverage")


@dataclass(frozen=True, slots=True)
class SensitivityPlan:
    columns: Mapping[str, Sequence[str]]
    """of each table"""
    predictors: Sequence[str] = SENSITIVITY_PREDICTORS
    runs: int = 5
    scale: Scale = FULL

    def jobs(self) -> list[Job]:
        return [
            Job(
                {"table": table, "column": column, "predictor": predictor},
                seeds_of(predictor, self.runs),
                {"coverage": COVERAGES},
            )
            for table, columns in self.columns.items()
            for column in columns
            for predictor in self.predictors
        ]


ALL_COLUMNS = {table: tuple(columns) for table, columns in SENSITIVITY.items()}


def run_sensitivity(
    folder: Path, plan: SensitivityPlan, device: str = "auto", log: Log = no_log
) -> None:
    """Compute whatever cell is not in the folder yet, saving after every one."""
    with study_folder(folder):
        bench = Workbench(folder, SENSITIVITY_DATASET, plan.scale, device, log)
        run_jobs(
            open_sensitivity(folder, plan.scale),
            plan.jobs(),
            lambda job, seeds: run_cell(bench, seeds=seeds, **job.about),
            log,
            lambda rows: "{table}, {column}: {predictor}".format(**rows[0]),
        )


def open_sensitivity(folder: Path, scale: Scale = FULL) -> ResultStore:
    """``sensitivity.json``, refused where it holds rows of other settings."""

    def settings(row: Row) -> dict[str, Any]:
        return {
            "pretraining": plain(column_spec(row["table"], row["column"], scale)),
            **predictor_settings(row["predictor"], SENSITIVITY_DATASET, scale),
        }

    return ResultStore(folder / FILE, KEY, settings)


def column_spec(table: str, column: str, scale: Scale) -> Pretraining:
    changes = SENSITIVITY[table][column]
    return pretraining(SENSITIVITY_DATASET, "var_t_jepa", "paper", scale, changes=changes)


def run_cell(
    bench: Workbench, table: str, column: str, predictor: str, seeds: Sequence[int]
) -> list[Row]:
    """Fit the seeds of one cell, first training the column's representation."""
    spec = column_spec(table, column, bench.scale)
    setting = f"{table}-{file_name(column.lower())}" if SENSITIVITY[table][column] else "paper"
    embedded = bench.embedded(embedding_name(bench.dataset, setting, spec), spec)
    inputs = bench.inputs("var_t_jepa", embedded, standardise=False)
    uncertainty = embedded.scores[paper_score(bench.dataset)]
    rows = score_cell(bench, predictor, inputs, seeds, uncertainty)
    return [{"training_seconds": embedded.training["seconds"], **row} for row in rows]


def file_name(words: str) -> str:
    """Words as part of a file's name.

    Examples:
        >>> file_name("High KL + low recon.")
        'High-KL---low-recon-'
    """
    return "".join(c if c.isalnum() else "-" for c in words)


# --- tables

HEADINGS = {"weights": "Weights of the loss", "architecture": "Architecture and optimisation"}


def sensitivity_blocks(rows: Sequence[Row]) -> list[Block]:
    """Both tables; what is not computed yet is shown as missing."""
    cells = group(rows, "table", "column", "predictor", "coverage")
    tables = [
        Table(
            HEADINGS[table],
            ["", "left out", *columns],
            [["changed", "", *map(column_changes, columns.values())], *lines(rows, cells, table)],
            labels=2,
        )
        for table, columns in SENSITIVITY.items()
    ]
    return [
        Block(
            "sensitivity",
            "sensitivity",
            "Sensitivity on Adult (Appendix B.2)",
            f"Test accuracy. {LEGEND} {training_cost(rows)}".rstrip(),
            tables=tables if rows else (),
            is_run=bool(rows),
        )
    ]


def lines(rows: Sequence[Row], cells: Groups, table: str) -> list[list[str | Cell]]:
    others = {row["predictor"] for row in rows} - set(SENSITIVITY_PREDICTORS)

    def cell(column: str, predictor: str, coverage: float) -> Cell:
        here = cells.get((table, column, predictor, coverage))
        paper = sensitivity_paper_value(table, column, predictor, coverage)
        return accuracy_cell(summarise(here, "accuracy") if here else None, paper)

    return [
        [
            TITLES[predictor],
            f"{1 - coverage:.0%}",
            *(cell(column, predictor, coverage) for column in SENSITIVITY[table]),
        ]
        for predictor in (*SENSITIVITY_PREDICTORS, *sorted(others))
        for coverage in COVERAGES
    ]


def column_changes(changes: Mapping[str, Any]) -> str:
    """What a column changes in Adult's setting."""
    return ", ".join(f"{k} {v}" for k, v in changes.items()) or "as in the paper"


def training_cost(rows: Sequence[Row]) -> str:
    """What the trainings took; empty where nothing says so."""
    seconds = {
        (row["table"], row["column"]): row["training_seconds"]
        for row in rows
        if isinstance(row.get("training_seconds"), int | float)
    }
    if not seconds:
        return ""
    return f"The {len(seconds)} trainings took {sum(seconds.values()) / 60:.1f} min together."
