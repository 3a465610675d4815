"""How uncertain a fitted classifier is of each row: by its own outputs, or by anything given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from varjepa.errors import InputError
from varjepa.evaluation.posthoc import one_minus_margin, one_minus_msp, predictive_entropy

Floats = NDArray[np.float64]
AbstainBy = str | Callable[[Any, Any], ArrayLike]

FROM_PROBABILITIES: dict[str, Callable[[ArrayLike], Floats]] = {
    "confidence": one_minus_msp,
    "margin": one_minus_margin,
    "entropy": predictive_entropy,
}


def check_abstain_by(abstain_by: AbstainBy) -> None:
    """One of the named uncertainties, or a function."""
    if not callable(abstain_by) and abstain_by not in FROM_PROBABILITIES:
        names = ", ".join(FROM_PROBABILITIES)
        raise InputError(f"abstain_by must be one of {names} or a function, not {abstain_by!r}")


def uncertainty_of(estimator: Any, X: Any, abstain_by: AbstainBy) -> Floats:
    """One number per row, larger for less certain rows.  # (n,)"""
    if callable(abstain_by):
        return _one_per_row(abstain_by(estimator, X), X)
    if hasattr(estimator, "predict_proba"):
        return FROM_PROBABILITIES[abstain_by](estimator.predict_proba(X))
    if abstain_by == "entropy" or not hasattr(estimator, "decision_function"):
        raise InputError(
            f"abstain_by={abstain_by!r} needs a classifier with predict_proba, which "
            f"{type(estimator).__name__} does not have"
        )
    # without probabilities, the lead of the winning class is the only scale there is
    decisions = np.asarray(estimator.decision_function(X), dtype=np.float64)
    if decisions.ndim == 1:
        return -np.abs(decisions)
    lead = np.sort(decisions, axis=1)
    return lead[:, -2] - lead[:, -1]


def _one_per_row(uncertainty: ArrayLike, X: Any) -> Floats:
    values = np.asarray(uncertainty, dtype=np.float64)
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if values.shape != (rows,):
        raise InputError(
            f"the abstain_by function must give one number for each of {rows} rows, "
            f"not an array of shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise InputError("the abstain_by function gave uncertainties that are not finite")
    return values
