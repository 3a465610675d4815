"""The scores of the uncertainty study: their names, and those that are combined from others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from varjepa.evaluation.combination import fit_combined_score
from varjepa.experiments.embeddings import SCORES
from varjepa.models.var_t_jepa.scoring import KINDS, usual_aggregate

Floats = NDArray[np.float64]

LATENT = "latent"
"""the paper's row: the latent score that the setting ranks by"""
POSTHOC = ("probe entropy", "probe msp", "mc dropout", "deep ensemble")
"""the paper's baselines"""
OWN = ("own entropy", "own msp")
"""of the shared classifier"""
COMBINED = ("combined", "combined with ensemble")
"""latent scores with the classifier's confidence and the probe's doubt; these with the doubts of
dropout and ensemble as well"""
DOUBTS = {f"{name} doubt": name for name in ("probe", "mc dropout", "deep ensemble")}
"""what each gives to all classes but the answer of the shared classifier"""
BOUNDS = ("random", "oracle")

TOLD = "told u"
"""the one score of the arrangement "bound"; where there is a true ambiguity"""

BALANCED = "nll balanced"
"""the one score of the arrangement "balanced"; of datasets with a true ambiguity
and columns of both kinds"""

_ALONE = (*(f"{kind} {usual_aggregate(kind)}" for kind in KINDS), *OWN, "probe doubt")

COMBINED_PARTS: Mapping[str, tuple[str, ...]] = {
    COMBINED[0]: _ALONE,
    COMBINED[1]: (*_ALONE, "mc dropout doubt", "deep ensemble", "deep ensemble doubt"),
}
"""what each is combined from"""

SHARED_SCORES = (*SCORES, *POSTHOC, *OWN, *DOUBTS, *COMBINED, *BOUNDS)
PAPER_SCORES = (LATENT, *POSTHOC)


@dataclass(frozen=True, slots=True)
class Judged:
    """Scores of some rows, with the mistakes of one classifier on them."""

    scores: Mapping[str, Floats]
    wrong: Floats


def combine(held_out: Judged, test: Judged) -> dict[str, Floats]:
    """The combined scores of the test rows, learned from the validation rows' errors."""

    def columns(judged: Judged, names: Sequence[str]) -> Floats:
        return np.stack([judged.scores[name] for name in names], axis=1)

    return {
        title: fit_combined_score(columns(held_out, names), held_out.wrong)(columns(test, names))
        for title, names in COMBINED_PARTS.items()
    }
