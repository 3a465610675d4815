"""Claims: text, booleans and few distinct integers are classes, other numbers are not; missing
values do not count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from varjepa.metrics.target import MAX_INTEGER_CLASSES, infer_task


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b"] * 20, "classification"),
        (np.array(["1", "2"] * 20), "classification"),
        ([True, False], "classification"),
        (np.array([True, None, False], dtype=object), "classification"),
        ([0, 1, 2, 3] * 10, "classification"),
        ([0.0, 1.0, np.nan] * 10, "classification"),
        (np.array([1, 2, None, 1, 2], dtype=object), "classification"),
        (pd.Series(["x", None, "y"]), "classification"),
        (np.array([1, 2, pd.NA, 1, 2], dtype=object), "classification"),
        (pd.Series([1, 2, None, 1, 2], dtype="Int64"), "classification"),
        (list(range(MAX_INTEGER_CLASSES)) * 3, "classification"),
        (list(range(MAX_INTEGER_CLASSES + 1)) * 9, "regression"),
        (list(range(10)), "classification"),
        ([1], "classification"),
        ([0.5, 1.5] * 20, "regression"),
        ([0.5, np.inf, np.nan], "regression"),
        (np.array([0.5, None, 2.5], dtype=object), "regression"),
    ],
)
def test_the_task_is_inferred_from_the_values(values: Any, task: str) -> None:
    assert infer_task(values) == task
