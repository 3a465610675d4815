"""Claims about selective metrics.

- The worked example of five rows gives the golden values to 1e-12, in every named estimator.
- All scores tied gives the error rate; ties and row order never matter, to the last bit.
- AUGRC = (1 − AUROC_f) · acc · err + err² / 2.
- No uncertainty is better than the oracle or worse than its reverse.
- A cut through a tie keeps the group's mean.
- AUROC_f is scikit-learn's.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from varjepa.metrics.ambiguity import auroc_of_ambiguous, spearman
from varjepa.metrics.selective import (
    AurcEstimator,
    accuracy_at,
    augrc,
    aurc,
    auroc_failure,
    kept_weights,
    risk_at,
    risk_coverage,
    selective_scores,
)

CONFIDENCE = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
ERRORS = np.array([0, 0, 1, 0, 1])
ESTIMATORS: tuple[AurcEstimator, ...] = get_args(AurcEstimator)

Rows = list[tuple[int, int]]  # error, uncertainty
rows_with_ties = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6)), min_size=1, max_size=40)


def columns(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    errors, scores = np.array(rows).T
    return errors, scores / 7  # sevenths do not sum without rounding


def test_worked_example() -> None:
    curve = risk_coverage(ERRORS, -CONFIDENCE)
    np.testing.assert_allclose(curve.coverage, [0.2, 0.4, 0.6, 0.8, 1.0], atol=1e-12)
    np.testing.assert_allclose(curve.risk, [0, 0, 1 / 3, 1 / 4, 2 / 5], atol=1e-12)
    assert accuracy_at(1 - ERRORS, -CONFIDENCE, 0.6) == pytest.approx(2 / 3, abs=1e-12)
    assert risk_at(ERRORS, -CONFIDENCE, 0.01) == 0


def test_golden_values() -> None:
    found = selective_scores(ERRORS, -CONFIDENCE)
    assert found.error_rate == pytest.approx(0.4, abs=1e-12)
    assert found.aurc == pytest.approx(59 / 300, abs=1e-12)
    assert found.aurc_trapezoid == pytest.approx(47 / 240, abs=1e-12)
    assert found.aurc_collapsed == pytest.approx(47 / 300, abs=1e-12)
    assert found.augrc == pytest.approx(0.12, abs=1e-12)
    assert found.auroc_failure == pytest.approx(5 / 6, abs=1e-12)


def test_golden_values_with_ties() -> None:
    # two groups: 3 rows with 1 error, then 2 rows with 1 error
    errors, scores = [0, 1, 0, 1, 0], [1, 1, 1, 2, 2]
    running = [1 / 3, 1 / 3, 1 / 3, 3 / 8, 2 / 5]
    assert aurc(errors, scores, "mean") == pytest.approx(np.mean(running), abs=1e-12)
    trapezoid = (1 / 6 + 1 / 3 + 1 / 3 + 3 / 8 + 1 / 5) / 4
    assert aurc(errors, scores, "trapezoid") == pytest.approx(trapezoid, abs=1e-12)
    collapsed = 0.6 / 3 + 0.4 * (1 / 3 + 2 / 5) / 2
    assert aurc(errors, scores, "collapsed") == pytest.approx(collapsed, abs=1e-12)
    assert auroc_failure(errors, scores) == pytest.approx((0.5 + 0.5 + 0 + 1 + 1 + 0.5) / 6)


@given(rows_with_ties)
def test_all_tied_gives_the_error_rate(rows: Rows) -> None:
    errors, _ = columns(rows)
    tied = np.full(len(errors), 0.1)
    np.testing.assert_allclose(risk_coverage(errors, tied).risk, errors.mean(), atol=1e-12)
    for estimator in ESTIMATORS:
        assert aurc(errors, tied, estimator) == pytest.approx(errors.mean(), abs=1e-12)
    assert augrc(errors, tied) == pytest.approx(errors.mean() / 2, abs=1e-12)


@given(rows_with_ties, st.randoms())
def test_row_order_does_not_matter(rows: Rows, random: object) -> None:
    shuffled = rows.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (asdict(selective_scores(*columns(part))) for part in (rows, shuffled))
    np.testing.assert_equal(one, other)  # to the last bit, NaN too
    errors, scores = columns(rows)
    assert risk_coverage(errors, scores).risk[-1] == pytest.approx(errors.mean())


def test_row_order_does_not_matter_to_the_last_bit_of_any_loss() -> None:
    rng = np.random.default_rng(0)
    losses, scores = rng.random(200), rng.integers(0, 4, 200)
    curve = risk_coverage(losses, scores)
    for _ in range(20):
        order = rng.permutation(200)
        np.testing.assert_array_equal(risk_coverage(losses[order], scores[order]).risk, curve.risk)


@given(rows_with_ties)
def test_augrc_is_what_auroc_and_error_rate_say(rows: Rows) -> None:
    errors, scores = columns(rows)
    err = errors.mean()
    auroc = auroc_failure(errors, scores)
    ranking = 0.0 if math.isnan(auroc) else (1 - auroc) * (1 - err) * err
    assert augrc(errors, scores) == pytest.approx(ranking + err**2 / 2, abs=1e-12)


@given(rows_with_ties)
def test_oracle_and_its_reverse_are_bounds(rows: Rows) -> None:
    errors, scores = columns(rows)
    low, here, high = (risk_coverage(errors, s).risk for s in (errors, scores, -errors))
    assert (low <= here + 1e-12).all()
    assert (here <= high + 1e-12).all()
    for estimator in ESTIMATORS:
        best, value, worst = (aurc(errors, s, estimator) for s in (errors, scores, -errors))
        assert best - 1e-12 <= value <= worst + 1e-12
    assert augrc(errors, errors) - 1e-12 <= augrc(errors, scores) <= augrc(errors, -errors) + 1e-12


@given(rows_with_ties)
def test_failure_auroc_is_scikit_learns(rows: Rows) -> None:
    errors, scores = columns(rows)
    if 0 < errors.sum() < len(errors):
        assert auroc_failure(errors, scores) == pytest.approx(
            roc_auc_score(errors, scores), abs=1e-12
        )
    else:
        assert math.isnan(auroc_failure(errors, scores))


@given(rows_with_ties, st.floats(0.01, 1))
def test_kept_weights_are_expected_rows(rows: Rows, coverage: float) -> None:
    errors, scores = columns(rows)
    weights = kept_weights(scores, coverage)
    assert ((weights >= 0) & (weights <= 1)).all()
    assert weights.sum() == pytest.approx(max(1, round(coverage * len(rows))))
    by_weights = weights @ errors / weights.sum()
    assert by_weights == pytest.approx(risk_at(errors, scores, coverage), abs=1e-12)


def test_random_abstention_is_the_constant_score() -> None:
    rng = np.random.default_rng(0)
    errors = rng.random(200) < 0.3
    drawn = [aurc(errors, rng.random(200)) for _ in range(2000)]
    assert np.mean(drawn) == pytest.approx(aurc(errors, np.zeros(200)), abs=4e-3)


@pytest.mark.parametrize(
    ("loss", "score"), [([], []), ([1.0], [1.0, 2.0]), ([1.0], [np.nan]), ([[1.0]], [[1.0]])]
)
def test_unusable_input_is_refused(loss: list[float], score: list[float]) -> None:
    with pytest.raises(ValueError, match=r"equally long|finite"):
        risk_coverage(loss, score)


def test_unusable_options_are_refused() -> None:
    with pytest.raises(ValueError, match="one of mean, trapezoid, collapsed, not 'area'"):
        aurc(ERRORS, -CONFIDENCE, "area")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="coverage must be in"):
        risk_at(ERRORS, -CONFIDENCE, 1.1)
    with pytest.raises(ValueError, match="0 or 1"):
        auroc_failure([0.5, 1], [1, 2])


def test_ambiguity_scores() -> None:
    u = np.linspace(0, 1, 101)
    assert spearman(u**3, u) == pytest.approx(1)
    assert spearman(-u, u) == pytest.approx(-1)
    assert spearman(np.ones(101), u) == 0
    assert auroc_of_ambiguous(u, u) == 1
    assert auroc_of_ambiguous(np.abs(u - 0.875), u) < 0.1
