"""Raw features compared with embeddings on one table: represent, predict, score.

    varjepa evaluate table.parquet --target y --out evaluation

Rows are split 70/10/20. Representations are fitted without labels on the training rows, or with
``--transductive`` on all rows (also on those whose target is missing). Choices (penalties, the
predictor that is shown, combined scores, thresholds) use validation rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from varjepa.environment import describe_environment, pick_device
from varjepa.errors import InputError
from varjepa.evaluate.parts import FinishedParts
from varjepa.evaluate.predictors import PREDICTORS, fit_predictor
from varjepa.evaluate.representations import Blocks, represent
from varjepa.evaluate.scores import (
    Cell,
    Floats,
    best_on_validation,
    best_score,
    constant_guess,
    low_label_curve,
    paired_difference,
    risk_curves,
    score_cell,
    thresholds,
)
from varjepa.evaluate.settings import (
    NEED_VAR_T_JEPA,
    REPRESENTATIONS,
    EvaluateSettings,
    check_settings,
)
from varjepa.evaluate.splits import Split, split_rows
from varjepa.evaluate.target import Target, check_split, hide_test_labels, read_target
from varjepa.files import write_json
from varjepa.report.store import Job, Row, run_jobs, study_folder
from varjepa.tables import infer_schema
from varjepa.tables.messages import quoted

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """All results."""

    settings: EvaluateSettings
    target: Target
    split: Split
    cells: list[Cell]
    shown: Cell
    """the cell of the selective tables, chosen on validation rows"""
    curves: tuple[Floats, dict[str, Floats]]
    """coverages, and the risk of the shown cell at each, by uncertainty"""
    models: dict[str, Any]
    """how T-JEPA and Var-T-JEPA were fitted, with the history"""
    results: dict[str, Any]
    """what ``evaluate.json`` holds"""


def run_evaluation(
    table: pa.Table,
    name: str,
    folder: Path,
    settings: EvaluateSettings,
    say: Say = lambda line: None,
    verbose: bool = False,
) -> Evaluation:
    """Compare, or continue a comparison, and write ``evaluate.json``."""
    start = time.perf_counter()
    settings = check_settings(settings)
    if settings.rows is not None and settings.rows < table.num_rows:
        order = np.random.default_rng(settings.seed).permutation(table.num_rows)
        table = table.take(np.sort(order[: settings.rows]))
    target = read_target(table, settings.target, settings.task)
    if settings.labels_pick_checkpoint and target.task == "regression":
        raise InputError("--labels-pick-checkpoint needs classes, and the target holds numbers")
    features = table.drop_columns([settings.target])
    if not features.num_columns:
        raise InputError(f"the table has no column besides --target {quoted(settings.target)}")
    infer_schema(features, dict(settings.kinds))  # refuses columns that cannot be encoded
    split = split_rows(len(target.values), settings.seed)
    check_split(target, split)
    say(
        f"{name}: {len(target.values):,} rows, {features.num_columns} columns, target "
        f"{settings.target}: {target.describe()}; {len(settings.representations)} representations "
        f"× {len(settings.predictors)} predictors × {settings.runs} runs"
    )
    if settings.epochs is None and {"t_jepa", *NEED_VAR_T_JEPA} & {*settings.representations}:
        say("fitting T-JEPA and Var-T-JEPA takes longest; fewer --epochs or --rows make it shorter")
    with study_folder(folder):
        parts = FinishedParts(folder / "parts", table, settings)
        inputs, latent, models = represent(features, target, split, settings, parts, verbose)
        for model, record in models.items():
            say(f"{model}: {record['epochs']} epochs in {record['seconds']:.0f} s")
        cells = fit_cells(inputs, target, split, settings, parts, say)
        # the embedding alone where it is among those compared
        first = next((name for name in NEED_VAR_T_JEPA if name in inputs), next(iter(inputs)))
        candidates = [cell for cell in cells if cell.representation == first]
        shown = best_on_validation(candidates, target.values[split.validation])
        areas, coverages, risks = risk_curves(shown, latent, target.values, split)
        balanced = {name: each.balanced for name, each in inputs.items()}
        results = {
            "table": name,
            "columns": features.num_columns,
            "settings": {**asdict(settings), "kinds": dict(settings.kinds)},
            **describe_target(target, split),
            "models": {
                name: {k: v for k, v in record.items() if k != "history"}
                for name, record in models.items()
            },
            **score_cells(cells, latent, target, split),
            "chosen_on_validation": {
                "representation": shown.representation,
                "predictor": shown.predictor,
                "score": best_score(shown, latent, target.values, split),
            },
            "areas": areas,
            "thresholds": {
                kind: thresholds(score[split.validation]) for kind, score in latent.items()
            },
            "low_labels": low_label_curve(balanced, target, split, settings.seed),
            "seconds": round(time.perf_counter() - start, 1),
            "environment": describe_environment(str(pick_device(settings.device))),
        }
        write_json(folder / "evaluate.json", results)
    return Evaluation(settings, target, split, cells, shown, (coverages, risks), models, results)


def describe_target(target: Target, split: Split) -> Row:
    """What is predicted for which rows, and what one gets without looking at them."""
    described = {name: getattr(target, name) for name in ("name", "task", "missing")}
    return {
        "target": {**described, "classes": list(target.classes)},
        "rows": {part: len(getattr(split, part)) for part in ("train", "validation", "test")},
        "constant_guess": constant_guess(target, split),
    }


def score_cells(
    cells: Sequence[Cell], latent: Mapping[str, Floats], target: Target, split: Split
) -> dict[str, list[Row]]:
    """Every cell's validation loss, its figures on test rows, and its gain over raw features."""
    found: dict[str, list[Row]] = {"cells": [], "figures": [], "gains_over_raw": []}
    raw = {cell.predictor: cell for cell in cells if cell.representation == "raw"}
    for cell in cells:
        place = {"representation": cell.representation, "predictor": cell.predictor}
        loss = float(cell.losses(cell.validation, target.values[split.validation]).mean())
        about = {"validation_loss": loss, "seconds": round(cell.seconds, 2)}
        found["cells"].append({**place, **about})
        figures = score_cell(cell, latent, target.values, split)
        found["figures"] += [{**place, **row} for row in figures]
        if cell.representation != "raw" and cell.predictor in raw:
            test = target.values[split.test]
            gain, error = paired_difference(cell, raw[cell.predictor], test)
            found["gains_over_raw"].append({**place, "gain": gain, "standard_error": error})
    return found


def fit_cells(
    inputs: Mapping[str, Blocks],
    target: Target,
    split: Split,
    settings: EvaluateSettings,
    parts: FinishedParts,
    say: Say,
) -> list[Cell]:
    """Train every predictor on every representation where it has not been done."""
    labels = hide_test_labels(target, split)

    def compute(job: Job, seeds: list[int]) -> list[Row]:
        blocks, predictor = inputs[job.about["representation"]], job.about["predictor"]
        train, validation = (
            (blocks.rows(rows), labels[rows]) for rows in (split.train, split.validation)
        )
        test = blocks.rows(split.test)
        rows = []
        for seed in seeds:
            start = time.perf_counter()
            fitted = fit_predictor(predictor, target.task, train, validation, seed)
            arrays = {"validation": fitted.predict(validation[0]), "test": fitted.predict(test)}
            classes = {} if fitted.classes is None else {"classes": fitted.classes}
            parts.write(_part_name(job, seed), arrays | classes)
            rows.append({"seed": seed, "seconds": time.perf_counter() - start})
        return rows

    def describe(rows: Sequence[Row]) -> str:
        seconds = sum(row["seconds"] for row in rows)
        name = REPRESENTATIONS[rows[0]["representation"]]
        return f"{name}, {rows[0]['predictor']}: {seconds:.0f} s"

    jobs = [
        Job(
            {"representation": representation, "predictor": predictor},
            settings.seeds if PREDICTORS[predictor].is_random else settings.seeds[:1],
        )
        for representation in inputs
        for predictor in settings.predictors
    ]
    run_jobs(parts.cells, jobs, compute, say, describe)
    return [read_cell(job, settings.runs, parts) for job in jobs]


def read_cell(job: Job, runs: int, parts: FinishedParts) -> Cell:
    """The predictions of all trainings; a predictor without randomness has one for all runs."""
    arrays = [parts.read(_part_name(job, seed)) for seed in job.seeds]
    arrays = arrays if len(arrays) == runs else arrays * runs
    validation, test = (
        np.stack([each[part] for each in arrays]) for part in ("validation", "test")
    )
    seconds = sum(
        row["seconds"]
        for row in parts.cells.rows
        if job.about.items() <= row.items() and row["seed"] in job.seeds
    )
    return Cell(
        **job.about,
        validation=validation,
        test=test,
        classes=arrays[0].get("classes"),
        seconds=seconds,
    )


def _part_name(job: Job, seed: int) -> str:
    return f"{job.about['representation']}-{job.about['predictor']}-{seed}"
