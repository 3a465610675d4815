"""Scores of predictions, by coverage and by number of labels.

The low-label curve: how good a linear model is when only few training rows have a label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from varjepa.downstream import Inputs
from varjepa.evaluate.cells import Cell, Floats, losses
from varjepa.evaluate.few_labels import COMPARED, labelled_rows, linear_guesses, sizes_that_fit
from varjepa.evaluate.settings import Target
from varjepa.evaluate.splits import Split
from varjepa.metrics.combination import fit_combined_score
from varjepa.metrics.confidence import one_minus_msp
from varjepa.metrics.selective import (
    COVERAGES,
    augrc,
    aurc,
    classification_by_coverage,
    kept_weights,
    risk_coverage,
)

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


# --- Figures of a cell: how good it is on all test rows, and on those it would keep.

CONFIDENCE = "confidence"
"""1 − the classifier's largest probability"""
COMBINED = "combined"
"""the latent scores and the confidence, combined on validation rows"""
DISAGREEMENT = "disagreement"
"""standard deviation of the predicted number over the trainings of a predictor"""

CURVE_POINTS = 400
"""points of a drawn risk–coverage curve, at most"""

Scores = dict[str, Floats]


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of ``evaluate.json``."""

    representation: str
    predictor: str
    run: int
    score: str
    """what decides which rows are kept"""
    coverage: float
    values: dict[str, float]
    """accuracy, f1_macro, f1_weighted, or rmse, r2"""


@dataclass(frozen=True, slots=True)
class Areas:
    """One uncertainty on one cell, all coverages at once, mean over runs."""

    score: str
    aurc: float
    augrc: float


def uncertainties(
    cell: Cell, run: int, latent: Mapping[str, Floats], truth: NDArray[Any], split: Split
) -> Scores:
    """Every uncertainty of the test rows; what has to be learnt is learnt on validation rows."""
    found = {kind: score[split.test] for kind, score in latent.items()}
    if cell.classes is None:
        spread = cell.test.astype(np.float64).std(0)
        return found | ({DISAGREEMENT: spread} if spread.any() else {})
    found[CONFIDENCE] = one_minus_msp(cell.test[run])
    if latent:
        on_validation = [score[split.validation] for score in latent.values()]
        parts = np.stack([*on_validation, one_minus_msp(cell.validation[run])], axis=1)
        wrong = losses(cell, cell.validation, truth[split.validation])[run]
        found[COMBINED] = fit_combined_score(parts, wrong)(np.stack(list(found.values()), axis=1))
    return found


def figures(
    cell: Cell, latent: Mapping[str, Floats], truth: NDArray[Any], split: Split
) -> list[Figure]:
    """Scores of every run, by every uncertainty, at every coverage."""
    rows = []
    test = truth[split.test]
    for run, guess in enumerate(cell.guesses(cell.test)):
        for score, uncertainty in uncertainties(cell, run, latent, truth, split).items():
            for coverage, values in _by_coverage(cell, test, guess, uncertainty):
                rows.append(
                    Figure(cell.representation, cell.predictor, run, score, coverage, values)
                )
    if not rows:  # numbers without any uncertainty: all rows are kept
        for run, guess in enumerate(cell.guesses(cell.test)):
            ((_, values), *_) = _by_coverage(cell, test, guess, np.zeros(len(test)))
            rows.append(Figure(cell.representation, cell.predictor, run, "none", 1.0, values))
    return rows


def _by_coverage(
    cell: Cell, truth: NDArray[Any], guess: NDArray[Any], uncertainty: Floats
) -> list[tuple[float, dict[str, float]]]:
    if cell.classes is not None:
        found = classification_by_coverage(truth, guess, uncertainty)
        return [
            (s.coverage, {"accuracy": s.accuracy, "f1_macro": s.f1_macro}
             | {"f1_weighted": s.f1_weighted})
            for s in found
        ]  # fmt: skip
    return [(c, _regression_at(truth, guess, kept_weights(uncertainty, c))) for c in COVERAGES]


def _regression_at(truth: Floats, guess: Floats, weights: Floats) -> dict[str, float]:
    """RMSE and R² on the rows kept; R² compares with the mean of the same rows."""
    square = np.average((truth - guess) ** 2, weights=weights)
    kept = weights > 0
    r2 = 0.0  # of a single row there is no variance to explain
    if kept.sum() > 1:
        r2 = float(r2_score(truth[kept], guess[kept], sample_weight=weights[kept]))
    return {"rmse": float(np.sqrt(square)), "r2": r2}


def areas(
    cell: Cell, latent: Mapping[str, Floats], truth: NDArray[Any], split: Split
) -> list[Areas]:
    """AURC (mean of the running risk) and AUGRC of every uncertainty, with both bounds."""
    lost = losses(cell, cell.test, truth[split.test])
    found: dict[str, list[tuple[float, float]]] = {}
    for run, loss in enumerate(lost):
        for name, score in _with_bounds(
            uncertainties(cell, run, latent, truth, split), loss
        ).items():
            found.setdefault(name, []).append((aurc(loss, score), augrc(loss, score)))
    return [Areas(name, *np.mean(values, axis=0).tolist()) for name, values in found.items()]


def curves(
    cell: Cell, latent: Mapping[str, Floats], truth: NDArray[Any], split: Split
) -> tuple[Floats, Scores]:
    """Risk among the rows kept by coverage, mean over runs: error rate, or RMSE."""
    lost = losses(cell, cell.test, truth[split.test])
    found: dict[str, list[Floats]] = {}
    for run, loss in enumerate(lost):
        for name, score in _with_bounds(
            uncertainties(cell, run, latent, truth, split), loss
        ).items():
            risk = risk_coverage(loss, score).risk
            found.setdefault(name, []).append(np.sqrt(risk) if cell.classes is None else risk)
    n = lost.shape[1]
    shown = np.unique(np.linspace(0, n - 1, min(n, CURVE_POINTS)).round().astype(int))
    return (shown + 1) / n, {name: np.mean(v, axis=0)[shown] for name, v in found.items()}


def best_score(
    cell: Cell, latent: Mapping[str, Floats], truth: NDArray[Any], split: Split
) -> str | None:
    """The latent score with the least AURC on the validation rows; None where there is none."""
    lost = losses(cell, cell.validation, truth[split.validation]).mean(0)
    found = {kind: aurc(lost, score[split.validation]) for kind, score in latent.items()}
    return min(found, key=lambda kind: found[kind]) if found else None


def paired_difference(cell: Cell, other: Cell, truth: NDArray[Any]) -> tuple[float, float]:
    """How much better ``cell`` is than ``other`` on the same test rows, and its standard error.

    Accuracy, or minus the RMSE. The error is that of drawing the test rows: both are judged on the
    same ones, so what makes a row hard for both cancels. For the RMSE by the delta method.
    """
    mine, theirs = (losses(c, c.test, truth).mean(0) for c in (cell, other))  # (n,)
    if cell.classes is not None:
        gain = theirs - mine
        return float(gain.mean()), _standard_error(gain)
    a, b = np.sqrt(theirs.mean()), np.sqrt(mine.mean())
    if a == 0 or b == 0:
        return float(a - b), 0.0
    return float(a - b), _standard_error(theirs / (2 * a) - mine / (2 * b))


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _with_bounds(scores: Scores, loss: Floats) -> Scores:
    return scores | {"random": np.zeros(len(loss)), "oracle": loss}
