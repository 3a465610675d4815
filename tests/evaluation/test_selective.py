"""Claims: selective metrics are right on a worked example, and ties and row order do not matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varjepa.evaluation.ambiguity import auroc_of_ambiguous, spearman
from varjepa.evaluation.selective import accuracy_at, risk_at, risk_coverage

CONFIDENCE = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
ERRORS = np.array([0, 0, 1, 0, 1])


def test_worked_example() -> None:
    curve = risk_coverage(ERRORS, -CONFIDENCE)
    np.testing.assert_allclose(curve.coverage, [0.2, 0.4, 0.6, 0.8, 1.0], atol=1e-12)
    np.testing.assert_allclose(curve.risk, [0, 0, 1 / 3, 1 / 4, 2 / 5], atol=1e-12)
    assert curve.risk.mean() == pytest.approx(0.19666666666666666, abs=1e-12)
    assert accuracy_at(1 - ERRORS, -CONFIDENCE, 0.6) == pytest.approx(2 / 3, abs=1e-12)
    assert risk_at(ERRORS, -CONFIDENCE, 0.01) == 0


def test_all_tied_gives_the_error_rate_everywhere() -> None:
    curve = risk_coverage(ERRORS, np.zeros(5))
    np.testing.assert_allclose(curve.risk, 0.4, atol=1e-12)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=40), st.randoms()
)
def test_row_order_does_not_matter(rows: list[tuple[int, int]], random: object) -> None:
    shuffled = rows.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (risk_coverage(*zip(*part, strict=True)) for part in (rows, shuffled))
    np.testing.assert_allclose(one.risk, other.risk, atol=1e-12)
    assert one.risk[-1] == pytest.approx(np.mean([loss for loss, _ in rows]))


@pytest.mark.parametrize(
    ("loss", "score"), [([], []), ([1.0], [1.0, 2.0]), ([1.0], [np.nan]), ([[1.0]], [[1.0]])]
)
def test_unusable_input_is_refused(loss: list[float], score: list[float]) -> None:
    with pytest.raises(ValueError, match=r"equally long|finite"):
        risk_coverage(loss, score)


def test_ambiguity_scores() -> None:
    u = np.linspace(0, 1, 101)
    assert spearman(u**3, u) == pytest.approx(1)
    assert spearman(-u, u) == pytest.approx(-1)
    assert spearman(np.ones(101), u) == 0
    assert auroc_of_ambiguous(u, u) == 1
    assert auroc_of_ambiguous(np.abs(u - 0.875), u) < 0.1
