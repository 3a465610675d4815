"""How well the ambiguity of a row can be read off its columns by somebody who is told it.

A score that never sees u cannot be expected to find it better than a regression that is fitted to
the u of the training rows. Where that one is weak, a weak score says little about the score.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from varjepa.datasets.dataset import Split
from varjepa.downstream import RawFeatures
from varjepa.downstream.encoding import RawEncoder


def told_ambiguity(
    raw: RawFeatures, ambiguity: NDArray[np.float64], split: Split
) -> NDArray[np.float64]:
    """U of the test rows, predicted by boosted trees from the raw columns.  # (n_test,)"""
    encoder = RawEncoder("one-hot", "minmax").fit(raw.rows(split.train))
    columns = encoder.transform(raw).numeric
    trees = HistGradientBoostingRegressor(random_state=0, early_stopping=False)
    trees.fit(columns[split.train], ambiguity[split.train])
    found: NDArray[np.float64] = trees.predict(columns[split.test])
    return found
