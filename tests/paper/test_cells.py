"""Claims about a cell: of several ways to fit that one is kept which the validation rows prefer."""

from __future__ import annotations

import numpy as np
import pytest

from paper.cells import choices_of, fit_best, predictor_settings
from paper.datasets.catalogue import DATASETS
from paper.predictors.inputs import DEFAULT_ADAPTER, Inputs, RawFeatures
from paper.predictors.training import PREDICTORS, FitOptions, XGBoostSettings
from paper.settings import CHOICES, DEFAULT_TREES, FULL, WIDE_COLUMNS


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
    choices = {"stumps": FitOptions(trees=stumps), "deep": FitOptions(trees=deep)}
    chosen, models = fit_best(
        PREDICTORS["xgboost"],
        Inputs(raw=RawFeatures.from_numeric(data.x)),
        data,  # type: ignore[arg-type]
        Parts,  # type: ignore[arg-type]
        [0],
        dict(list(choices.items())[::order]),
    )
    assert chosen == "deep"
    assert models.booster.num_boosted_rounds() == 50


def test_only_ours_has_a_choice() -> None:
    for predictor in CHOICES:
        assert len(choices_of(predictor, "adult", "paper")) == 1
        assert len(choices_of(predictor, "adult", "ours")) == len(CHOICES[predictor]) > 1
    assert list(choices_of("mlp", None, "ours")) == ["default"]  # raw columns need no adapter
    assert len(choices_of("xgboost", None, "ours")) == 4
    assert list(choices_of("xgboost", "mnist", "ours")) == ["depth 6, rate .3"]
    assert list(choices_of("mlp", "mnist", "ours")) == ["principal"]
    assert list(choices_of("mlp", "mnist", "paper")) == ["default"]
    assert not any("adapter" in change for change in choices_of("xgboost", None, "ours").values())


def test_the_first_choice_is_the_paper_s() -> None:
    for predictor, choices in CHOICES.items():
        first = next(iter(choices.values()))
        assert first.get("adapter", DEFAULT_ADAPTER[predictor]) == DEFAULT_ADAPTER[predictor]
        assert first.get("trees", XGBoostSettings()) == XGBoostSettings()


def test_a_choice_is_part_of_the_settings() -> None:
    paper, ours = (predictor_settings("xgboost", "adult", FULL, s) for s in ("paper", "ours"))
    assert (paper["adapter"], paper["trees"]) == ("flat", None)
    every = {name: (c["adapter"], c["trees"]["depth"]) for name, c in ours["choices"].items()}
    assert every == {
        "depth 3": ("flat", 3),
        "depth 3, rate .3": ("components", 3),
        "depth 6, rate .3": ("components", 6),
        "depth 10, rate .3": ("components", 10),
    }
    assert ours["choices"]["depth 3"]["sizes"] is None
    assert ours["choices"]["depth 10, rate .3"]["sizes"]["most"] == 16
    paper, ours = (predictor_settings("mlp", "adult", FULL, s) for s in ("paper", "ours"))
    assert paper["adapter"] == "linear"
    assert [c["adapter"] for c in ours["choices"].values()] == ["linear", "flat"]
    assert predictor_settings("mlp", None, FULL, "ours") == {**paper, "adapter": None}


def test_default_has_one_rule_for_all_datasets() -> None:
    for dataset, info in DATASETS.items():
        wide = info.numeric + info.categorical > WIDE_COLUMNS
        assert list(choices_of("mlp", dataset, "default")) == ["principal" if wide else "default"]
        trees = choices_of("xgboost", dataset, "default")
        assert list(trees) == list(DEFAULT_TREES)
        adapters = {change["adapter"] for change in trees.values()}
        assert adapters == {"principal" if wide else "components"}
