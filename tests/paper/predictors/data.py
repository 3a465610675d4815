"""Small labelled problems with a known answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paper.predictors.inputs import Adapter, Inputs, RawFeatures, Tokens
from paper.predictors.networks import AutoInt, build_ft_transformer
from paper.predictors.training import (
    PREDICTORS,
    FitOptions,
    LabelledInputs,
    PredictorKind,
    fit_models,
)
from varjepa.evaluate.splits import Split

NETWORKS = ("linear_probe", "mlp", "dcn_v2", "resnet", "autoint", "ft_transformer")


ADAPTERS: dict[str, tuple[Adapter, ...]] = {
    "linear_probe": ("flat",),
    "mlp": ("linear", "flat", "principal"),
    "dcn_v2": ("linear", "column", "principal"),
    "resnet": ("flat", "linear", "principal"),
    "autoint": ("tokens", "linear"),
    "ft_transformer": ("linear", "tokens", "principal"),
    "xgboost": ("flat", "components", "principal", "mean"),
}
"""every way in which a setting of the paper lets embeddings enter a predictor"""


def split_of(rows: int, seed: int = 0) -> Split:
    """60 % training, 15 % validation, 25 % test."""
    order = np.random.default_rng(seed).permutation(rows)
    first, second = int(0.6 * rows), int(0.75 * rows)
    return Split(order[:first], order[first:second], order[second:])


def two_gaussians(rows: int, features: int = 4) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two classes, one informative column."""
    generator = np.random.default_rng(0)
    y = np.arange(rows) % 2
    x = generator.normal(size=(rows, features))
    x[:, 1] += 2.0 * y
    return x, y


def some_tokens(rows: int, columns: int = 3, width: int = 4) -> tuple[Tokens, NDArray[Any]]:
    """Embeddings in half precision, where the class is the sign of one coordinate."""
    values = torch.randn(rows, columns, width, generator=torch.Generator().manual_seed(0)).half()
    return Tokens(values), (values[:, 1, 2] > 0).numpy().astype(np.int64)


def light(name: str) -> PredictorKind:
    """The predictor itself, or a narrow form of those that take seconds on one core."""
    kind = PREDICTORS[name]
    if name == "autoint":
        return replace(kind, body=partial(AutoInt, width=16))
    if name == "ft_transformer":
        return replace(kind, body=partial(build_ft_transformer, blocks=1))
    return kind


def pace(name: str) -> float:
    """A learning rate that shows in few epochs."""
    return 2e-2 if name == "linear_probe" else 2e-3


@dataclass
class SeedPredictions:
    """What R seeds say about the test rows, and the epoch that each kept."""

    values: NDArray[np.float32]  # (R, n_test, classes)
    classes: NDArray[Any]
    best_epoch: NDArray[np.int64]  # (R,), −1 for trees

    def labels(self) -> NDArray[Any]:
        """Most likely classes.  # (R, n_test)"""
        return self.classes[self.values.argmax(-1)]


def fit_seeds(
    predictor: str | PredictorKind,
    data: Any,
    labels: NDArray[Any],
    split: Split,
    seeds: Sequence[int],
    options: FitOptions | None = None,
) -> SeedPredictions:
    """Train all seeds on inputs of any form and predict the test rows."""
    if isinstance(data, Tokens):
        data = Inputs(tokens=data)
    elif not isinstance(data, Inputs):
        raw = data if isinstance(data, RawFeatures) else RawFeatures.from_numeric(data)
        data = Inputs(raw=raw)
    train, validation = (
        LabelledInputs(data, part, labels[part]) for part in (split.train, split.validation)
    )
    classes = np.unique(labels)
    models = fit_models(predictor, train, validation, classes, seeds, options or FitOptions())
    logs = [log.best_epoch.numpy() for log in models.logs] or [np.full(len(seeds), -1)]
    return SeedPredictions(models.predict(data, split.test), classes, np.concatenate(logs))
