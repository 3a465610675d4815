"""Claims about accuracy and F1 at a coverage.

- Without ties they are scikit-learn's on the rows kept.
- With ties they are those of the expected counts; row order and class names do not matter.
- Accuracy is exactly the mean over all draws of the tied rows.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from varjepa.metrics.selective import (
    COVERAGES,
    accuracy_at,
    classification_at,
    classification_by_coverage,
)


def test_without_ties_it_is_scikit_learn_on_the_rows_kept() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 4, (2, 200))
    uncertainty = rng.permutation(200)
    for found in classification_by_coverage(truth, predicted, uncertainty):
        kept = uncertainty < round(200 * found.coverage)
        assert found.accuracy == pytest.approx(accuracy_score(truth[kept], predicted[kept]))
        for average, value in (("macro", found.f1_macro), ("weighted", found.f1_weighted)):
            expected = f1_score(truth[kept], predicted[kept], average=average)
            assert value == pytest.approx(expected, abs=1e-12)
    assert COVERAGES == (1.0, 0.9, 0.8, 0.5)


def test_expected_counts_of_a_tied_group() -> None:
    # the two first rows are kept; of the three tied ones, one: a weight of 1/3 each
    truth, predicted = ["a", "b", "a", "a", "b"], ["a", "b", "a", "b", "b"]
    found = classification_at(truth, predicted, [0, 0, 1, 1, 1], coverage=0.6)
    assert found.accuracy == pytest.approx(8 / 9, abs=1e-12)
    f1_a = 2 * (4 / 3) / (2 * (4 / 3) + 1 / 3)  # hits 4/3, missed 1/3
    f1_b = 2 * (4 / 3) / (2 * (4 / 3) + 1 / 3)  # hits 4/3, false alarms 1/3
    assert found.f1_macro == pytest.approx((f1_a + f1_b) / 2, abs=1e-12)
    assert found.f1_weighted == pytest.approx((5 / 9) * f1_a + (4 / 9) * f1_b, abs=1e-12)


rows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=8
)


@given(rows, st.floats(0.1, 1), st.randoms())
def test_row_order_and_names_do_not_matter(
    rows: list[tuple[int, int, int]], coverage: float, random: object
) -> None:
    shuffled = rows.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    (truth, predicted, u), (truth_2, predicted_2, u_2) = np.array(rows).T, np.array(shuffled).T
    one = classification_at(truth, predicted, u, coverage)
    names = np.array(["z", "m", "a"])
    other = classification_at(names[truth_2], names[predicted_2], u_2, coverage)
    for field in ("accuracy", "f1_macro", "f1_weighted"):
        assert getattr(one, field) == pytest.approx(getattr(other, field), abs=1e-12)
    assert one.accuracy == pytest.approx(accuracy_at(truth == predicted, u, coverage), abs=1e-12)


@given(rows, st.floats(0.1, 1))
def test_accuracy_is_the_mean_over_all_draws(
    rows: list[tuple[int, int, int]], coverage: float
) -> None:
    truth, predicted, u = np.array(rows).T
    kept = max(1, round(coverage * len(rows)))
    draws = [list(d) for d in combinations(range(len(rows)), kept)]
    lowest = min(u[d].sum() for d in draws)  # only draws of the most certain rows
    best = [d for d in draws if u[d].sum() == lowest]
    mean = np.mean([accuracy_score(truth[d], predicted[d]) for d in best])
    assert classification_at(truth, predicted, u, coverage).accuracy == pytest.approx(mean)


def test_a_class_that_is_never_found_counts_zero() -> None:
    found = classification_at([0, 1], [0, 0], [0.1, 0.2])
    assert found.f1_macro == pytest.approx(1 / 3)
    assert classification_at([0, 1], [0, 0], [0.1, 0.2], coverage=0.5).f1_macro == 1


def test_lengths_must_match() -> None:
    with pytest.raises(ValueError, match="equally long"):
        classification_at([0, 1, 1], [0, 0], [0.1, 0.2])
