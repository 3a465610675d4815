"""Claims: the predictors of the paper predict what they did when ``digests.json`` was written, to
the last bit where the arithmetic is the same, else up to rounding; every adapter that a setting of
the paper uses is among them.

    python -m tests.paper.predictors.test_digests     (only where numbers are meant to change)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from paper.predictors.inputs import Inputs, RawFeatures, Tokens
from paper.predictors.training import FitOptions, LabelledInputs, TrainingSettings, fit_models
from tests.digests import runs
from tests.digests.test_digests import different, other_arithmetic
from tests.paper.predictors.data import ADAPTERS, fit_seeds
from varjepa.evaluate.splits import Split

FILE = Path(__file__).with_name("digests.json")

BRIEF = TrainingSettings(epochs=3, batch=24, patience=2)


def mixed_inputs(rows: int = 110) -> tuple[Inputs, np.ndarray, Split]:
    """Numbers and levels with missing values, tokens in half precision, three classes."""
    rng = np.random.default_rng(3)
    numeric = np.where(rng.random((rows, 3)) < 0.1, np.nan, rng.normal(size=(rows, 3)))
    categorical = rng.integers(0, 4, (rows, 2))
    tokens = torch.from_numpy(rng.normal(size=(rows, 5, 6))).half()
    score = np.nan_to_num(numeric[:, 0]) + tokens[:, 1, 2].float().numpy()
    y = np.digitize(score, [-0.6, 0.6])
    order = rng.permutation(rows)
    split = Split(order[:70], order[70:85], order[85:])
    return Inputs(RawFeatures(numeric, categorical), Tokens(tokens, standardise=True)), y, split


def all_predictions() -> dict[str, Any]:
    """Name → predictions of all seeds."""
    inputs, y, split = mixed_inputs()
    predictions: dict[str, Any] = {}
    for name, adapters in ADAPTERS.items():
        raw = Inputs(raw=inputs.raw)
        options = FitOptions(training=BRIEF, at_once=2)
        predictions[f"{name}/raw"] = fit_seeds(name, raw, y, split, [0, 5], options).values
        for adapter in adapters:
            options = FitOptions(adapter=adapter, training=BRIEF, at_once=2)
            result = fit_seeds(name, inputs, y, split, [0, 5], options)
            predictions[f"{name}/{adapter}"] = result.values
            predictions[f"{name}/{adapter}/best_epoch"] = result.best_epoch
    options = FitOptions(training=BRIEF, at_once=2)
    rows = np.arange(70)
    models = fit_models(
        "mlp", LabelledInputs(inputs, rows, y[:70]), None, np.arange(3), [0, 5],
        options,
    )  # fmt: skip
    predictions["mlp/dropout"] = models.predict_with_dropout(inputs, 3, rows)
    return predictions


def digests() -> dict[str, dict[str, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            return {name: runs.digest(value) for name, value in all_predictions().items()}
    finally:
        torch.set_num_threads(threads)


def test_no_prediction_has_changed() -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    wrong = different(recorded, digests(), others=other_arithmetic())
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in digests().items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
