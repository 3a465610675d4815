"""Scores that are judged by the true ambiguity u alone: there is no classifier that could err.

``balanced``  how unlikely a row's values are given its other columns, numbers and categories in
              equal parts, over many splits of the columns; beyond the paper.
``bound``     no score of ours: boosted trees that are told the u of the training rows. A score that
              never sees u can hardly be expected to find it better than they do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from varjepa.datasets.dataset import Split
from varjepa.downstream import RawFeatures
from varjepa.downstream.encoding import RawEncoder
from varjepa.environment import describe_environment
from varjepa.estimators import VarTJEPA
from varjepa.estimators.parameters import pick_device
from varjepa.evaluation.ambiguity import auroc_of_ambiguous, spearman
from varjepa.experiments.results import Row, rounded
from varjepa.experiments.uncertainty_scores import BALANCED, TOLD

Floats = NDArray[np.float64]


BALANCED_SPLITS = 32
"""where Spearman's ρ with u hardly rises any more on SIM's validation rows
(results/sim-balanced.json)"""


def balanced_row(estimator: VarTJEPA, table: pa.Table, ambiguity: Floats, split: Split) -> Row:
    """How well the balanced score finds ambiguous rows."""
    held_out, test = (
        estimator.uncertainty(table.take(rows), "nll", "balanced", splits=BALANCED_SPLITS)
        for rows in (split.validation, split.test)
    )
    device = str(pick_device(estimator.device))
    return {
        **_row("balanced", BALANCED, test, ambiguity[split.test], device),
        "validation_spearman": rounded(spearman(held_out, ambiguity[split.validation])),
    }


def bound_row(raw: RawFeatures, ambiguity: Floats, split: Split) -> Row:
    """How well somebody finds ambiguous rows who is told the ambiguity of others."""
    score = told_ambiguity(raw, ambiguity, split)
    return _row("bound", TOLD, score, ambiguity[split.test], "cpu")


def told_ambiguity(raw: RawFeatures, ambiguity: Floats, split: Split) -> Floats:
    """U of the test rows, predicted by boosted trees from the raw columns.  # (n_test,)"""
    encoder = RawEncoder("one-hot", "minmax").fit(raw.rows(split.train))
    columns = encoder.transform(raw).numeric
    trees = HistGradientBoostingRegressor(random_state=0, early_stopping=False)
    trees.fit(columns[split.train], ambiguity[split.train])
    found: Floats = trees.predict(columns[split.test])
    return found


def _row(
    arrangement: str, name: str, score: NDArray[np.floating[Any]], truth: Floats, device: str
) -> Row:
    return {
        "arrangement": arrangement,
        "score": name,
        "latent": None,
        "seed": 0,
        "spearman": rounded(spearman(score, truth)),
        "auroc": rounded(auroc_of_ambiguous(score, truth)),
        "validation_spearman": None,
        **dict.fromkeys(("aurc", "aurc_trapezoid", "aurc_collapsed", "augrc", "error_rate")),
        "environment": describe_environment(device),
    }
