"""Guarantees in plain words: what a threshold promises, or why it promises nothing."""

from __future__ import annotations

from varjepa.selective.thresholds import Threshold, rows_needed


def coverage_sentence(
    found: Threshold, coverage: float, interval: tuple[float, float], confidence: float
) -> str:
    """What a threshold for a share of answered rows promises."""
    low, high = (_percent(round(end, 3)) for end in interval)
    return (
        f"A new row is answered with a chance of at least {_percent(coverage)}; with "
        f"{_percent(confidence)} confidence {low} to {high} of rows are, or more where "
        f"uncertainties tie ({found.rows} calibration rows)."
    )


def risk_sentence(found: Threshold, target_risk: float, confidence: float) -> str:
    """What a threshold for an error rate promises, or why there is none."""
    sure, target = _percent(confidence), _percent(target_risk)
    if found.accepted:
        return (
            f"With {sure} confidence at most {target} of the answered rows are wrong "
            f"({found.rows} calibration rows)."
        )
    needed = rows_needed(target_risk, confidence)
    why = (
        f"{found.rows} calibration rows are too few, at least {needed} are needed"
        if found.rows < needed
        else f"{found.rows} calibration rows do not show it for any threshold"
    )
    return (
        f"No row is answered: an error rate of {target} cannot be certified with {sure} "
        f"confidence, since {why}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"
