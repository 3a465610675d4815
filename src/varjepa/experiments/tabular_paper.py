"""The paper's numbers of Section 4.2 and Appendix B, (mean, standard deviation) to stand beside
ours.

``paper_tables.json`` holds every cell of its five tables, one line per line of a table; a test
reads them off the LaTeX source again where that is at hand.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from varjepa.experiments.tabular_settings import SENSITIVITY

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
    text = resources.files("varjepa.experiments").joinpath("paper_tables.json").read_text("utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables
