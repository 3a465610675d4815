"""Claims about a cell: of several trees those are kept that the validation rows prefer."""

from __future__ import annotations

import numpy as np
import pytest

from varjepa.downstream import PREDICTORS, FitOptions
from varjepa.downstream.inputs import as_inputs
from varjepa.downstream.xgboost import XGBoostSettings
from varjepa.experiments.cells import fit_best, predictor_settings, trees_of
from varjepa.experiments.pretraining import FULL


class Data:
    """Labels that one split of one column cannot tell, but two can."""

    def __init__(self) -> None:
        self.x = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
        self.label = (self.x[:, 0] * self.x[:, 1] > 0).astype(np.int64)


class Parts:
    train, validation, test = np.arange(200), np.arange(200, 250), np.arange(250, 300)


@pytest.mark.parametrize("order", [1, -1])
def test_the_better_trees_on_validation_rows_are_kept(order: int) -> None:
    pytest.importorskip("xgboost")
    data = Data()
    stumps, deep = XGBoostSettings(5, 1, 0.3), XGBoostSettings(50, 4, 0.3)
    choice = [FitOptions(trees=trees) for trees in (stumps, deep)][::order]
    models = fit_best(
        PREDICTORS["xgboost"],
        as_inputs(data.x),
        data,  # type: ignore[arg-type]
        Parts,  # type: ignore[arg-type]
        [0],
        choice,
    )
    assert models.booster.num_boosted_rounds() == 50


def test_only_trees_of_ours_are_a_choice() -> None:
    assert len(trees_of("xgboost", "ours")) > len(trees_of("xgboost", "paper")) == 1
    assert trees_of("mlp", "ours") == ()
    assert predictor_settings("xgboost", True, FULL)["trees"] is None
    assert len(predictor_settings("xgboost", True, FULL, "ours")["trees"]) == 2
