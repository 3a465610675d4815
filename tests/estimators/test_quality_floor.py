"""Claims: the defaults fill cells about as well as boosted trees; no change undoes it unseen.

1. On three small tables, one with categories, the error of filled numbers is at most 1.1 times that
   of gradient boosting per column, and below the column means'.
2. Categories are filled at least as well as by boosting, less .05.

Networks are half as wide as by default and trainings short, to save time: this is a floor. The
measurement is ``python -m benchmarks.ground``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from tests.small import fit_small
from varjepa import VarTJEPA

SETTINGS: dict[str, Any] = {
    "d": 64, "ff": 128, "predictor_width": 64, "predictor_ff": 128,
    "max_steps": 240, "device": "cpu", "random_state": 0,
}  # fmt: skip


def mixed(n: int = 600) -> pd.DataFrame:
    """Numbers, a count with a spike at 0 and two categories, related to each other."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, n)
    size = rng.gamma(2.0, 2.0, n) * (1 + kind)
    return pd.DataFrame(
        {
            "kind": np.array(["low", "middle", "high"])[kind],
            "size": size,
            "price": 3 * size + 5 * kind + rng.normal(size=n),
            "visits": np.where(kind == 0, 0.0, rng.poisson(4 * kind)),
            "large": np.where(size + rng.normal(size=n) > 8, "yes", "no"),
        }
    )


TABLES = {
    "wine": lambda: load_wine(as_frame=True).data,
    "diabetes": lambda: load_diabetes(as_frame=True, scaled=False).data,
    "mixed": mixed,
}


def fill_by_boosting(holed: pd.DataFrame) -> pd.DataFrame:
    """Each column from all others, missing cells and all."""
    codes = holed.apply(lambda c: c if c.dtype.kind == "f" else pd.factorize(c)[0]).astype(float)
    codes = codes.where(holed.notna())
    filled = holed.copy()
    for name in holed:
        known = holed[name].notna()
        is_number = holed[name].dtype.kind == "f"
        kind = HistGradientBoostingRegressor if is_number else HistGradientBoostingClassifier
        others = codes.drop(columns=name)
        trees = kind(max_iter=50, random_state=0).fit(others[known], holed.loc[known, name])
        filled.loc[~known, name] = trees.predict(others[~known])
    return filled


def errors(
    full: pd.DataFrame, filled: pd.DataFrame, removed: NDArray[np.bool_]
) -> tuple[float, float]:
    """Mean over columns of RMSE over the standard deviation; share of categories that are right."""
    rmse, right = [], []
    for j, name in enumerate(full):
        there, here = full[name][removed[:, j]], filled[name][removed[:, j]]
        if full[name].dtype.kind == "f":
            rmse.append(np.sqrt(((here - there) ** 2).mean()) / full[name].std())
        else:
            right.append((here == there).mean())
    return float(np.mean(rmse)), float(np.mean(right)) if right else 1.0


@pytest.mark.parametrize("table", TABLES)
def test_filling_is_about_as_good_as_boosting(table: str) -> None:
    full = TABLES[table]()
    full = full.astype({c: float for c in full if full[c].dtype.kind in "iu"})
    removed = np.random.default_rng(3).random(full.shape) < 0.2
    holed = full.mask(removed)
    ours = errors(full, fit_small(VarTJEPA, holed, **SETTINGS).impute(holed), removed)
    trees = errors(full, fill_by_boosting(holed), removed)
    assert ours[0] <= min(1.1 * trees[0], 1.0), (ours, trees)
    assert ours[1] >= trees[1] - 0.05, (ours, trees)
