"""The numbers that the paper prints, (mean, standard deviation over 5 runs).

``published.json`` holds every cell of Table 1 and of the five tables of Section 4.2 and Appendix B,
one line per line of a table. A test compares them with the LaTeX source where that is available.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from paper.settings import SENSITIVITY

Quoted = tuple[float, float | None]
"""mean and standard deviation over five runs; None where the paper has a single run"""

PAPER_PREDICTORS = ("mlp", "dcn_v2", "resnet", "autoint", "ft_transformer", "xgboost")
PAPER_REPRESENTATIONS = ("raw", "t_jepa", "var_t_jepa")
SIMULATION_METRICS = ("accuracy", "kl_aggregate", "sigreg", "cov_deviation", "mean_norm")
"""columns of Table 1"""
UNCERTAINTY_METRICS = ("spearman", "auroc", "aurc")


def simulation_paper_value(variant: str, latent: str, metric: str) -> tuple[float, float]:
    line = _tables()["simulation"][f"{variant} {latent}"]
    mean, std = line[SIMULATION_METRICS.index(metric)]
    return mean, std


def downstream_paper_value(
    metric: str, dataset: str, representation: str, predictor: str, coverage: float
) -> Quoted | None:
    """A cell of the table of accuracies or of F1 scores; None where the paper has none."""
    tables = _tables()
    line = tables.get(metric, {}).get(predictor, {}).get(f"{representation} {coverage}")
    if line is None:
        return None
    mean, std = line[tables["datasets"].index(dataset)]
    return mean, std


def sensitivity_paper_value(
    table: str, column: str, predictor: str, coverage: float
) -> Quoted | None:
    """An accuracy of one of the two tables on Adult."""
    line = _tables()["sensitivity"][table].get(f"{predictor} {coverage}")
    if line is None:
        return None
    mean, std = line[list(SENSITIVITY[table]).index(column)]
    return mean, std


def uncertainty_paper_value(metric: str, dataset: str, score: str) -> float | None:
    """Spearman, AUROC or AURC of a method on SIM or MNIST."""
    values = _tables()["uncertainty"].get(dataset, {}).get(score)
    if values is None or metric not in UNCERTAINTY_METRICS:
        return None
    value: float = values[UNCERTAINTY_METRICS.index(metric)]
    return value


@cache
def _tables() -> dict[str, Any]:
    text = resources.files("paper").joinpath("published.json").read_text("utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables
