"""Claims about fidelity of tables.

1. A table is at distance 0 from itself; two samples of one law are near in all three figures.
2. A shifted column is seen by the columns' distance, a broken relation by pairs and rows only.
3. Values by hand: Kolmogorov–Smirnov and total variation of tiny tables.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from varjepa.metrics.fidelity import fidelity, shuffle_columns


def sample(seed: int, n: int = 3000) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return pa.table({"x": x, "y": x + 0.2 * rng.normal(size=n), "c": np.where(x > 0, "a", "b")})


def test_two_samples_of_one_law_are_near() -> None:
    found = fidelity(sample(0), sample(1))
    assert found.marginal < 0.04
    assert found.pairwise < 0.1
    assert 0.45 < found.auroc < 0.55


def test_a_shift_is_seen_in_the_columns() -> None:
    moved = sample(1).set_column(0, "x", pa.array(sample(1)["x"].to_numpy() + 1))
    assert fidelity(sample(0), moved).marginal > 0.1


def test_a_broken_relation_is_seen_in_pairs_and_rows_only() -> None:
    apart = fidelity(sample(0), shuffle_columns(sample(1), seed=0))
    assert apart.marginal < 0.04
    assert apart.pairwise > 0.3
    assert apart.auroc > 0.9


def test_by_hand() -> None:
    real = pa.table({"c": ["a", "a", "b", "b"], "x": [0.0, 1.0, 2.0, 3.0]})
    drawn = pa.table({"c": ["a", "b", "b", None], "x": [2.0, 3.0, 4.0, 5.0]})
    # c: shares (.5, .5, 0) against (.25, .5, .25); x: half of the real values lie below all others
    assert fidelity(real, drawn).marginal == pytest.approx((0.25 + 0.5) / 2)
    assert fidelity(real, real).marginal == 0.0
    assert fidelity(real, real).pairwise == 0.0


def test_a_single_column_has_no_pairs() -> None:
    assert np.isnan(fidelity(sample(0).select(["x"]), sample(1).select(["x"])).pairwise)
