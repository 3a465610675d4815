"""Result rows of the whole downstream study with numbers that a test chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paper.datasets.catalogue import DATASETS
from paper.downstream import paper_accuracy
from paper.published import PAPER_PREDICTORS, PAPER_REPRESENTATIONS
from varjepa.metrics.selective import COVERAGES

Row = dict[str, Any]
Place = tuple[str, str, str, float]
"""dataset, representation, predictor, coverage"""


def places() -> list[Place]:
    return [
        (dataset, name, predictor, coverage)
        for dataset in DATASETS
        for name in PAPER_REPRESENTATIONS
        for predictor in PAPER_PREDICTORS
        for coverage in (COVERAGES if name == "var_t_jepa" else COVERAGES[:1])
    ]


def paper_plus(
    gain: Callable[[Place], float | None] = lambda place: 0.0, setting: str = "paper", **more: Any
) -> list[Row]:
    """Two seeds of every cell, the paper's mean and so much more; none where that is None."""
    rows = []
    for place in places():
        above = gain(place)
        if above is not None:
            dataset, name, predictor, coverage = place
            accuracy = paper_accuracy(*place)[0] + above
            rows += [
                {
                    "dataset": dataset,
                    "representation": name,
                    "predictor": predictor,
                    "coverage": coverage,
                    "setting": setting,
                    "embedding_seed": 0,
                    "seed": seed,
                    "accuracy": accuracy,
                    "f1_macro": accuracy,
                    "f1_weighted": accuracy,
                    "test_rows": 100_000,
                    **more,
                }
                for seed in (0, 1)
            ]
    return rows


def trainings(seconds: float, setting: str = "paper") -> list[Row]:
    return [
        {
            "dataset": dataset,
            "model": model,
            "setting": setting,
            "seed": seed,
            "seconds": seconds,
            "epochs": 100,
            "best_epoch": 50,
            "scale": 8.0,
            "effective_rank": 20.5,
            "varying_share": 0.5,
            "environment": {"device": "NVIDIA H200"},
        }
        for dataset in DATASETS
        for model in ("t_jepa", "var_t_jepa")
        for seed in (0, 1)
    ]
