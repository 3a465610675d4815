"""Claims about thresholds, by simulation over many calibration draws from known populations.

- Coverage: a new row is answered with the probability asked for, at most 1 / (n + 1) more without
  ties; the interval for the realised share holds as often as it says; ties only add.
- Risk: the true error rate of answered rows exceeds the target in at most 1 − confidence of the
  draws: for good, useless, tied and wavy scores, and for error rates just above the target. A
  threshold taken from the observed error rate, without the guarantee, fails the same test.
  All of that also for a walk with a single start that other rows have chosen; it answers more rows.
- Not vacuous: with a good score, coverage comes near the largest that meets the target.
- Row order does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from varjepa.estimators.selective import (
    Threshold,
    coverage_interval,
    coverage_threshold,
    promising_start,
    risk_threshold,
    rows_needed,
    walk_starts,
)

DRAWS = 1000
TARGET, CONFIDENCE = 0.1, 0.9  # a large failure share makes a wrong one visible

ErrorRate = Callable[[np.ndarray], np.ndarray]


class Population:
    """Uncertainties uniform on (0, 1), or on a few levels of it; errors at a known rate."""

    def __init__(self, error_rate: ErrorRate, levels: int | None = None) -> None:
        self.error_rate, self.levels = error_rate, levels
        grid = (np.arange(200_000) + 0.5) / 200_000
        self._grid = self._round(grid)
        self._risk = np.cumsum(error_rate(self._grid)) / np.arange(1, len(grid) + 1)

    def draw(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        u = self._round(rng.random(n))
        return rng.random(n) < self.error_rate(u), u

    def coverage(self, threshold: float) -> float:
        return np.searchsorted(self._grid, threshold, side="right") / len(self._grid)

    def risk(self, threshold: float) -> float:
        """True error rate of answered rows; 0 if there are none."""
        answered = np.searchsorted(self._grid, threshold, side="right")
        return float(self._risk[answered - 1]) if answered else 0.0

    def largest_coverage(self, target: float) -> float:
        return float(np.flatnonzero(self._risk <= target).max() + 1) / len(self._grid)

    def _round(self, u: np.ndarray) -> np.ndarray:
        return u if self.levels is None else np.floor(u * self.levels) / self.levels


POPULATIONS = {
    "good": Population(lambda u: 0.8 * u**3),
    "good, five levels": Population(lambda u: 0.8 * u**3, levels=5),
    "useless, just above the target": Population(lambda u: np.full_like(u, TARGET + 1e-4)),
    "useless, all tied, just above": Population(lambda u: np.full_like(u, TARGET + 1e-4), levels=1),
    "wavy": Population(lambda u: TARGET * (1 + np.sin(14 * u))),
    "inverted": Population(lambda u: 0.25 * (1 - u)),
    "errors first, then clean ties": Population(lambda u: np.where(u < 0.3, 0.12, 0.09), levels=4),
}


def violation_share(
    threshold: Callable[[np.ndarray, np.ndarray], float], population: Population, n: int
) -> float:
    bad = 0
    for seed in range(DRAWS):
        errors, u = population.draw(n, seed)
        bad += population.risk(threshold(errors, u)) > TARGET + 1e-5  # the grid's own rounding
    return bad / DRAWS


def allowed(share: float) -> float:
    """What 1000 draws of an event of this probability stay below, all but 1 time in 1000."""
    return binom.ppf(0.999, DRAWS, share) / DRAWS


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("n", [60, 300])
@pytest.mark.parametrize("start", [None, "promising", 0.5])
def test_risk_is_kept_as_often_as_promised(name: str, n: int, start: float | str | None) -> None:
    at = (
        promising_start(*POPULATIONS[name].draw(n, DRAWS), TARGET)
        if start == "promising"
        else start
    )

    def ours(errors: np.ndarray, u: np.ndarray) -> float:
        return risk_threshold(errors, u, TARGET, CONFIDENCE, at).value

    assert violation_share(ours, POPULATIONS[name], n) <= allowed(1 - CONFIDENCE)


@pytest.mark.parametrize("name", ["good", "good, five levels"])
def test_a_promising_start_answers_more_rows(name: str) -> None:
    population, n = POPULATIONS[name], 150
    kept = np.zeros(2)
    for seed in range(300):
        start = promising_start(*population.draw(3 * n, DRAWS + seed), TARGET)
        drawn = population.draw(n, seed)
        kept += [risk_threshold(*drawn, TARGET, CONFIDENCE, s).accepted for s in (None, start)]
    assert kept[1] > 1.02 * kept[0]


def test_a_threshold_without_a_guarantee_fails_the_same_test() -> None:
    def observed(errors: np.ndarray, u: np.ndarray) -> float:
        order = np.argsort(u)
        risk = np.cumsum(errors[order]) / np.arange(1, len(u) + 1)
        passed = np.flatnonzero(risk <= TARGET)
        return float(u[order][passed[-1]]) if len(passed) else -math.inf

    def one_test_each(errors: np.ndarray, u: np.ndarray) -> float:
        order, m = np.argsort(u), np.arange(1, len(u) + 1)
        passed = np.flatnonzero(binom.cdf(np.cumsum(errors[order]), m, TARGET) <= 1 - CONFIDENCE)
        return float(u[order][passed[-1]]) if len(passed) else -math.inf

    assert violation_share(observed, POPULATIONS["good"], 300) > 0.3
    useless = POPULATIONS["useless, just above the target"]
    assert violation_share(one_test_each, useless, 300) > 2 * (1 - CONFIDENCE)


def test_the_promise_is_not_kept_by_abstaining() -> None:
    good = POPULATIONS["good"]
    best = good.largest_coverage(TARGET)
    for n, share in ((300, 0.8), (2000, 0.93)):
        found = [
            good.coverage(risk_threshold(*good.draw(n, seed), TARGET, CONFIDENCE).value)
            for seed in range(50)
        ]
        assert share * best < np.mean(found) <= best
    clean = Population(lambda u: np.full_like(u, TARGET / 3), levels=1)
    answered = [
        risk_threshold(*clean.draw(300, seed), TARGET, CONFIDENCE).accepted == 300
        for seed in range(50)
    ]
    assert np.mean(answered) > 0.95  # even with every score tied


def test_more_confidence_or_a_stricter_target_answers_fewer_rows() -> None:
    errors, u = POPULATIONS["good"].draw(2000, 0)
    at = [risk_threshold(errors, u, TARGET, c).accepted for c in (0.5, 0.9, 0.999)]
    assert at[0] > at[1] > at[2] > 0
    at = [risk_threshold(errors, u, target, CONFIDENCE).accepted for target in (0.2, 0.1, 0.02)]
    assert at[0] > at[1] > at[2] > 0


def test_nothing_and_everything() -> None:
    u = np.arange(100.0)
    assert risk_threshold(np.ones(100), u, 0.05, 0.95) == Threshold(-math.inf, 100, 0)
    assert risk_threshold(np.zeros(100), u, 0.05, 0.95) == Threshold(math.inf, 100, 100)
    needed = rows_needed(0.05, 0.95)
    assert needed == 59
    for n, accepted in ((needed, needed), (needed - 1, 0)):
        assert risk_threshold(np.zeros(n), u[:n], 0.05, 0.95).accepted == accepted


def test_a_walk_that_died_starts_again_only_at_a_start() -> None:
    # starts at 125, 250, 500 and 1000 rows; the walk from 125 dies in the errors after row 130.
    # At row 490 the nine errors would pass again, but no start lies there
    errors = np.zeros(1000)
    errors[130:139] = errors[490:] = 1
    assert binom.cdf(errors[:490].sum(), 490, 0.05) < 0.05 / 4
    found = risk_threshold(errors, np.arange(1000.0), 0.05, 0.95)
    assert 125 < found.accepted <= 135
    errors[490:550] = 0  # now the walk from 500 lives
    assert risk_threshold(errors, np.arange(1000.0), 0.05, 0.95).accepted > 550


def test_a_tie_gets_no_credit_for_the_order_of_its_rows() -> None:
    errors = np.zeros(1000)
    errors[-35:] = 1
    p = binom.cdf(35, 1000, 0.05)
    assert 0.05 / 4 < p < 3 * 0.05 / 4  # passed by a walk from 125, not by a start at 1000
    assert risk_threshold(errors, np.arange(1000.0), 0.05, 0.95).accepted == 1000
    assert risk_threshold(errors, np.zeros(1000), 0.05, 0.95).accepted == 0


def test_starts_are_where_a_clean_walk_can_pass() -> None:
    starts = walk_starts(1000, 0.05, 0.05)
    assert starts == (1000, 500, 250, 125)
    assert all(binom.cdf(0, m, 0.05) <= 0.05 / len(starts) for m in starts)
    assert walk_starts(58, 0.05, 0.05) == ()


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=30, max_size=80), st.randoms()
)
def test_row_order_does_not_matter(rows: list[tuple[bool, int]], random: object) -> None:
    shuffled = rows.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (risk_threshold(*np.array(part).T, 0.5, 0.8) for part in (rows, shuffled))
    assert one == other
    u = np.array(rows)[:, 1]
    assert one.accepted == (u <= one.value).sum()  # never a part of a tie


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.95])
def test_coverage_is_what_was_asked_for(coverage: float) -> None:
    n, population = 39, POPULATIONS["good"]
    found = [
        population.coverage(coverage_threshold(population.draw(n, seed)[1], coverage).value)
        for seed in range(4 * DRAWS)
    ]
    k = math.ceil(coverage * (n + 1))
    noise = 4 * np.std(found) / math.sqrt(len(found))
    assert np.mean(found) == pytest.approx(k / (n + 1), abs=noise)
    low, high = coverage_interval(n, coverage, CONFIDENCE)
    inside = np.mean([low <= share <= high for share in found])
    assert inside == pytest.approx(CONFIDENCE, abs=0.02)


def test_ties_only_add_coverage() -> None:
    population = POPULATIONS["good, five levels"]
    found = [
        population.coverage(coverage_threshold(population.draw(39, seed)[1], 0.7).value)
        for seed in range(DRAWS)
    ]
    assert np.mean(found) > 0.7
    low, _ = coverage_interval(39, 0.7, CONFIDENCE)
    assert np.mean([share >= low for share in found]) >= 1 - allowed((1 - CONFIDENCE) / 2)


def test_full_coverage_answers_everything() -> None:
    assert coverage_threshold([1.0, 2.0], 1.0) == Threshold(math.inf, 2, 2)
    assert coverage_interval(2, 1.0, 0.95) == (1.0, 1.0)
    assert coverage_threshold(np.arange(9.0), 0.8).accepted == 8  # .8 · 10 rounds to 8.000…02
