"""Claims: every predictor learns about as well as scikit-learn's model of its kind; permuted labels
give chance; a missing package is one sentence.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from paper.predictors.training import PREDICTORS, PROBE, FitOptions, TrainingSettings
from tests.paper.predictors.data import NETWORKS, fit_seeds, light, split_of, two_gaussians
from varjepa.errors import InputError
from varjepa.evaluate.splits import Split

DATASETS = {"breast cancer": load_breast_cancer, "wine": load_wine, "digits": load_digits}
PEERS = {
    "logistic": lambda: LogisticRegression(max_iter=1000),
    "perceptron": lambda: MLPClassifier((128, 128), max_iter=60, random_state=0, tol=1e-3),
    "trees": lambda: HistGradientBoostingClassifier(max_iter=50, max_depth=3, random_state=0),
}


@pytest.mark.parametrize(
    ("name", "dataset", "peer", "slack", "training"),
    [
        ("linear_probe", "digits", "logistic", 0.02, replace(PROBE, learning_rate=1e-2)),
        ("mlp", "digits", "perceptron", 0.015, None),
        ("dcn_v2", "digits", "perceptron", 0.015, None),
        ("resnet", "breast cancer", "perceptron", 0.03, None),
        ("autoint", "wine", "perceptron", 0.05, TrainingSettings(epochs=30)),
        ("ft_transformer", "wine", "perceptron", 0.05, TrainingSettings(epochs=12)),
        ("xgboost", "breast cancer", "trees", 0.03, None),
    ],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_as_accurate_as_the_scikit_learn_model_of_its_kind(
    name: str, dataset: str, peer: str, slack: float, training: TrainingSettings | None
) -> None:
    x, y = DATASETS[dataset](return_X_y=True)
    split = split_of(len(x))
    model = make_pipeline(StandardScaler(), PEERS[peer]()).fit(x[split.train], y[split.train])
    expected = model.score(x[split.test], y[split.test])
    result = fit_seeds(name, x, y, split, [0], FitOptions(training=training))
    accuracy = (result.labels()[0] == y[split.test]).mean()
    assert accuracy >= expected - slack
    np.testing.assert_allclose(result.values.sum(-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(PREDICTORS))
def test_permuted_labels_give_chance(name: str) -> None:
    x, _ = two_gaussians(800)
    y = np.random.default_rng(5).permutation(np.arange(800) % 2)
    options = FitOptions(training=TrainingSettings(epochs=2))
    result = fit_seeds(light(name), x, y, split_of(800), [0], options)
    accuracy = (result.labels()[0] == y[split_of(800).test]).mean()
    assert abs(accuracy - 0.5) < 0.12  # 3.4 standard errors of 200 coin flips


def test_a_class_without_training_rows_keeps_its_column() -> None:
    x, y = two_gaussians(120)
    y[-1] = 2
    split = Split(np.arange(80), np.arange(80, 100), np.arange(100, 120))
    for name in ("linear_probe", "xgboost"):
        assert fit_seeds(name, x, y, split, [0]).values.shape == (1, 20, 3)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("xgboost", "xgboost"),
        ("resnet", "rtdl_revisiting_models"),
        ("ft_transformer", "rtdl_revisiting_models"),
    ],
)
def test_a_missing_package_is_one_sentence(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    x, y = two_gaussians(40)
    with pytest.raises(InputError, match=rf"{name} needs the package {package}: pip install"):
        fit_seeds(name, x, y, split_of(40), [0])


def test_what_cannot_be_learned_from_is_named() -> None:
    x, _ = two_gaussians(40)
    with pytest.raises(InputError, match="one class only"):
        fit_seeds("mlp", x, np.zeros(40), split_of(40), [0])
    with pytest.raises(InputError, match="validation part of the split has no rows"):
        Split(np.array([0]), np.array([], dtype=np.int64), np.array([1]))


def test_the_table_holds_the_papers_settings() -> None:
    assert set(NETWORKS) | {"xgboost"} == set(PREDICTORS)
    for name in NETWORKS[1:]:
        expected = TrainingSettings(
            epochs=50, batch=128, learning_rate=1e-3, weight_decay=0.01, patience=16
        )
        assert PREDICTORS[name].training == expected
    assert PREDICTORS["linear_probe"].training.weight_decay == 2e-5
