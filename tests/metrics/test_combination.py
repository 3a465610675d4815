"""Claims about the combined score.

- Where two parts carry independent information, it has a clearly lower AURC on new rows than each,
  and comes near the best score there is; so it does where a part points the wrong way.
- Where one part says nothing, the other is returned unchanged.
- It is fitted on validation rows only: a new row's score does not depend on other new rows.
- The order of rows, and any increasing transformation of a part, do not matter.
- Too few errors to learn from: the best part alone.

And about scores that are added to a confidence:

- Where another score knows more, the AURC on new rows is clearly lower, and never by much higher
  where it does not: in few draws is it added at all.
- Fewer than ten errors, or a confidence alone: the confidence as it is.
- The others' weights are small, that of the confidence is free.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit

from varjepa.metrics.combination import add_to_confidence, fit_combined_score
from varjepa.metrics.selective import aurc

LogOdds = Callable[[np.ndarray, np.ndarray], np.ndarray]


def draw(log_odds: LogOdds, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two scores on odd scales, errors, and the log-odds that made them: the best score."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n))
    best = log_odds(a, b)
    return np.stack([np.exp(a), b**3], axis=1), (rng.random(n) < expit(best)).astype(int), best


@pytest.mark.parametrize(
    "log_odds",
    [
        lambda a, b: -3 + 1.5 * a + b,
        lambda a, b: -4 + 3 * np.maximum(a, 0) + 3 * np.maximum(b, 0),
        lambda a, b: -2 + 1.5 * a - 0.7 * b,
    ],
    ids=["both", "only above the middle", "one inverted"],
)
@pytest.mark.parametrize("seed", range(3))
def test_beats_both_parts_on_new_rows(log_odds: LogOdds, seed: int) -> None:
    scores, errors, _ = draw(log_odds, 1000, seed)
    combined = fit_combined_score(scores, errors)
    new, new_errors, best = draw(log_odds, 20_000, 100 + seed)
    parts = [aurc(new_errors, part) for part in new.T]
    limit = aurc(new_errors, best)
    found = aurc(new_errors, combined(new))
    assert found < min(parts)
    assert found - limit < 0.1 * (min(parts) - limit)
    assert aurc(new_errors, new_errors) < found < new_errors.mean()  # oracle and random


@pytest.mark.parametrize("seed", range(3))
def test_a_part_without_information_is_left_out(seed: int) -> None:
    scores, errors, _ = draw(lambda a, b: -2 + 1.5 * a + 0 * b, 2000, seed)
    combined = fit_combined_score(scores, errors)
    new, new_errors, _ = draw(lambda a, b: -2 + 1.5 * a + 0 * b, 20_000, 100 + seed)
    assert aurc(new_errors, combined(new)) <= 1.01 * aurc(new_errors, new[:, 0])


def test_what_only_fits_the_validation_rows_is_not_taken() -> None:
    def ten_parts(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        scores = rng.normal(size=(n, 10))
        return scores, (rng.random(n) < expit(-1.5 + 2 * scores[:, 0])).astype(int)

    new, new_errors = ten_parts(5_000, 1000)
    first = aurc(new_errors, new[:, 0])
    found = [aurc(new_errors, fit_combined_score(*ten_parts(120, seed))(new)) for seed in range(8)]
    assert np.mean(found) < 1.03 * first


def test_new_rows_are_scored_one_by_one() -> None:
    scores, errors, _ = draw(lambda a, b: -2 + a + b, 500, 0)
    combined = fit_combined_score(scores, errors)
    new = 3 * draw(lambda a, b: -2 + a + b, 50, 1)[0]  # some beyond all validation rows
    assert not isinstance(combined.chosen, int)
    alone = [combined(row[None])[0] for row in new]
    np.testing.assert_allclose(combined(new), alone, rtol=1e-12)


def test_row_order_and_scales_do_not_matter() -> None:
    scores, errors, _ = draw(lambda a, b: -2 + a + b, 500, 0)
    one = fit_combined_score(scores, errors)
    shuffled = np.random.default_rng(0).permutation(500)
    other = fit_combined_score(scores[shuffled], errors[shuffled])
    assert one.validation_aurc == pytest.approx(other.validation_aurc, abs=1e-6)
    np.testing.assert_allclose(one(scores), other(scores), atol=1e-6)
    rescaled = np.stack([np.log(scores[:, 0]), np.cbrt(scores[:, 1])], axis=1)
    np.testing.assert_allclose(fit_combined_score(rescaled, errors)(rescaled), one(scores))


@pytest.mark.parametrize("wrong", [0, 1, 60])
def test_too_few_errors_give_the_best_part(wrong: int) -> None:
    rng = np.random.default_rng(0)
    errors = np.zeros(60)
    errors[:wrong] = 1
    scores = np.stack([rng.normal(size=60), errors + rng.normal(size=60) * 0.1], axis=1)
    combined = fit_combined_score(scores, errors)
    assert combined.chosen == (1 if wrong == 1 else 0)
    np.testing.assert_array_equal(combined(scores), scores[:, combined.chosen])


def test_constant_parts_do_no_harm() -> None:
    scores, errors, _ = draw(lambda a, b: -2 + a + b, 500, 0)
    scores[:, 0] = 1.0
    found = aurc(errors, fit_combined_score(scores, errors)(scores))
    assert found <= aurc(errors, scores[:, 1]) + 1e-12


def test_unusable_input_is_refused() -> None:
    scores, errors, _ = draw(lambda a, b: -2 + a + b, 100, 0)
    with pytest.raises(ValueError, match="100 errors of 0 or 1"):
        fit_combined_score(scores, errors / 2)
    with pytest.raises(ValueError, match="finite"):
        fit_combined_score(np.full((100, 2), np.inf), errors)
    with pytest.raises(ValueError, match="expected 2 scores per row"):
        fit_combined_score(scores, errors)(scores[:, :1])


# --- added to a confidence, which is the last part


def confident(weight: float, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Six scores of which one has a weight in the errors, then a confidence that foresees them."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 7))
    log_odds = -2 + weight * scores[:, 2] + 1.5 * scores[:, 6]
    return scores, (rng.random(n) < expit(log_odds)).astype(int)


def test_a_score_that_knows_more_is_added() -> None:
    combined = add_to_confidence(*confident(1.0, 2000, 0))
    assert combined.chosen == "linear"
    assert combined.validation_aurc["linear"] < combined.validation_aurc["confidence"]
    new, errors = confident(1.0, 20_000, 1)
    both = new[:, 2] + 1.5 * new[:, 6]
    alone, found, best = (aurc(errors, score) for score in (new[:, 6], combined(new), both))
    assert found - best < 0.3 * (alone - best)  # the penalty costs some of the gain
    others = np.delete(np.abs(combined.weights[:6]), 2)
    assert others.max() < 0.2 < 0.5 < combined.weights[2] < combined.weights[6]


def test_scores_that_know_nothing_do_no_harm() -> None:
    new, errors = confident(0.0, 20_000, 1000)
    alone = aurc(errors, new[:, 6])
    found = [add_to_confidence(*confident(0.0, 300, seed)) for seed in range(20)]
    assert sum(one.chosen == "linear" for one in found) <= 5
    assert max(aurc(errors, one(new)) for one in found) < 1.03 * alone


@pytest.mark.parametrize(("errors", "parts"), [(9, 3), (0, 3), (200, 3), (100, 1)])
def test_the_confidence_stays_alone(errors: int, parts: int) -> None:
    wrong = np.zeros(200)
    wrong[:errors] = 1
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200, parts))
    if parts > 1:
        scores[:, 0] = wrong  # would be perfect
    combined = add_to_confidence(scores, wrong)
    assert combined.chosen == "confidence"
    np.testing.assert_array_equal(combined(scores), scores[:, -1])


def test_row_order_does_not_matter_to_an_added_score() -> None:
    scores, errors = confident(1.0, 500, 0)
    shuffled = np.random.default_rng(0).permutation(500)
    one = add_to_confidence(scores, errors)
    other = add_to_confidence(scores[shuffled], errors[shuffled])
    assert one.chosen == "linear"
    np.testing.assert_allclose(one(scores), other(scores), atol=1e-4)
