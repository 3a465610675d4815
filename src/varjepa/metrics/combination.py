"""One uncertainty from several, e.g. a latent score and the classifier's own confidence.

Fitted on validation rows whose errors are known, then applied to each row by itself, so nothing can
leak from test rows. Candidates are each score alone and a logistic regression of the errors on the
scores' normal scores Φ⁻¹(rank / n), with and without squares. The candidate with the smallest
out-of-fold AURC is chosen: where a score adds nothing, or there are too few errors to learn from,
the best single score is returned unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.linear_model import LogisticRegression

from varjepa.metrics.selective import aurc

Floats = NDArray[np.float64]
Candidate = int | Literal["linear", "quadratic"]  # a part alone, by its column, or a regression

FOLDS = 10


@dataclass(frozen=True, slots=True)
class CombinedScore:
    """A fitted combination: call it with the parts of new rows."""

    chosen: Candidate
    """column of the part that stays alone, or the regression's form"""
    parts: int
    knots: tuple[tuple[Floats, Floats], ...]
    """per part: distinct validation values and their normal scores"""
    weights: Floats
    """regression weights of the normal scores (and their squares); empty for a part alone"""
    intercept: float
    validation_aurc: Mapping[Candidate, float]
    """out-of-fold AURC of every candidate"""

    def __call__(self, scores: ArrayLike) -> Floats:
        """Uncertainty of each row, ``(n, parts) → (n,)``; only its order has a meaning."""
        values = _columns(scores)
        if values.shape[1] != self.parts:
            raise ValueError(f"expected {self.parts} scores per row, not {values.shape[1]}")
        if isinstance(self.chosen, int):
            return values[:, self.chosen]
        features = _features(values, self.knots, squares=self.chosen == "quadratic")
        return features @ self.weights + self.intercept


def fit_combined_score(scores: ArrayLike, errors: ArrayLike) -> CombinedScore:
    """Learn from validation rows how several uncertainties together predict errors.

    Shape: ``scores (n, parts)``, larger for less certain rows; ``errors (n,)`` of zeros and ones.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(2, 2000))
        >>> errors = rng.random(2000) < 1 / (1 + np.exp(3 - scores.sum(0)))
        >>> combined = fit_combined_score(scores.T, errors)
        >>> combined.chosen
        'linear'
        >>> aurc(errors, combined(scores.T)) < min(aurc(errors, part) for part in scores)
        True
    """
    values, wrong = _columns(scores), np.asarray(errors, dtype=np.float64)
    if wrong.shape != (len(values),) or not np.isin(wrong, (0, 1)).all():
        raise ValueError(f"expected {len(values)} errors of 0 or 1")
    parts = range(values.shape[1])
    areas: dict[Candidate, float] = {part: aurc(wrong, values[:, part]) for part in parts}
    folds = min(FOLDS, int(wrong.sum()), int((1 - wrong).sum()))
    if folds > 1 and len(parts) > 1:
        fold = _folds(values, wrong, folds)
        for form in ("linear", "quadratic"):
            out_of_fold = np.empty(len(wrong))
            for here in (fold == i for i in range(folds)):
                out_of_fold[here] = _regress(values[~here], wrong[~here], form, {})(values[here])
            areas[form] = aurc(wrong, out_of_fold)
    chosen = min(areas, key=lambda candidate: areas[candidate])
    if isinstance(chosen, int):
        return CombinedScore(chosen, len(parts), (), np.empty(0), 0.0, areas)
    return _regress(values, wrong, chosen, areas)


def _regress(
    values: Floats,
    wrong: Floats,
    form: Literal["linear", "quadratic"],
    areas: Mapping[Candidate, float],
) -> CombinedScore:
    knots = tuple(_normal_scores(column) for column in values.T)
    features = _features(values, knots, squares=form == "quadratic")
    model = LogisticRegression().fit(features, wrong)
    return CombinedScore(
        form, values.shape[1], knots, model.coef_[0], float(model.intercept_[0]), areas
    )


def _features(values: Floats, knots: tuple[tuple[Floats, Floats], ...], *, squares: bool) -> Floats:
    # between validation values: interpolated; beyond them: the nearest one's score
    normal = np.stack([np.interp(v, *k) for v, k in zip(values.T, knots, strict=True)], axis=1)
    return np.hstack((normal, normal**2)) if squares else normal


def _normal_scores(column: Floats) -> tuple[Floats, Floats]:
    distinct, counts = np.unique(column, return_counts=True)
    middle_rank = (np.cumsum(counts) - counts / 2) / len(column)
    return distinct, ndtri(middle_rank)


def _folds(values: Floats, wrong: Floats, folds: int) -> NDArray[np.int64]:
    """Folds with equal shares of errors, decided by the rows themselves and not by their order."""
    order = np.lexsort((*values.T[::-1], wrong))
    fold = np.empty(len(wrong), dtype=np.int64)
    fold[order] = np.arange(len(wrong)) % folds
    return fold


def _columns(scores: ArrayLike) -> Floats:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"expected scores (n, parts), not {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("uncertainties must be finite")
    return values
