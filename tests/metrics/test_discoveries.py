"""Claims about p-values of scores that contain errors.

1. The likeliest share of errors is 0 without any, and near the truth with few and many, where the
   scores are true log odds.
2. In a column with many errors, the more of them are found the more there are, and few flags are
   false; were the largest scores not left out first, none would be found.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from varjepa.metrics import discoveries
from varjepa.metrics.discoveries import ExponentialTail, benjamini_hochberg, error_share

Floats = NDArray[np.float64]


def column(share: float, seed: int, rows: int = 5000) -> tuple[Floats, NDArray[np.bool_]]:
    """Log odds of values of N(0, 1), of which a share became N(4, 1), and which did."""
    rng = np.random.default_rng(seed)
    is_wrong = rng.random(rows) < share
    values = rng.normal(size=rows) + 4.0 * is_wrong
    return 4.0 * values - 8.0, is_wrong  # log N(x; 4, 1) − log N(x; 0, 1)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.3])
def test_the_share_of_errors(share: float) -> None:
    found = [error_share(column(share, seed)[0]) for seed in range(5)]
    assert np.mean(found) == pytest.approx(share, abs=0.005)
    assert max(found) <= share + 0.02
    assert error_share(np.array([])) == 0.0
    assert error_share(np.full(10, 1e4)) == discoveries.MOST_ERRORS


def flags(odds: Floats) -> NDArray[np.bool_]:
    p = ExponentialTail(odds).p_values(odds)
    found: NDArray[np.bool_] = p <= benjamini_hochberg(p, 0.05)
    return found


@pytest.mark.parametrize(("share", "recall"), [(0.2, 0.5), (0.3, 0.7)])
def test_many_errors_are_found(
    share: float, recall: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [column(share, seed) for seed in range(5)]
    for odds, is_wrong in columns:
        flagged = flags(odds)
        assert (flagged & is_wrong).sum() > recall * is_wrong.sum()
        assert (flagged & ~is_wrong).sum() <= 0.06 * flagged.sum()
    monkeypatch.setattr(discoveries, "USUAL_SHARE", 1.0)
    assert not any(flags(odds).any() for odds, _ in columns)
