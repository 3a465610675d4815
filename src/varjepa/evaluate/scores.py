"""Scores of predictions: on all test rows, by coverage and by number of labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from varjepa.estimators.selective import coverage_threshold
from varjepa.evaluate.predictors import COMPARED, labelled_rows, linear_guesses, sizes_that_fit
from varjepa.evaluate.splits import Index, Split, Target
from varjepa.metrics.combination import add_to_confidence
from varjepa.metrics.confidence import one_minus_msp
from varjepa.metrics.selective import (
    COVERAGES,
    augrc,
    aurc,
    classification_at,
    kept_weights,
    risk_coverage,
)

CONFIDENCE = "confidence"
"""1 − the classifier's largest probability"""
COMBINED = "combined"
"""the confidence, with the latent scores added where validation rows say that they help"""
DISAGREEMENT = "disagreement"
"""standard deviation of the predicted number over the training runs of a predictor"""

REPEATS = 10
"""random choices of the rows that have a label"""
CURVE_POINTS = 400
"""points of a drawn risk–coverage curve, at most"""

Row = dict[str, Any]
Floats = NDArray[np.float64]
Latent = Mapping[str, Floats]
"""latent uncertainties by name, of all rows; larger is less certain"""


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Predictions of R training runs of one predictor on one representation."""

    representation: str
    predictor: str
    validation: NDArray[Any]  # (R, n_validation, C) float32 probabilities, or (R, n_validation)
    test: NDArray[Any]  # (R, n_test, C), or (R, n_test) float64 numbers
    classes: Index | None  # (C,) class numbers of the columns; None for numbers
    seconds: float
    """all runs together"""

    @property
    def is_deterministic(self) -> bool:
        return bool((self.test == self.test[:1]).all())

    def guesses(self, part: NDArray[Any]) -> NDArray[Any]:
        """Class numbers or numbers.  # (R, n)"""
        return part if self.classes is None else self.classes[part.argmax(-1)]

    def losses(self, part: NDArray[Any], truth: NDArray[Any]) -> Floats:
        """Errors (0 or 1), or squared errors.  # (R, n)"""
        guesses = self.guesses(part)
        if self.classes is None:
            return (guesses.astype(np.float64) - truth) ** 2
        return (guesses != truth).astype(np.float64)


# --- Choices, on validation rows


def best_on_validation(cells: Sequence[Cell], truth: NDArray[Any]) -> Cell:
    """The cell with the least mean loss on the validation rows."""
    return min(cells, key=lambda cell: float(cell.losses(cell.validation, truth).mean()))


def best_score(cell: Cell, latent: Latent, truth: NDArray[Any], split: Split) -> str | None:
    """The latent score with the least AURC on the validation rows; None where there is none."""
    loss = cell.losses(cell.validation, truth[split.validation]).mean(0)
    areas = {kind: aurc(loss, score[split.validation]) for kind, score in latent.items()}
    return min(areas, key=lambda kind: areas[kind]) if areas else None


def thresholds(uncertainty: Floats) -> dict[str, float | None]:
    """By coverage, the largest uncertainty to answer; None where all rows have to be answered."""
    values = {c: coverage_threshold(uncertainty, c).value for c in COVERAGES if c < 1}
    return {f"{c:.0%}": v if np.isfinite(v) else None for c, v in values.items()}


# --- Test rows, by coverage


def uncertainties(
    cell: Cell, run: int, latent: Latent, truth: NDArray[Any], split: Split
) -> dict[str, Floats]:
    """Every uncertainty of the test rows; what has to be learnt is learnt on validation rows."""
    results = {kind: score[split.test] for kind, score in latent.items()}
    if cell.classes is None:
        spread = cell.test.astype(np.float64).std(0)
        return results | ({DISAGREEMENT: spread} if spread.any() else {})
    results[CONFIDENCE] = one_minus_msp(cell.test[run])
    if latent:
        on_validation = [score[split.validation] for score in latent.values()]
        parts = np.stack([*on_validation, one_minus_msp(cell.validation[run])], axis=1)
        wrong = cell.losses(cell.validation, truth[split.validation])[run]
        results[COMBINED] = add_to_confidence(parts, wrong)(
            np.stack(list(results.values()), axis=1)
        )
    return results


def score_cell(cell: Cell, latent: Latent, truth: NDArray[Any], split: Split) -> list[Row]:
    """Scores of every run, by every uncertainty, at every coverage."""
    rows = []
    for run, guess in enumerate(cell.guesses(cell.test)):
        scores = uncertainties(cell, run, latent, truth, split)
        coverages: Sequence[float] = COVERAGES
        if not scores:  # numbers without any uncertainty: all rows are answered
            scores, coverages = {"none": np.zeros(len(guess))}, (1.0,)
        for score, values in scores.items():
            for coverage in coverages:
                figures = _figures(cell, truth[split.test], guess, values, coverage)
                rows.append({"run": run, "score": score, "coverage": coverage, **figures})
    return rows


def _figures(
    cell: Cell, truth: NDArray[Any], guess: NDArray[Any], uncertainty: Floats, coverage: float
) -> dict[str, float]:
    """Accuracy and F1, or RMSE and R², on the rows answered."""
    if cell.classes is not None:
        results = asdict(classification_at(truth, guess, uncertainty, coverage))
        return {name: value for name, value in results.items() if name != "coverage"}
    weights = kept_weights(uncertainty, coverage)
    square = np.average((truth - guess) ** 2, weights=weights)
    answered = weights > 0
    r2 = 0.0  # of a single row there is no variance to explain
    if answered.sum() > 1:  # compared with the mean of the same rows
        r2 = float(r2_score(truth[answered], guess[answered], sample_weight=weights[answered]))
    return {"rmse": float(np.sqrt(square)), "r2": r2}


def risk_curves(
    cell: Cell, latent: Latent, truth: NDArray[Any], split: Split
) -> tuple[list[Row], tuple[Floats, dict[str, Floats]]]:
    """AURC (mean of the running risk) and AUGRC of every uncertainty with both bounds, mean over
    runs; coverages, and the risk at each: error rate, or RMSE.
    """
    losses = cell.losses(cell.test, truth[split.test])
    areas: dict[str, list[tuple[float, float]]] = {}
    risks: dict[str, list[Floats]] = {}
    for run, loss in enumerate(losses):
        bounds = {"random": np.zeros(len(loss)), "oracle": loss}
        for name, score in (uncertainties(cell, run, latent, truth, split) | bounds).items():
            risk = risk_coverage(loss, score).risk
            areas.setdefault(name, []).append((aurc(loss, score), augrc(loss, score)))
            risks.setdefault(name, []).append(np.sqrt(risk) if cell.classes is None else risk)
    rows = []
    for name, values in areas.items():
        mean = np.mean(values, axis=0).tolist()
        rows.append({"score": name, "aurc": mean[0], "augrc": mean[1]})
    n = losses.shape[1]
    shown = np.unique(np.linspace(0, n - 1, min(n, CURVE_POINTS)).round().astype(int))
    curves = {name: np.mean(v, axis=0)[shown] for name, v in risks.items()}
    return rows, ((shown + 1) / n, curves)


def score_cells(
    cells: Sequence[Cell], latent: Latent, target: Target, split: Split
) -> dict[str, list[Row]]:
    """Every cell's validation loss, its figures on test rows, and its gain over raw features."""
    truth = target.values
    results: dict[str, list[Row]] = {"cells": [], "figures": [], "gains_over_raw": []}
    raw = {cell.predictor: cell for cell in cells if cell.representation == "raw"}
    for cell in cells:
        place = {"representation": cell.representation, "predictor": cell.predictor}
        loss = float(cell.losses(cell.validation, truth[split.validation]).mean())
        about = {"validation_loss": loss, "seconds": round(cell.seconds, 2)}
        results["cells"].append({**place, **about})
        results["figures"] += [{**place, **row} for row in score_cell(cell, latent, truth, split)]
        if cell.representation != "raw" and cell.predictor in raw:
            gain, error = paired_difference(cell, raw[cell.predictor], truth[split.test])
            results["gains_over_raw"].append({**place, "gain": gain, "standard_error": error})
    return results


def paired_difference(cell: Cell, other: Cell, truth: NDArray[Any]) -> tuple[float, float]:
    """How much better ``cell`` is than ``other`` on the same test rows, and its standard error.

    Accuracy, or minus the RMSE. The error is that of sampling the test rows: both are evaluated on
    the same ones, so what makes a row hard for both cancels. For the RMSE by the delta method.
    """
    mine, theirs = (c.losses(c.test, truth).mean(0) for c in (cell, other))  # (n,)
    if cell.classes is not None:
        gain = theirs - mine
        return float(gain.mean()), _standard_error(gain)
    a, b = np.sqrt(theirs.mean()), np.sqrt(mine.mean())
    if a == 0 or b == 0:
        return float(a - b), 0.0
    return float(a - b), _standard_error(theirs / (2 * a) - mine / (2 * b))


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def constant_guess(target: Target, split: Split) -> float:
    """Accuracy of the most frequent class, or RMSE of the mean, of the training rows."""
    train, test = target.values[split.train], target.values[split.test]
    if target.classes:
        return float(np.mean(test == np.bincount(train).argmax()))
    return float(np.sqrt(np.mean((test - train.mean()) ** 2)))


# --- Few labels


def low_label_curve(
    features: Mapping[str, Callable[[Index], Floats]], target: Target, split: Split, seed: int
) -> list[Row]:
    """A linear model of every representation with every number of labels that fits.

    The standard error is over the choices of the labelled rows; the test rows stay the same.
    """
    sizes = sizes_that_fit(len(split.train))
    if not sizes:
        return []
    orders = [labelled_rows(split.train, max(sizes), seed, repeat) for repeat in range(REPEATS)]
    truth, rows = target.values[split.test], []
    for name in (name for name in COMPARED if name in features):
        guesses = linear_guesses(
            features[name], target.values, target.task, split.test, orders, sizes
        )
        if target.classes:
            scores = (guesses == truth).mean(-1)  # (repeats, sizes)
        else:
            scores = np.sqrt(((guesses - truth) ** 2).mean(-1))
        for size, values in zip(sizes, scores.T, strict=True):
            mean, error = float(values.mean()), _standard_error(values)
            point = {"labels": size, "mean": mean, "standard_error": error}
            rows.append({"representation": name, **point})
    return rows
