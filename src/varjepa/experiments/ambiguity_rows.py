"""Scores that are judged by the true ambiguity u alone: there is no classifier that could err.

``pair``    two latent scores together; beyond the paper.
``bound``   no score of ours: boosted trees that are told the u of the training rows. A score that
            never sees u cannot be expected to find it better than they do; where they are weak, a
            weak score says little about the score.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from varjepa.datasets.dataset import Split
from varjepa.downstream import RawFeatures
from varjepa.downstream.encoding import RawEncoder
from varjepa.environment import describe_environment
from varjepa.evaluation.ambiguity import auroc_of_ambiguous, spearman
from varjepa.experiments.results import Row
from varjepa.experiments.uncertainty_scores import TOLD, pair_scores

Floats = NDArray[np.float64]


def pair_rows(
    scores: Mapping[str, Floats],  # of all rows: (N,)
    ambiguity: Floats,  # (N,)
    split: Split,
) -> list[Row]:
    """How well two latent scores together find ambiguous rows."""
    test, held_out = split.test, split.validation
    return [
        {
            **_row("pair", name, score[test], ambiguity[test]),
            "validation_spearman": rounded(spearman(score[held_out], ambiguity[held_out])),
        }
        for name, score in pair_scores(scores).items()
    ]


def bound_row(raw: RawFeatures, ambiguity: Floats, split: Split) -> Row:
    """How well somebody finds ambiguous rows who is told the ambiguity of others."""
    return _row("bound", TOLD, told_ambiguity(raw, ambiguity, split), ambiguity[split.test])


def told_ambiguity(raw: RawFeatures, ambiguity: Floats, split: Split) -> Floats:
    """U of the test rows, predicted by boosted trees from the raw columns.  # (n_test,)"""
    encoder = RawEncoder("one-hot", "minmax").fit(raw.rows(split.train))
    columns = encoder.transform(raw).numeric
    trees = HistGradientBoostingRegressor(random_state=0, early_stopping=False)
    trees.fit(columns[split.train], ambiguity[split.train])
    found: Floats = trees.predict(columns[split.test])
    return found


def rounded(value: float) -> float | None:
    """A figure as it is written down; nothing where there is none."""
    return round(value, 6) if np.isfinite(value) else None


def _row(arrangement: str, name: str, score: Floats, truth: Floats) -> Row:
    return {
        "arrangement": arrangement,
        "score": name,
        "latent": None,
        "seed": 0,
        "spearman": rounded(spearman(score, truth)),
        "auroc": rounded(auroc_of_ambiguous(score, truth)),
        "validation_spearman": None,
        **dict.fromkeys(("aurc", "aurc_trapezoid", "aurc_collapsed", "augrc", "error_rate")),
        "environment": describe_environment("cpu"),
    }
