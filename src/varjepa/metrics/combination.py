"""One uncertainty from several, e.g. a latent score and the classifier's own confidence.

Fitted on validation rows whose errors are known, then applied to each row by itself, so nothing can
leak from test rows. Regressions are logistic, of the errors on the scores' normal scores
Φ⁻¹(rank / n).

``add_to_confidence`` starts from the classifier's confidence, which is nearly always the best
single score: other scores get small weights, and only if they clearly lower the AURC.
``fit_combined_score``, which the paper's tables use, treats all scores alike: candidates are each
score alone and a regression with and without squares, and the smallest out-of-fold AURC wins. With
few errors that picks by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.linear_model import LogisticRegression

from varjepa.metrics.selective import aurc

Floats = NDArray[np.float64]
Candidate = int | Literal["confidence", "linear", "quadratic"]
"""A part alone, by its column or as the last one, or a regression."""

FOLDS = 10


@dataclass(frozen=True, slots=True)
class CombinedScore:
    """A fitted combination: call it with the parts of new rows."""

    chosen: Candidate
    """column of the part that stays alone, "confidence" for the last, or the regression's form"""
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
        if self.chosen == "confidence":
            return values[:, -1]
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
    values, wrong = _checked(scores, errors)
    parts = range(values.shape[1])
    areas: dict[Candidate, float] = {part: aurc(wrong, values[:, part]) for part in parts}
    folds = min(FOLDS, int(wrong.sum()), int((1 - wrong).sum()))
    if folds > 1 and len(parts) > 1:
        fold = _folds(values, wrong, folds)
        for form in ("linear", "quadratic"):
            out_of_fold = np.empty(len(wrong))
            for here in (fold == i for i in range(folds)):
                out_of_fold[here] = _regress(values[~here], wrong[~here], form)(values[here])
            areas[form] = aurc(wrong, out_of_fold)
    chosen = min(areas, key=lambda candidate: areas[candidate])
    if isinstance(chosen, int):
        return CombinedScore(chosen, len(parts), (), np.empty(0), 0.0, areas)
    return replace(_regress(values, wrong, chosen), validation_aurc=areas)


RIDGES = (100.0, 300.0, 1000.0)
"""Penalties of the weights of all scores but the confidence."""

STANDARD_ERRORS = 1.5
"""By which they must lower the AURC."""

_FREE = 100.0
"""Scale of the confidence, so that the penalty does not reach its weight."""


def add_to_confidence(scores: ArrayLike, errors: ArrayLike) -> CombinedScore:
    """Add scores to a classifier's confidence, where that foresees its errors clearly better.

    Shape: ``scores (n, parts)``, larger for less certain rows, the confidence last; ``errors (n,)``
    of zeros and ones.

    A logistic regression with a free weight of the confidence and a ridge penalty on the others'.
    The penalty with the smallest AURC, mean over ten folds, is taken; and with it the regression,
    if its AURC is below that of the confidence by more than 1.5 standard errors of their
    difference over the folds: ``chosen`` is "linear". Else, and where there are fewer than ten
    errors, the confidence stays alone: ``chosen`` is "confidence".

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(2000, 2))
        >>> errors = rng.random(2000) < 1 / (1 + np.exp(3 - scores.sum(1)))
        >>> add_to_confidence(scores, errors).chosen
        'linear'
    """
    values, wrong = _checked(scores, errors)
    count = values.shape[1]
    area = aurc(wrong, values[:, -1])
    alone = CombinedScore("confidence", count, (), np.empty(0), 0.0, {"confidence": area})
    if min(wrong.sum(), (1 - wrong).sum()) < FOLDS or count == 1:
        return alone
    fold = _folds(values, wrong, FOLDS)
    parts = [fold == i for i in range(FOLDS)]

    def over_folds(fit: Callable[[Floats, Floats], CombinedScore]) -> Floats:
        combined = (fit(values[~here], wrong[~here])(values[here]) for here in parts)
        return np.array([aurc(wrong[here], one) for here, one in zip(parts, combined, strict=True)])

    own = over_folds(lambda *_: alone)
    areas = {r: over_folds(partial(_regress_around, ridge=r)) for r in RIDGES}
    best = min(areas, key=lambda ridge: areas[ridge].mean())
    gain = own - areas[best]
    if gain.mean() <= STANDARD_ERRORS * gain.std(ddof=1) / np.sqrt(FOLDS):
        return alone
    means: dict[Candidate, float] = {
        "confidence": float(own.mean()),
        "linear": float(areas[best].mean()),
    }
    return replace(_regress_around(values, wrong, best), validation_aurc=means)


def _regress_around(values: Floats, wrong: Floats, ridge: float) -> CombinedScore:
    """A regression whose penalty leaves out the last part."""
    return _regress(values, wrong, "linear", ridge, np.append(np.ones(values.shape[1] - 1), _FREE))


def _regress(
    values: Floats, wrong: Floats, form: Candidate, ridge: float = 1.0, scale: Floats | float = 1.0
) -> CombinedScore:
    knots = tuple(_normal_scores(column) for column in values.T)
    features = _features(values, knots, squares=form == "quadratic") * scale
    model = LogisticRegression(C=1 / ridge, max_iter=500).fit(features, wrong)
    weights = model.coef_[0] * scale
    return CombinedScore(form, values.shape[1], knots, weights, float(model.intercept_[0]), {})


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


def _checked(scores: ArrayLike, errors: ArrayLike) -> tuple[Floats, Floats]:
    values, wrong = _columns(scores), np.asarray(errors, dtype=np.float64)
    if wrong.shape != (len(values),) or not np.isin(wrong, (0, 1)).all():
        raise ValueError(f"expected {len(values)} errors of 0 or 1")
    return values, wrong


def _columns(scores: ArrayLike) -> Floats:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"expected scores (n, parts), not {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("uncertainties must be finite")
    return values
