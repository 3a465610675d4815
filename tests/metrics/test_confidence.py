"""Claims about uncertainties read off probabilities.

- Values of small cases; 0 for certain rows, largest for uniform ones.
- Entropy splits into mutual information and expected entropy; it is at most log C, and mutual
  information is 0 where the passes agree.
- The order of classes, passes and rows does not matter; for two classes all scores rank alike.
- Rows whose largest probability rounds to 1 keep their order.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import entropy, rankdata

from varjepa.metrics.confidence import (
    expected_entropy,
    mean_probabilities,
    mutual_information,
    one_minus_margin,
    one_minus_msp,
    predictive_entropy,
)

SCORES = (one_minus_msp, one_minus_margin, predictive_entropy)


def test_small_cases() -> None:
    p = [[1.0, 0.0, 0.0], [0.6, 0.3, 0.1], [1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(one_minus_msp(p), [0, 0.4, 2 / 3], atol=1e-12)
    np.testing.assert_allclose(one_minus_margin(p), [0, 0.7, 1], atol=1e-12)
    np.testing.assert_allclose(predictive_entropy(p), entropy(p, axis=1), atol=1e-12)
    passes = [[[1.0, 0.0]], [[0.5, 0.5]]]  # (2 passes, 1 row, 2 classes)
    assert predictive_entropy(passes)[0] == pytest.approx(entropy([0.75, 0.25]), abs=1e-12)
    assert expected_entropy(passes)[0] == pytest.approx(np.log(2) / 2, abs=1e-12)
    assert one_minus_msp(passes)[0] == pytest.approx(0.25, abs=1e-12)


@st.composite
def passes(draw: st.DrawFn) -> np.ndarray:
    shape = draw(hnp.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=5))
    logits = draw(hnp.arrays(np.float64, shape, elements=st.floats(-20, 20)))
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


@given(passes())
def test_entropy_splits(p: np.ndarray) -> None:
    total, within, between = predictive_entropy(p), expected_entropy(p), mutual_information(p)
    np.testing.assert_allclose(total, within + between, atol=1e-12)
    assert (between >= 0).all()
    assert (total <= np.log(p.shape[-1]) + 1e-12).all()
    np.testing.assert_allclose(mutual_information(np.stack([p[0], p[0]])), 0, atol=1e-12)
    np.testing.assert_allclose(predictive_entropy(p[:1]), predictive_entropy(p[0]), atol=1e-12)


@given(passes(), st.integers(0, 2**31))
def test_orders_do_not_matter(p: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    other = rng.permutation(rng.permutation(p, axis=0), axis=2)
    rows = rng.permutation(p.shape[1])
    for score in (*SCORES, expected_entropy, mutual_information):
        np.testing.assert_allclose(score(p), score(other), atol=1e-12)
        np.testing.assert_allclose(score(p)[rows], score(p[:, rows]), atol=1e-12)


def test_two_classes_rank_alike() -> None:
    p = np.random.default_rng(0).dirichlet([1, 1], 500)
    ranks = [rankdata(score(p)) for score in SCORES]
    np.testing.assert_array_equal(ranks[0], ranks[1])
    np.testing.assert_array_equal(ranks[0], ranks[2])


def test_saturated_rows_keep_their_order() -> None:
    tiny = np.array([1e-30, 1e-25, 1e-20], dtype=np.float32)
    p = np.stack([1 - tiny, tiny], axis=1)  # float32: the first column is exactly 1
    for score in SCORES:
        assert (np.diff(score(p)) > 0).all()


@pytest.mark.parametrize(
    "p", [[0.5, 0.5], [[0.5, 0.6]], [[-0.1, 1.1]], [[np.nan, 1.0]], np.empty((0, 2))]
)
def test_what_is_no_probability_is_refused(p: object) -> None:
    with pytest.raises(ValueError, match="probabilities"):
        mean_probabilities(p)  # type: ignore[arg-type]


def test_disagreement_needs_passes() -> None:
    with pytest.raises(ValueError, match="passes"):
        mutual_information([[0.5, 0.5]])
