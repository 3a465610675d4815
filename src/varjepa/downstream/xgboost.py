"""Gradient-boosted trees from the package ``xgboost``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from varjepa.downstream.batches import EncodedRows
from varjepa.downstream.inputs import BLOCK
from varjepa.downstream.optional import require
from varjepa.downstream.task import Classification, Regression


@dataclass(frozen=True, slots=True)
class XGBoostSettings:
    """Appendix D.6.4. Nothing in it is random, so all seeds share one model."""

    trees: int = 100
    """boosting rounds (of one tree per class)"""
    depth: int = 3
    """of a tree, at most"""
    learning_rate: float = 0.1
    """weight of a tree"""


def fit_trees(
    rows: EncodedRows,
    index: Tensor,
    targets: Tensor,
    task: Classification | Regression,
    settings: XGBoostSettings,
) -> Any:
    """A booster; rows are handed over a block at a time and kept quantised."""
    xgboost = require("xgboost", "xgboost")
    data = xgboost.QuantileDMatrix(_iterator(xgboost, rows, index, targets), max_bin=256)
    options: dict[str, Any] = {
        "tree_method": "hist",
        "max_depth": settings.depth,
        "learning_rate": settings.learning_rate,
        "objective": "reg:squarederror",
        "seed": 0,
        "verbosity": 1,
    }
    if isinstance(task, Classification) and task.outputs == 2:
        options["objective"] = "binary:logistic"
    elif isinstance(task, Classification):
        options |= {"objective": "multi:softprob", "num_class": task.outputs}
    return xgboost.train(options, data, num_boost_round=settings.trees)


def predict_trees(
    booster: Any, rows: EncodedRows, index: Tensor, task: Classification | Regression
) -> NDArray[np.float32]:
    """Probabilities (n, classes), or numbers (n,)."""
    parts = [booster.inplace_predict(block) for block in _blocks(rows, index)]
    values: NDArray[np.float32] = np.concatenate(parts)
    if isinstance(task, Regression):
        return (values * task.scale + task.mean).astype(np.float32)
    return np.stack([1.0 - values, values], 1) if task.outputs == 2 else values


def _blocks(rows: EncodedRows, index: Tensor) -> Iterator[NDArray[np.float32]]:
    for block in index.split(BLOCK):
        batch = rows.take(block[None])
        parts = [batch.numeric[0]]
        if batch.tokens is not None:
            parts.append(batch.tokens[0].flatten(1))
        yield torch.cat(parts, 1).numpy()


def _iterator(xgboost: Any, rows: EncodedRows, index: Tensor, targets: Tensor) -> Any:
    class Blocks(xgboost.DataIter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.reset()

        def reset(self) -> None:
            self.blocks = zip(_blocks(rows, index), targets.split(BLOCK), strict=True)

        def next(self, input_data: Callable[..., None]) -> bool:
            for block, labels in self.blocks:
                input_data(data=block, label=labels.numpy())
                return True
            return False

    return Blocks()
