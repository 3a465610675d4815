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
from paper.downstream import embedding_name
from paper.protocol import Say
from paper.representations import Workbench
from paper.results import Layout, ResultFile, Row, file_name, plain
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
from varjepa.files import make_folder, only_writer
from varjepa.metrics.selective import COVERAGES

FILE = "sensitivity.json"


@dataclass(frozen=True, slots=True)
class SensitivityPlan:
    """Which cells are wanted."""

    columns: Mapping[str, Sequence[str]]
    """of each table"""
    predictors: Sequence[str] = SENSITIVITY_PREDICTORS
    runs: int = 5
    scale: Scale = FULL


ALL_COLUMNS = {table: tuple(columns) for table, columns in SENSITIVITY.items()}


def reproduce_sensitivity(
    folder: Path, plan: SensitivityPlan, device: str = "auto", say: Say = lambda line: None
) -> ResultFile:
    """Compute whatever cell is not in the folder yet, saving after every one."""
    make_folder(folder)
    with only_writer(folder):
        found = open_sensitivity(folder, plan.scale)
        bench = Workbench(folder, SENSITIVITY_DATASET, plan.scale, device, say)
        for table, columns in plan.columns.items():
            for column in columns:
                for predictor in plan.predictors:
                    missing = missing_seeds(found, table, column, predictor, plan.runs)
                    if missing:
                        found.add(run_cell(bench, table, column, predictor, missing))
                        say(f"{table}, {column}: {predictor}")
    return found


def open_sensitivity(folder: Path, scale: Scale) -> ResultFile:
    """``sensitivity.json``, refused where it holds rows of other settings."""

    def settings(row: Row) -> dict[str, Any]:
        return {
            "pretraining": plain(column_spec(row["table"], row["column"], scale)),
            **predictor_settings(row["predictor"], SENSITIVITY_DATASET, scale),
        }

    key = ("table", "column", "predictor", "seed", "coverage")
    values = ("accuracy", "f1_macro", "f1_weighted", "test_rows", "seconds", "environment")
    return ResultFile(folder / FILE, Layout(key, values, settings))


def column_spec(table: str, column: str, scale: Scale) -> Pretraining:
    """The training of one column."""
    changes = SENSITIVITY[table][column]
    return pretraining(SENSITIVITY_DATASET, "var_t_jepa", "paper", scale, changes=changes)


def missing_seeds(
    found: ResultFile, table: str, column: str, predictor: str, runs: int
) -> list[int]:
    """Seeds of a cell that lack a row of some coverage."""
    there = {found.layout.key_of(row) for row in found.rows}
    return [
        seed
        for seed in seeds_of(predictor, runs)
        if any((table, column, predictor, seed, c) not in there for c in COVERAGES)
    ]


def run_cell(
    bench: Workbench, table: str, column: str, predictor: str, seeds: Sequence[int]
) -> list[Row]:
    """Fit the seeds of one cell, first training the column's representation."""
    spec = column_spec(table, column, bench.scale)
    setting = f"{table}-{file_name(column.lower())}" if SENSITIVITY[table][column] else "paper"
    embedded = bench.embedded(embedding_name(bench.dataset, setting, spec), spec)
    scored = score_cell(
        predictor,
        bench.inputs("var_t_jepa", embedded, standardise=False),
        bench.data,
        bench.split,
        seeds,
        embedded.scores[paper_score(bench.dataset)],
        bench.scale,
        bench.device,
    )
    about = {"table": table, "column": column, "predictor": predictor}
    training = {"training_seconds": embedded.training["seconds"]}
    return [{**about, **training, **row} for row in scored]
