"""The numbers that the paper prints.

The paper's own numbers, (mean, standard deviation over 5 runs), to stand beside ours.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from paper.settings import SENSITIVITY

SIMULATION_METRICS = ("accuracy", "kl_aggregate", "sigreg", "cov_deviation", "mean_norm")
"""Columns of Table 1, in its order."""

Printed = tuple[float, float]

# Table 1, (variant, latent) → one (mean, std) per metric
_TABLE_1: dict[tuple[str, str], tuple[Printed, Printed, Printed, Printed, Printed]] = {
    ("A", "s_x"): (
        (0.996, 0.002),
        (0.113, 0.037),
        (4.0e-4, 1.0e-4),
        (0.649, 0.127),
        (0.082, 0.009),
    ),
    ("B", "s_x"): (
        (0.996, 0.002),
        (0.108, 0.032),
        (4.0e-4, 1.0e-4),
        (0.639, 0.113),
        (0.077, 0.018),
    ),
    ("C", "s_x"): (
        (0.996, 0.002),
        (0.110, 0.033),
        (4.0e-4, 1.0e-4),
        (0.647, 0.118),
        (0.077, 0.018),
    ),
    ("D", "s_x"): (
        (0.996, 0.002),
        (0.107, 0.030),
        (3.9e-4, 1.0e-4),
        (0.634, 0.108),
        (0.078, 0.018),
    ),
    ("E", "s_x"): (
        (0.996, 0.002),
        (8.374, 1.944),
        (5.1e-2, 1.9e-2),
        (7.197, 1.522),
        (2.550, 0.607),
    ),
    ("F", "s_x"): (
        (0.996, 0.002),
        (0.098, 0.038),
        (3.0e-4, 1.0e-4),
        (0.597, 0.124),
        (0.083, 0.010),
    ),
    ("G", "s_x"): (
        (0.571, 0.010),
        (0.015, 0.002),
        (1.6e-4, 1.1e-5),
        (0.229, 0.016),
        (0.055, 0.005),
    ),
    ("H", "s_x"): (
        (0.834, 0.044),
        (0.015, 0.001),
        (1.7e-4, 1.4e-5),
        (0.225, 0.008),
        (0.065, 0.006),
    ),
    ("I", "s_x"): (
        (0.995, 0.002),
        (10.465, 2.207),
        (5.7e-2, 1.9e-2),
        (8.807, 1.208),
        (3.100, 0.594),
    ),
    ("J", "s_x"): (
        (0.996, 0.002),
        (2.115, 0.093),
        (3.3e-3, 5.4e-4),
        (2.594, 0.077),
        (0.205, 0.032),
    ),
    ("A", "s_y"): (
        (0.993, 0.001),
        (3.530, 0.377),
        (1.7e-2, 1.7e-3),
        (4.727, 0.528),
        (1.320, 0.180),
    ),
    ("B", "s_y"): (
        (0.992, 0.002),
        (3.511, 0.449),
        (1.4e-2, 3.0e-3),
        (4.748, 0.651),
        (1.272, 0.198),
    ),
    ("C", "s_y"): (
        (0.993, 0.002),
        (1.999, 0.058),
        (4.6e-3, 4.0e-4),
        (3.423, 0.215),
        (0.189, 0.030),
    ),
    ("D", "s_y"): (
        (0.992, 0.002),
        (1.998, 0.057),
        (4.6e-3, 4.0e-4),
        (3.423, 0.216),
        (0.189, 0.030),
    ),
    ("E", "s_y"): (
        (0.993, 0.001),
        (4.051, 0.517),
        (2.1e-2, 3.4e-3),
        (4.985, 0.591),
        (1.589, 0.201),
    ),
    ("F", "s_y"): (
        (0.983, 0.003),
        (6.201, 1.319),
        (2.8e-2, 5.5e-3),
        (6.288, 1.636),
        (1.924, 0.348),
    ),
    ("G", "s_y"): (
        (0.543, 0.033),
        (0.055, 0.006),
        (4.2e-4, 3.2e-5),
        (0.428, 0.021),
        (0.164, 0.019),
    ),
    ("H", "s_y"): (
        (0.821, 0.067),
        (0.017, 0.001),
        (1.6e-4, 1.4e-5),
        (0.239, 0.018),
        (0.067, 0.014),
    ),
    ("I", "s_y"): (
        (0.984, 0.004),
        (20.276, 11.331),
        (8.4e-2, 4.3e-2),
        (11.342, 5.062),
        (4.871, 2.150),
    ),
    ("J", "s_y"): (
        (0.983, 0.001),
        (2.215, 0.249),
        (3.4e-3, 7.8e-4),
        (2.825, 0.271),
        (0.248, 0.068),
    ),
}


def simulation_paper_value(variant: str, latent: str, metric: str) -> Printed:
    """(mean, std) of one cell of Table 1."""
    return _TABLE_1[variant, latent][SIMULATION_METRICS.index(metric)]


# --- The paper's numbers of Section 4.2 and Appendix B, (mean, standard deviation) to stand
# beside
# ours.
#
# ``published.json`` holds every cell of its five tables, one line per line of a table; a
# test
# reads them off the LaTeX source again where that is at hand.

Quoted = tuple[float, float | None]
"""mean and standard deviation over five runs; None where the paper has a single run"""

PAPER_PREDICTORS = ("mlp", "dcn_v2", "resnet", "autoint", "ft_transformer", "xgboost")
PAPER_REPRESENTATIONS = ("raw", "t_jepa", "var_t_jepa")
UNCERTAINTY_METRICS = ("spearman", "auroc", "aurc")


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
