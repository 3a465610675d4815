"""The low-label curve: how good a linear model is when only few training rows have a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from varjepa.datasets.dataset import Split
from varjepa.downstream import Inputs
from varjepa.evaluate.target import Target
from varjepa.experiments.few_labels import COMPARED, labelled_rows, linear_guesses, sizes_that_fit

DRAWS = 10
"""random choices of the rows that have one"""


@dataclass(frozen=True, slots=True)
class LowLabelPoint:
    """One representation with one number of labels."""

    representation: str
    labels: int
    mean: float
    """accuracy, or RMSE, mean over the draws"""
    standard_error: float
    """of that mean, over the draws of the labelled rows; the test rows stay the same"""


def low_label_curve(
    inputs: Mapping[str, Inputs], target: Target, split: Split, seed: int
) -> list[LowLabelPoint]:
    """Every representation that is compared here with every number of labels that fits."""
    sizes = sizes_that_fit(len(split.train))
    if not sizes:
        return []
    points = []
    for name in (name for name in COMPARED if name in inputs):
        scores = _scores(inputs[name], target, split, sizes, seed)  # (draws, sizes)
        errors = scores.std(0, ddof=1) / np.sqrt(DRAWS)
        for size, mean, error in zip(sizes, scores.mean(0), errors, strict=True):
            points.append(LowLabelPoint(name, size, float(mean), float(error)))
    return points


def _scores(
    inputs: Inputs, target: Target, split: Split, sizes: Sequence[int], seed: int
) -> NDArray[np.float64]:
    """Accuracy or RMSE on the test rows.  # (draws, sizes)"""
    orders = [labelled_rows(split.train, max(sizes), seed, draw) for draw in range(DRAWS)]
    values, test = target.values, split.test
    guesses = linear_guesses(inputs, values, target.task, split.train, test, orders, sizes)
    if target.task == "classification":
        return (guesses == values[test]).mean(-1)
    return np.sqrt(((guesses - values[test]) ** 2).mean(-1))
