"""A table with known errors and a model of the clean rows, both fitted once."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.small import fit_small
from varjepa import VarTJEPA

SMALL = {
    "d": 32,
    "ff": 32,
    "predictor_width": 32,
    "predictor_ff": 32,
    "max_steps": 150,
    "random_state": 0,
}


def draw(rows: int, seed: int) -> pd.DataFrame:
    """Numbers, categories and a date that depend on each other; some cells are missing."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=rows)
    noise = lambda scale: scale * rng.normal(size=rows)  # noqa: E731
    frame = pd.DataFrame(
        {
            "length": size + noise(0.2),
            "width": 2.0 * size + noise(0.3),
            "weight": np.exp(4.0 + size + noise(0.2)).round(1),
            "legs": np.where(size > 0.5, 8, np.where(size > -0.5, 6, 4)),
            "region": np.where(size + noise(0.3) > 0.0, "northern", "southern"),
            "colour": np.array(["crimson", "emerald", "sapphire"])[rng.integers(3, size=rows)],
            "seen": pd.Timestamp("2021-01-01") + pd.to_timedelta((300 + 90 * size).round(), "D"),
        }
    )
    frame.loc[rng.random(rows) < 0.05, "length"] = np.nan
    return frame


@pytest.fixture(scope="session")
def model() -> VarTJEPA:
    return fit_small(VarTJEPA, draw(600, seed=1), **SMALL)


@pytest.fixture
def spoiled() -> tuple[pd.DataFrame, dict[tuple[int, str], object]]:
    """Rows with errors, and the true values."""
    frame = draw(300, seed=2)
    wrong = {
        (10, "weight"): frame["weight"][10] * 1000.0,
        (20, "legs"): 80,
        (30, "region"): "northxrn",
        (40, "weight"): -frame["weight"][40],
        (50, "seen"): pd.Timestamp("2091-06-01"),
    }
    truth = {place: frame.loc[place] for place in wrong}
    for place, value in wrong.items():
        frame.loc[place] = value
    return frame, truth
