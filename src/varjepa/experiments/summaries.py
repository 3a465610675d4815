"""Means over the seeds of a cell, and how far they are from the paper's."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from varjepa.experiments.results import Row
from varjepa.experiments.tabular_paper import Quoted


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the seeds of one cell."""

    mean: float
    std: float | None
    """sample standard deviation; None for a single seed"""
    rows: int
    """test rows that the mean is about"""


def summarise(rows: Sequence[Row], metric: str) -> Summary:
    """Mean and standard deviation of rows that differ in their seeds."""
    values = [row[metric] for row in rows]
    std = statistics.stdev(values) if len(values) > 1 else None
    kept = max(1, round(rows[0]["coverage"] * rows[0]["test_rows"]))
    return Summary(statistics.fmean(values), std, kept)


def group(rows: Sequence[Row], *names: str) -> Mapping[tuple[Any, ...], list[Row]]:
    """Rows by the values of some columns."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return found


def binomial(mean: float, rows: int) -> float:
    """Standard error of a share of so many rows, which another split alone would bring."""
    return math.sqrt(max(mean * (1 - mean), 0.0) / rows)


def deviations(ours: Summary, paper: Quoted) -> float:
    """Our mean minus the paper's in standard deviations of that difference.

    Three things make it vary: the seeds here, the seeds there, and two different test splits.
    """
    mean, std = paper
    split = binomial(ours.mean, ours.rows)
    variance = (ours.std or 0.0) ** 2 + (std or 0.0) ** 2 + 2 * split**2
    return (ours.mean - mean) / math.sqrt(variance) if variance else 0.0


def is_reached(ours: Summary, paper: Quoted) -> bool:
    """At or above the paper's mean minus the larger of its deviation and two binomial errors.

    The errors are those of the paper's share on the rows that ours is about: the bar does not
    depend on what was measured.
    """
    mean, std = paper
    slack = max(std or 0.0, 2 * binomial(mean, ours.rows))
    return ours.mean >= mean - slack - 1e-12  # .852 − .002 is not quite .850 in binary


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean; None for a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
