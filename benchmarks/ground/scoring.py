"""Figures of a job: pure functions on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.ground.tables import Bools, CodedTable, Floats

Figures = dict[str, Any]

COVERAGE = 0.9
"""of the intervals that a contender is asked for"""


def imputation_figures(truth: CodedTable, filled: CodedTable, removed: Bools) -> Figures:
    """Normalised RMSE of numbers and share of right categories, columns weighing the same.

    A column's RMSE is divided by the standard deviation of all its known cells. Columns that are
    constant or lost no known cell are left out; a figure that no column has is None.
    """
    errors, hits = {}, {}
    for j, is_category in enumerate(truth.is_category):
        value, guess = truth.values[removed[:, j], j], filled.values[removed[:, j], j]
        spread = np.nanstd(truth.values[:, j])
        if not len(value) or spread == 0:
            continue
        if is_category:
            hits[j] = float(np.mean(value == guess))
        else:
            errors[j] = float(np.sqrt(np.mean((value - guess) ** 2)) / spread)
    return {
        "rmse": mean_or_none(list(errors.values())),
        "accuracy": mean_or_none(list(hits.values())),
        "cells": int(removed.sum()),
        "columns": {str(j): round(figure, 5) for j, figure in {**errors, **hits}.items()},
    }


def pooled_figures(truth: CodedTable, filled: CodedTable, removed: Bools) -> Figures:
    """RMSE and MAE over all removed numbers, in standard deviations of what is left of a column.

    Share of right categories over all removed ones, None where there is none.
    """
    known = np.where(removed, np.nan, truth.values)
    numbers, categories = ~truth.is_category, truth.is_category
    spread = np.nanstd(known, axis=0)
    gaps = ((filled.values - truth.values) / np.where(spread > 0, spread, 1.0))[:, numbers]
    gaps = gaps[removed[:, numbers]]
    hits = (filled.values == truth.values)[:, categories][removed[:, categories]]
    return {
        "rmse": float(np.sqrt(np.mean(gaps**2))),
        "mae": float(np.abs(gaps).mean()),
        "accuracy": float(hits.mean()) if len(hits) else None,
        "cells": int(removed.sum()),
    }


def interval_figures(
    truth: CodedTable, lower: CodedTable, upper: CodedTable, removed: Bools, known: CodedTable
) -> Figures:
    """Coverage and mean score of central 90 % intervals of numbers.

    The score of [l, u] for y is u − l + 2/α · (l − y)₊ + 2/α · (y − u)₊, here in standard
    deviations of the column; ``relative`` divides its mean over columns by that of the intervals
    from 5 % to 95 % of the column's ``known`` cells.
    """
    inside, scores, reference = [], [], []
    tail = (1 - COVERAGE) / 2
    for j in np.flatnonzero(~truth.is_category):
        value = truth.values[removed[:, j], j]
        spread = np.nanstd(truth.values[:, j])
        if not len(value) or spread == 0:
            continue
        low, high = lower.values[removed[:, j], j], upper.values[removed[:, j], j]
        own = np.nanquantile(known.values[:, j], [tail, 1 - tail])
        inside.append((value >= low) & (value <= high))
        scores.append(interval_score(value, low, high) / spread)
        reference.append(interval_score(value, own[0], own[1]) / spread)
    if not inside:
        return {"coverage": None, "interval_score": None, "relative_score": None}
    mean, base = float(np.mean(scores)), float(np.mean(reference))
    return {
        "coverage": float(np.concatenate(inside).mean()),
        "covered_cells": int(sum(map(len, inside))),
        "interval_score": mean,
        "relative_score": mean / base if base > 0 else None,
    }


def interval_score(value: Floats, low: Floats | float, high: Floats | float) -> float:
    """Mean of u − l + 2/α · (l − y)₊ + 2/α · (y − u)₊ (Winkler).

    Examples:
        >>> round(interval_score(np.array([0.5, 2.0]), 0.0, 1.0), 6)
        11.0
    """
    missed = np.maximum(low - value, 0) + np.maximum(value - high, 0)
    return float(np.mean(high - low + 2 / (1 - COVERAGE) * missed))


def mean_or_none(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
