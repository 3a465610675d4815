"""What a user who passes nothing gets: embeddings, uncertainty, filled holes and drawn rows.

    python -m paper defaults --out results        about half a minute a row on one H200

``VarTJEPA(random_state=seed)`` is fitted on the training rows of a dataset, once without labels
(the checkpoint is chosen by the held-out objective) and once with (by filtered probe accuracy), and
judged on the test rows. The two selections train the very same model: they differ in the moment
they keep. No setting was chosen on these splits' test rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from paper.datasets.loading import Dataset, load_dataset
from paper.predictors import FitOptions, Tokens, fit_seeds
from paper.representations import first_rows
from paper.results import Layout, ResultFile, Row, plain
from varjepa.environment import describe_environment, pick_device
from varjepa.estimators import VarTJEPA
from varjepa.estimators.fitting import ONLINE_PROBE
from varjepa.evaluate.splits import Split
from varjepa.files import make_folder, only_writer
from varjepa.metrics.ambiguity import auroc_of_ambiguous, spearman
from varjepa.metrics.fidelity import fidelity, shuffle_columns
from varjepa.metrics.imputation import imputation_errors, remove_cells
from varjepa.metrics.selective import COVERAGES, accuracy_at
from varjepa.settings import Training

SELECTIONS = ("held-out objective", "filtered accuracy")


@dataclass(frozen=True, slots=True)
class DefaultsSettings:
    """How the defaults are judged."""

    epochs: int | None = None
    """None: as many as the estimator takes by itself"""
    predictor_seeds: int = 2
    """perceptrons per embedding"""
    hole_shares: tuple[float, ...] = (0.05, 0.2)
    """shares of the test cells that are removed and filled"""
    rows: int = 4000
    """test rows that are filled, and rows that are drawn, at most"""
    table_rows: int | None = None
    """first rows of a dataset (their order is random already); None: all"""


def reproduce_defaults(
    folder: Path,
    datasets: Sequence[str],
    seeds: int,
    settings: DefaultsSettings,
    device: str = "auto",
    on_row: Callable[[Row], None] = lambda row: None,
) -> ResultFile:
    """Compute whatever (dataset, selection, seed) is not in the folder yet."""
    make_folder(folder)
    with only_writer(folder):
        found = open_defaults(folder, settings)
        for name in datasets:
            wanted = [
                (seed, by)
                for seed in range(seeds)
                for by in SELECTIONS
                if not found.has(dataset=name, selected_by=by, seed=seed)
            ]
            data = first_rows(load_dataset(name), settings.table_rows) if wanted else None
            for seed, by in wanted:
                assert data is not None
                row = judge_defaults(data, by, seed, settings, device)
                found.add([row])
                on_row(row)
    return found


def open_defaults(folder: Path, settings: DefaultsSettings) -> ResultFile:
    """``defaults.json``, refused where it holds rows of other settings."""
    unasked = {"device", "verbose", "training__precision", "random_state", *VarTJEPA.settings_kinds}
    parameters = {k: v for k, v in VarTJEPA().get_params().items() if k not in unasked}
    shared = {"judged": plain(settings), "estimator": _as_json(parameters)}
    by_labels = {"probe": plain(ONLINE_PROBE), "standard_errors": Training().standard_errors}
    layout = Layout(
        ("dataset", "selected_by", "seed"),
        ("accuracy", "holes", "samples", "best_epoch", "fit_seconds"),
        lambda row: {**shared, **(by_labels if row["selected_by"] == SELECTIONS[1] else {})},
    )
    return ResultFile(folder / "defaults.json", layout)


def judge_defaults(
    data: Dataset, by: str, seed: int, settings: DefaultsSettings, device: str = "auto"
) -> Row:
    """Fit once and look at everything."""
    split = data.split(seed)
    train, test = data.table.take(split.train), data.table.take(split.test)
    with_labels = by == SELECTIONS[1]
    model = VarTJEPA(
        training=Training(epochs="auto" if settings.epochs is None else settings.epochs),
        device=device,
        random_state=seed,
    )
    start = time.perf_counter()
    model.fit(train, data.label[split.train] if with_labels else None)
    seconds = time.perf_counter() - start
    return {
        "dataset": data.name,
        "selected_by": by,
        "seed": seed,
        "epochs": len(model.history_),
        "best_epoch": model.best_epoch_,
        "fit_seconds": round(seconds, 1),
        **selective(model, data, split, settings),
        "holes": {
            f"{share:.0%}": fill(model, test.slice(0, settings.rows), train, share, seed)
            for share in settings.hole_shares
        },
        "samples": draw(model, test.slice(0, settings.rows), train, seed),
        "sha256": data.sha256,
        "environment": describe_environment(pick_device(device).type),
    }


def selective(
    model: VarTJEPA, data: Dataset, split: Split, settings: DefaultsSettings
) -> dict[str, Any]:
    """Accuracy of perceptrons on the embedding, by coverage of every uncertainty."""
    device = pick_device(model.device).type
    tokens = Tokens(torch.as_tensor(model.embed(data.table).mean), standardise=True)
    seeds = list(range(settings.predictor_seeds))
    options = FitOptions(adapter="flat", device=device)  # what ``transform`` gives a user
    predictions = fit_seeds("mlp", tokens, data.label, split, seeds, options)
    correct = predictions.labels() == data.label[split.test]  # (R, n)
    test = data.table.take(split.test)
    by_kind: dict[str, Any] = {}
    for kind, unsure in model.uncertainties(test).items():
        by_kind[kind] = {
            f"{coverage:.0%}": _digits(np.mean([accuracy_at(c, unsure, coverage) for c in correct]))
            for coverage in COVERAGES
        }
        if data.ambiguity is not None:
            truth = data.ambiguity[split.test]
            by_kind[kind]["spearman"] = _digits(spearman(unsure, truth))
            by_kind[kind]["auroc"] = _digits(auroc_of_ambiguous(unsure, truth))
    return {"accuracy": by_kind}


def fill(
    model: VarTJEPA, test: pa.Table, train: pa.Table, share: float, seed: int
) -> dict[str, float]:
    """Errors on removed cells beside those of mean and mode."""
    holed, removed = remove_cells(test, share, seed)
    errors = imputation_errors(test, model.impute(holed), removed, train)
    return {name: _digits(value) for name, value in asdict(errors).items()}


def draw(model: VarTJEPA, test: pa.Table, train: pa.Table, seed: int) -> dict[str, Any]:
    """Drawn rows against test rows; other real rows and shuffled columns as what to expect."""
    real = train.take(np.random.default_rng(seed).permutation(train.num_rows)[: test.num_rows])
    others = {
        "drawn": model.sample(test.num_rows, random_state=seed),
        "real": real,
        "shuffled": shuffle_columns(real, seed),
    }
    return {
        name: {key: _digits(value) for key, value in asdict(fidelity(test, rows, seed)).items()}
        for name, rows in others.items()
    }


def _digits(value: Any) -> float:
    return round(float(value), 4)


def _as_json(parameters: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in parameters.items()}
