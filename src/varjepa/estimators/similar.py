"""Which rows of a table are most similar to a row: its nearest ones by three views of each row.

- values: numbers as ranks, and categories one-hot; a missing cell has its expectation,
- expectations: the mean or the probabilities of each cell, given the other cells of the row,
- latents: the posterior means of all features.

A cell's expectation does not depend on the cell itself. A column that the others do not predict has
nearly the same expectation in all rows, and so hardly counts in the second view. Ranks keep the few
large values of a skewed number from being all that counts of it. No label is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.nn.functional import one_hot

from varjepa.errors import InputError
from varjepa.models.cells import expected_cells
from varjepa.models.inference import embed_rows
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.tables.codec import EncodedTable

if TYPE_CHECKING:
    from varjepa.estimators.var_t_jepa import VarTJEPA

WEIGHTS = (1.0, 0.25, 0.5)
"""Of values, expectations and latents; benchmarks/results/similar-choice.json says how chosen."""

STILL = 1e-9
"""a variance that is nothing but rounding"""
SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
"""of equal values, whose rank is in their middle"""


def comparable_rows(
    estimator: VarTJEPA, X: EncodedTable, query: EncodedTable | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Rows of both tables as points whose Euclidean distances are those of ``similar``."""
    points = estimator.map_rows(X, row_views)
    asked = None if query is None else estimator.map_rows(query, row_views)
    to_ranks(points, asked, estimator.model_.shape.numeric)
    columns = estimator.codec_.column_numbers()
    scales = view_scales(points, columns, value_widths(estimator.model_))
    points *= scales
    return points, None if asked is None else asked * scales


def to_ranks(points: NDArray[np.float32], asked: NDArray[np.float32] | None, numbers: int) -> None:
    """Put the shares of ``points`` that lie below in place of their first columns, the numbers.

    Columns that do not vary but for rounding stay.
    """
    for column in np.flatnonzero(points[:, :numbers].var(0, dtype=np.float64) > STILL):
        known = np.sort(points[:, column])
        for rows in (points,) if asked is None else (points, asked):
            below, up_to = (np.searchsorted(known, rows[:, column], side) for side in SIDES)
            rows[:, column] = (below + up_to) / (2 * len(known))


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
    views: NDArray[np.float32], columns: NDArray[np.int64], widths: Sequence[int]
) -> NDArray[np.float32]:
    """What to multiply views by, so that all columns count alike, and the views by ``WEIGHTS``.

    Variances are those of ``views``, the rows that are searched: two of them have a squared
    distance of 1 on average. What does not vary among them does not count.

    Shape: ``(n, 2 · W + D · d)``, columns and widths ``(D,)`` → ``(2 · W + D · d,)``.
    """
    column = np.repeat(columns, widths)  # (W,)
    own = views.var(0, dtype=np.float64)
    per_column = _inverse(np.bincount(column, own[: len(column)]))[column]
    squared = np.concatenate([per_column, per_column, np.ones(len(own) - 2 * len(column))])
    view = np.repeat([0, 1, 2], [len(column), len(column), len(own) - 2 * len(column)])
    share = np.array(WEIGHTS) * _inverse(np.bincount(view, own * squared, 3))
    return np.sqrt(squared * share[view] / (2.0 * sum(WEIGHTS))).astype(np.float32)


def _inverse(variance: NDArray[Any]) -> NDArray[np.float64]:
    """1 / variance; 0 where there is none but rounding."""
    return np.divide(1.0, variance, out=np.zeros(len(variance)), where=variance > STILL)


def nearest_rows(
    views: NDArray[np.float32], query: NDArray[np.float32] | NDArray[np.int64] | None, k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Distances and numbers of the k nearest rows, the nearest first.  # (queries, k) each

    ``query``: points, or numbers of the rows themselves, which are compared with the others only.
    None: all of these.
    """
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(views)
    if query is None or query.dtype.kind != "i":
        return search.kneighbors(query)
    distances, rows = search.kneighbors(views[query], k + 1)
    is_other = rows != query[:, None]
    is_other[is_other.all(1), -1] = False  # a row with more than k copies may not find itself
    return distances[is_other].reshape(-1, k), rows[is_other].reshape(-1, k)


def row_numbers(query: Any, rows: int) -> NDArray[np.int64] | None:
    """Row numbers of a table, checked; None for what is a table itself."""
    if not isinstance(query, range | list | np.ndarray):
        return None
    numbers = np.asarray(query)
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        return None
    if not len(numbers) or numbers.min() < 0 or numbers.max() >= rows:
        raise InputError(f"query must be a table, or row numbers of X from 0 to {rows - 1}")
    return numbers.astype(np.int64)
