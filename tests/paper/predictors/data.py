"""Small labelled problems with a known answer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paper.predictors import PREDICTORS, PredictorKind, Tokens
from paper.predictors.networks import (
    AutoInt,
    AutoIntSettings,
    FTTransformerSettings,
    build_ft_transformer,
)
from varjepa.evaluate.splits import Split

NETWORKS = ("linear_probe", "mlp", "dcn_v2", "resnet", "autoint", "ft_transformer")


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
        return replace(kind, body=partial(AutoInt, settings=AutoIntSettings(width=16)))
    if name == "ft_transformer":
        return replace(
            kind, body=partial(build_ft_transformer, settings=FTTransformerSettings(blocks=1))
        )
    return kind


def pace(name: str) -> float:
    """A learning rate that shows in few epochs."""
    return 2e-2 if name == "linear_probe" else 2e-3
