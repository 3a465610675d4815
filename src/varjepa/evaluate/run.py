"""The paper's comparison on one table: represent, predict, keep, write down.

    varjepa evaluate table.parquet --target y --out evaluation

Rows are split 70/10/20. Representations are fitted without labels on the training rows, or with
``--transductive`` on all rows (then also on those whose target is missing). Choices (early
stopping, the classifier that is shown, combined scores, thresholds) use validation rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from varjepa.datasets.dataset import Split, split_rows
from varjepa.environment import describe_environment
from varjepa.errors import InputError
from varjepa.estimators.parameters import pick_device
from varjepa.evaluate.cells import Cell, Floats, best_on_validation, fit_cell
from varjepa.evaluate.found import Evaluation, as_json
from varjepa.evaluate.kept import Kept, stamp_of
from varjepa.evaluate.low_labels import low_label_curve
from varjepa.evaluate.representations import Representations, represent
from varjepa.evaluate.rows import check_split, choose_fit_rows, choose_rows
from varjepa.evaluate.scores import areas, best_score, curves, figures, paired_difference
from varjepa.evaluate.settings import (
    NEED_VAR_T_JEPA,
    REPRESENTATIONS,
    EvaluateSettings,
    check_settings,
)
from varjepa.evaluate.target import Target, read_target
from varjepa.evaluation.classification import COVERAGES
from varjepa.files import make_folder, only_writer, write_json
from varjepa.selective.thresholds import coverage_threshold
from varjepa.tables import infer_schema
from varjepa.tables.quoting import quoted

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
