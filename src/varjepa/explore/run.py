"""From a model and a table to what the explorer shows: a map, columns, measures, similar rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.utils.validation import check_is_fitted

from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.estimators.similar import comparable_rows, nearest_rows
from varjepa.explore.page import ExploreColumn, ExploreData
from varjepa.tables import read_table
from varjepa.tables.describe import describe_table
from varjepa.tables.messages import collect_warnings
from varjepa.tables.values import as_instants, as_numbers, is_supported, shown_text

MAX_ROWS = 10_000
SIMILAR = 5

COMPONENTS = 50
"""of the rows' descriptions that the map is made from"""
FEW_ROWS = 30
"""Fewer have no neighbourhoods to keep: their map is the first two components."""
STEPS = 500
"""of t-SNE; after these the map hardly changes"""

STAGES = 5
OnStage = Callable[[int, int, str], None]
"""Told what is done next: its number, how many there are, and its name."""


def explore(
    model: VarTJEPA | str | os.PathLike[str],
    df: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "Rows of a table",
    random_state: int = 0,
    on_stage: OnStage = lambda number, count, name: None,
) -> ExploreData:
    """Make a page on which the rows of a table can be explored, in one HTML file.

    A map of the rows; colour by any column or measure; groups compared with the rest; single rows
    with how unlikely their cells are, and five similar rows.

    Args:
        model: a fitted model, or a model folder.
        df: a table with the columns of the model. Others, such as labels, are shown as well. Of
            a table with more than 10,000 rows 10,000 are drawn at random, and the page says so.
        path: of the page. None: nothing is written; the result shows itself in a notebook, and
            ``save`` writes it.
        title: of the page.
        random_state: of the rows that are drawn, and of the map.
        on_stage: called when a part of the work begins.

    The map is t-SNE of the points whose distances :meth:`VarTJEPA.similar` compares: rows that are
    near each other are similar; how far apart two groups are says little. It needs no labels.
    """
    if isinstance(model, str | os.PathLike):
        model = VarTJEPA.load(os.fspath(model))
    if not isinstance(model, VarTJEPA):
        raise InputError(f"model must be a VarTJEPA or its folder, not {type(model).__name__}")
    estimator = model
    check_is_fitted(estimator)
    table = read_table(df)
    if table.num_rows < 2:
        raise InputError("the table has fewer than two rows; there is nothing to compare")
    numbers = np.arange(table.num_rows)
    if len(numbers) > MAX_ROWS:
        rng = np.random.default_rng(random_state)
        numbers = np.sort(rng.choice(numbers, MAX_ROWS, replace=False))
    of_all = f" of {table.num_rows:,}, drawn at random" if len(numbers) < table.num_rows else ""
    total, table = table.num_columns, table.take(pa.array(numbers))
    names = estimator.codec_.schema.names
    by_name = hasattr(estimator, "feature_names_in_")
    rows = table.select([n for n in names if n in table.column_names]) if by_name else table
    with warnings.catch_warnings(), ExitStack() as quiet:
        if not by_name:  # the user knows: that is how the model was fitted
            warnings.filterwarnings("ignore", "X has feature names", UserWarning)
        on_stage(0, STAGES, "similar rows")
        encoded = estimator.encode(rows)  # says what is odd about the table, once
        quiet.enter_context(collect_warnings())
        points, _ = comparable_rows(estimator, encoded)
        distances, similar = nearest_rows(points, None, min(SIMILAR, len(numbers) - 1))
        on_stage(1, STAGES, "atypical cells")
        cells = estimator.cell_uncertainty(rows, "atypical").columns
        on_stage(2, STAGES, "uncertainty")
        measures = {"uncertainty": estimator.uncertainty(rows)}
        on_stage(3, STAGES, "outlier score")
        measures["outlier score"] = estimator.outlier_score(rows)
        on_stage(4, STAGES, "map")
        x, y = draw_map(points, random_state).T
    atypical = {
        name: values.to_numpy()
        for name, column, values in zip(
            rows.column_names, estimator.codec_.schema.columns, cells, strict=True
        )
        if column.left_out is None
    }
    unused = total - len(atypical)
    data = ExploreData(
        title=title,
        facts=(
            ("rows", f"{len(numbers):,}{of_all}, counted from 0"),
            ("columns", f"{total:,}" + (f", {unused:,} not used by the model" if unused else "")),
            ("map", "t-SNE" if len(numbers) >= FEW_ROWS else "principal components"),
        ),
        labels=tuple(map(str, numbers.tolist())),
        x=tuple(x.tolist()),
        y=tuple(y.tolist()),
        columns=tuple(_columns(estimator, table, atypical)),
        measures=tuple((name, tuple(values.tolist())) for name, values in measures.items()),
        similar=tuple(map(tuple, similar.tolist())),
        distances=tuple(map(tuple, distances.tolist())),
    )
    if path is not None:
        data.save(path)
    return data


def draw_map(points: NDArray[np.float32], random_state: int) -> NDArray[np.float32]:
    """Places of rows on a plane: t-SNE of their principal components.  # (n, w) → (n, 2)"""
    if (points == points[0]).all():
        return np.zeros((len(points), 2), dtype=np.float32)
    size = min(COMPONENTS, *points.shape)
    reduced = PCA(size, random_state=random_state).fit_transform(points)
    if len(points) < FEW_ROWS:
        return np.pad(reduced, ((0, 0), (0, 2)))[:, :2]
    perplexity = min(30.0, len(points) / 4)
    start = np.pad(reduced, ((0, 0), (0, 1)))[:, :2]
    start = 1e-4 * start / max(float(start[:, 0].std()), 1e-12)  # as init="pca", of any width
    layout = TSNE(2, perplexity=perplexity, init=start, max_iter=STEPS, random_state=random_state)
    return PCA(2).fit_transform(layout.fit_transform(reduced))  # turned: its longer side is x


def _columns(
    estimator: VarTJEPA, table: pa.Table, atypical: dict[str, NDArray[np.float32]]
) -> list[ExploreColumn]:
    """Every column that can be shown, those that the model does not know included."""
    shown = [field.name for field in table.schema if is_supported(field.type)]
    kinds = {column.name: column.kind for column in estimator.codec_.schema.modelled}
    new = [name for name in shown if name not in kinds]
    if new:
        kinds |= {column.name: column.kind for column in describe_table(table.select(new)).columns}
    columns = []
    for name in shown:
        numbers, unlikely = None, atypical.get(name)
        if kinds[name] == "numeric":
            read = as_numbers(table[name], name)
            numbers = _optional(read.values.astype(np.float64), read.valid)
        elif kinds[name] == "datetime":
            dates = as_instants(table[name], name)
            numbers = _optional(dates.counts.astype(np.float64), dates.valid)
        texts = tuple(shown_text(table[name]).to_pylist())
        scores = None if unlikely is None else _optional(unlikely, ~np.isnan(unlikely))
        columns.append(ExploreColumn(name, kinds[name], texts, numbers, scores, scores is not None))
    return columns


def _optional(values: NDArray[Any], valid: NDArray[np.bool_]) -> tuple[float | None, ...]:
    return tuple(float(v) if ok else None for v, ok in zip(values, valid, strict=True))
