"""Which rows of a table are most similar to a row: three views of it, and exact neighbours.

The views of a row:

- its values: numbers, and categories one-hot; a missing cell has its expectation,
- what is expected of each of them given the row's other columns: means and probabilities,
- its latents: the posterior means of all features.

Expectations count what columns say together and leave out what a cell says alone, so a column that
the others do not predict counts nothing there. No label is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.nn.functional import one_hot

from varjepa.models.cells import expected_cells
from varjepa.models.inference import embed_rows
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.tables.codec import EncodedTable

if TYPE_CHECKING:
    from varjepa.estimators.var_t_jepa import VarTJEPA

WEIGHTS = (1.0, 0.25, 0.5)
"""Of values, expectations and latents; benchmarks/results/similar-choice.json says how chosen."""


def comparable_rows(
    estimator: VarTJEPA, X: EncodedTable, query: EncodedTable | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Rows of both tables as points whose Euclidean distances are those of ``similar``."""
    columns = estimator._column_numbers()

    def views(model: VarTJepa, rows: EncodedTable) -> Tensor:
        return row_views(model, rows, columns.to(rows.num.device))

    found = estimator._compute(X, views)
    scales = view_scales(found, columns.tolist(), value_widths(estimator.model_))
    found *= scales
    return found, None if query is None else estimator._compute(query, views) * scales


def row_views(model: VarTJepa, rows: EncodedTable, columns: Tensor) -> Tensor:
    """Values, expectations and latents side by side.

    Shape: ``columns (D,)`` numbers the column of every feature → ``(B, 2 · W + D · d)`` with
    W = F_num + Σ levels.
    """
    expected = expected_cells(model, rows, columns)
    levels = [one_hot(rows.cat[:, j], n)[:, 1:] for j, n in enumerate(model.shape.levels)]
    values = torch.cat([rows.num, *levels], dim=1).to(expected.dtype)
    if rows.observed is not None:
        widths = torch.tensor(value_widths(model), device=rows.num.device)
        values = torch.where(rows.observed.repeat_interleave(widths, 1), values, expected)
    return torch.cat([values, expected, embed_rows(model, rows).mean.flatten(1)], dim=1)


def value_widths(model: VarTJepa) -> list[int]:
    """How many of a row's values each feature has: one, or one per level.  # (D,)"""
    return [1] * model.shape.numeric + [count - 1 for count in model.shape.levels]


def view_scales(
    views: NDArray[np.float32], columns: Sequence[int], widths: Sequence[int]
) -> NDArray[np.float32]:
    """What to multiply views by, so that all columns count alike, and the views by ``WEIGHTS``.

    Variances are those of ``views``, the rows that are searched: two of them have a squared
    distance of 1 on average. What does not vary among them does not count.

    Shape: ``(n, 2 · W + D · d)``, columns and widths ``(D,)`` → ``(2 · W + D · d,)``.
    """
    column = np.repeat(np.asarray(columns), widths)  # (W,)
    own = views.var(0, dtype=np.float64)
    per_column = _inverse(np.bincount(column, own[: len(column)]))[column]
    squared = np.concatenate([per_column, per_column, np.ones(len(own) - 2 * len(column))])
    view = np.repeat([0, 1, 2], [len(column), len(column), len(own) - 2 * len(column)])
    share = np.array(WEIGHTS) * _inverse(np.bincount(view, own * squared, 3))
    return np.sqrt(squared * share[view] / (2.0 * sum(WEIGHTS))).astype(np.float32)


def _inverse(variance: NDArray[Any]) -> NDArray[np.float64]:
    """1 / variance; 0 where there is none but rounding."""
    return np.divide(1.0, variance, out=np.zeros(len(variance)), where=variance > 1e-9)


def nearest_rows(
    views: NDArray[np.float32], query: NDArray[np.float32] | None, k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Distances and numbers of the k nearest rows, the nearest first.  # (queries, k) each

    ``query`` None: of the rows themselves, each compared with the others only.
    """
    return NearestNeighbors(n_neighbors=k, algorithm="brute").fit(views).kneighbors(query)
