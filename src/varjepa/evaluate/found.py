"""What an evaluation found, and its form as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from varjepa.datasets.dataset import Split
from varjepa.evaluate.cells import Cell, Floats, losses
from varjepa.evaluate.low_labels import LowLabelPoint
from varjepa.evaluate.scores import Areas, Figure
from varjepa.evaluate.settings import EvaluateSettings
from varjepa.evaluate.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Everything that was found."""

    name: str
    """of the table"""
    settings: EvaluateSettings
    target: Target
    columns: int
    """besides the target"""
    split: Split
    cells: list[Cell]
    figures: list[Figure]
    differences: dict[tuple[str, str], tuple[float, float]]
    """(representation, predictor): gain over raw features and its standard error"""
    records: dict[str, Any]
    """how T-JEPA and Var-T-JEPA were fitted"""
    shown: Cell
    """the cell of the selective tables, chosen on validation rows"""
    shown_score: str | None
    """the latent score chosen on validation rows"""
    areas: list[Areas]
    curves: tuple[Floats, dict[str, Floats]]
    thresholds: dict[str, dict[str, float | None]]
    """latent score: coverage: largest uncertainty to answer, from validation rows; None: any"""
    low_labels: list[LowLabelPoint]
    constant_guess: float
    """accuracy of the most frequent class, or RMSE of the mean, both of the training rows"""
    seconds: float
    environment: dict[str, Any]


def as_json(e: Evaluation) -> dict[str, Any]:
    """The whole evaluation, figures as rows."""
    records = {k: {n: v for n, v in r.items() if n != "history"} for k, r in e.records.items()}
    return {
        "table": e.name,
        "columns": e.columns,
        "target": {
            "name": e.target.name,
            "task": e.target.task,
            "classes": list(e.target.classes),
            "missing": e.target.missing,
        },
        "rows": {p: len(getattr(e.split, p)) for p in ("train", "validation", "test")},
        "settings": {**asdict(e.settings), "kinds": dict(e.settings.kinds)},
        "representations": records,
        "cells": [
            {
                "representation": cell.representation,
                "predictor": cell.predictor,
                "adapter": cell.adapter,
                "validation_loss": float(
                    losses(cell, cell.validation, e.target.values[e.split.validation]).mean()
                ),
                "seconds": round(cell.seconds, 2),
            }
            for cell in e.cells
        ],
        "constant_guess": e.constant_guess,
        "figures": [figure_row(row) for row in e.figures],
        "differences_from_raw": [
            {"representation": r, "predictor": p, "gain": gain, "standard_error": error}
            for (r, p), (gain, error) in e.differences.items()
        ],
        "chosen_on_validation": {
            "representation": e.shown.representation,
            "predictor": e.shown.predictor,
            "score": e.shown_score,
        },
        "areas": [asdict(area) for area in e.areas],
        "thresholds": e.thresholds,
        "low_labels": [asdict(point) for point in e.low_labels],
        "seconds": round(e.seconds, 1),
        "environment": e.environment,
    }


def figure_row(figure: Figure) -> dict[str, Any]:
    """A figure without nesting."""
    row = asdict(figure)
    return row | row.pop("values")
