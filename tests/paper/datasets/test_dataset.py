"""Claims: a split has 70, 10 and 20 % of the rows, none twice.

1. Every row is in exactly one part, in ascending order; the sizes are rounded shares of all rows.
2. The seed decides: the same one gives the same rows, another one others.
3. Test rows come first: they do not change when the validation share does.
4. Too few rows for three parts are refused.
"""

from __future__ import annotations

import numpy as np
import pytest

from varjepa.errors import InputError
from varjepa.evaluate import splits as dataset
from varjepa.evaluate.splits import split_rows


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [(10, (7, 1, 2)), (45_211, (31_648, 4_521, 9_042)), (48_842, (34_190, 4_884, 9_768))],
)
def test_every_row_is_in_one_part(rows: int, sizes: tuple[int, int, int]) -> None:
    split = split_rows(rows, seed=3)
    parts = (split.train, split.validation, split.test)
    assert tuple(map(len, parts)) == sizes
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(rows))
    for part in parts:
        assert (np.diff(part) > 0).all()


def test_the_seed_decides() -> None:
    first, again, other = split_rows(1_000, 0), split_rows(1_000, 0), split_rows(1_000, 1)
    np.testing.assert_array_equal(first.validation, again.validation)
    shared = len(np.intersect1d(first.test, other.test))
    assert 20 < shared < 60  # 40 expected of two independent draws of 200 from 1,000


def test_test_rows_are_drawn_first(monkeypatch: pytest.MonkeyPatch) -> None:
    before = split_rows(1_000, 0).test
    monkeypatch.setattr(dataset, "VALIDATION_SHARE", 0.3)
    after = split_rows(1_000, 0)
    assert len(after.validation) == 300
    np.testing.assert_array_equal(before, after.test)


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_too_few_rows(rows: int) -> None:
    with pytest.raises(InputError, match=f"{rows} rows are too few"):
        split_rows(rows, 0)
