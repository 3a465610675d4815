"""Run an evaluation.

What an evaluation found, and its form as JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from varjepa.environment import describe_environment
from varjepa.errors import InputError
from varjepa.estimators.parameters import pick_device
from varjepa.estimators.selective import coverage_threshold
from varjepa.evaluate.cells import (
    Cell,
    Floats,
    Kept,
    Representations,
    best_on_validation,
    fit_cell,
    losses,
    represent,
    stamp_of,
)
from varjepa.evaluate.scores import (
    Areas,
    Figure,
    LowLabelPoint,
    areas,
    best_score,
    curves,
    figures,
    low_label_curve,
    paired_difference,
)
from varjepa.evaluate.settings import (
    NEED_VAR_T_JEPA,
    REPRESENTATIONS,
    EvaluateSettings,
    Target,
    check_settings,
    check_split,
    choose_fit_rows,
    choose_rows,
    read_target,
)
from varjepa.evaluate.splits import Split, split_rows
from varjepa.files import make_folder, only_writer, write_json
from varjepa.metrics.selective import COVERAGES
from varjepa.tables import infer_schema
from varjepa.tables.messages import quoted


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


# --- The paper's comparison on one table: represent, predict, keep, write down.
#
# varjepa evaluate table.parquet --target y --out evaluation
#
# Rows are split 70/10/20. Representations are fitted without labels on the training rows, or
# with
# ``--transductive`` on all rows (then also on those whose target is missing). Choices (early
# stopping, the classifier that is shown, combined scores, thresholds) use validation rows.

Say = Callable[[str], None]


def run_evaluation(
    table: pa.Table,
    name: str,
    folder: Path,
    settings: EvaluateSettings,
    say: Say = lambda line: None,
    verbose: bool = False,
) -> Evaluation:
    """Compare, or go on comparing, and write ``evaluate.json``; the page is another's job."""
    start = time.perf_counter()
    settings = check_settings(settings)
    table = choose_rows(table, settings)
    target = read_target(table, settings.target, settings.task)
    if settings.labels_pick_checkpoint and target.task == "regression":
        raise InputError("--labels-pick-checkpoint needs classes, and the target holds numbers")
    features = table.drop_columns([settings.target])
    if not features.num_columns:
        raise InputError(f"the table has no column besides --target {quoted(settings.target)}")
    infer_schema(features, dict(settings.kinds))  # refuses columns that cannot be encoded
    split = split_rows(len(target.values), settings.seed)
    check_split(target, split)
    rows = choose_fit_rows(features, target, split, settings)
    say(
        f"{name}: {len(target.values):,} rows, {features.num_columns} columns, target "
        f"{settings.target}: {target.describe()}; {len(settings.representations)} representations "
        f"× {len(settings.predictors)} predictors × {settings.runs} runs"
    )
    if settings.epochs is None and {"t_jepa", *NEED_VAR_T_JEPA} & {*settings.representations}:
        say("fitting T-JEPA and Var-T-JEPA takes longest; fewer --epochs or --rows make it shorter")
    make_folder(folder)
    with only_writer(folder):
        kept = Kept(folder / "kept", stamp_of(table, settings))
        found = represent(rows, settings, kept, verbose)
        for model, record in found.records.items():
            say(f"{model}: {record['epochs']} epochs in {record['seconds']:.0f} s")
        cells = []
        for representation, inputs in found.inputs.items():
            for predictor in settings.predictors:
                cell = fit_cell(representation, predictor, inputs, target, split, settings, kept)
                say(f"{REPRESENTATIONS[representation]}, {predictor}: {cell.seconds:.0f} s")
                cells.append(cell)
        evaluation = judge(name, settings, target, features.num_columns, split, found, cells)
        seconds = time.perf_counter() - start
        evaluation = replace(evaluation, seconds=seconds)
        write_json(folder / "evaluate.json", as_json(evaluation))
    return evaluation


def judge(
    name: str,
    settings: EvaluateSettings,
    target: Target,
    columns: int,
    split: Split,
    found: Representations,
    cells: list[Cell],
) -> Evaluation:
    """All figures of finished cells; nothing is chosen by a test row's label."""
    truth, latent = target.values, found.scores
    test = truth[split.test]
    raw = {cell.predictor: cell for cell in cells if cell.representation == "raw"}
    # the representation the paper is about, where it is among those compared
    among = next(
        (name for name in NEED_VAR_T_JEPA if name in settings.representations),
        settings.representations[0],
    )
    candidates = [cell for cell in cells if cell.representation == among]
    shown = best_on_validation(candidates, truth[split.validation])
    return Evaluation(
        name=name,
        settings=settings,
        target=target,
        columns=columns,
        split=split,
        cells=cells,
        figures=[row for cell in cells for row in figures(cell, latent, truth, split)],
        differences={
            (cell.representation, cell.predictor): paired_difference(
                cell, raw[cell.predictor], test
            )
            for cell in cells
            if cell.representation != "raw" and cell.predictor in raw
        },
        records=found.records,
        shown=shown,
        shown_score=best_score(shown, latent, truth, split),
        areas=areas(shown, latent, truth, split),
        curves=curves(shown, latent, truth, split),
        thresholds={kind: thresholds(score[split.validation]) for kind, score in latent.items()},
        low_labels=low_label_curve(found.inputs, target, split, settings.seed),
        constant_guess=constant_guess(target, split),
        seconds=0.0,
        environment=describe_environment(str(pick_device(settings.device))),
    )


def thresholds(uncertainty: Floats) -> dict[str, float | None]:
    """By coverage, the largest uncertainty to answer; None where all rows have to be answered."""
    found = {c: coverage_threshold(uncertainty, c).value for c in COVERAGES if c < 1}
    return {f"{c:.0%}": v if np.isfinite(v) else None for c, v in found.items()}


def constant_guess(target: Target, split: Split) -> float:
    """What one gets without looking at the row."""
    train, test = target.values[split.train], target.values[split.test]
    if target.task == "classification":
        return float(np.mean(test == np.bincount(train).argmax()))
    return float(np.sqrt(np.mean((test - train.mean()) ** 2)))
