"""Predictors of an evaluation: scikit-learn estimators by name, and XGBoost where it is installed.

How to add one: a function of (task, y, seed) that returns unfitted estimators, and a line in
``PREDICTORS``. Where it returns several, the validation rows choose. Inputs are standardised
numbers with NaN where missing, one-hot levels and embeddings; ``filled`` puts 0, the mean, for NaN.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline

from varjepa.errors import InputError
from varjepa.metrics.target import Task

Array = NDArray[Any]

MIN_STEPS = 4000
"""Training steps that the perceptron may take at least: on a hundred rows fifty epochs would leave
it half trained, and raw features would lose for that reason alone."""
EPOCHS, BATCH, PATIENCE = 50, 128, 16
"""of the perceptron on a large table, as in the paper"""


class Predictor(NamedTuple):
    """One entry of the registry."""

    build: Callable[[Task, Array, int], list[Any]]
    """(task, training targets, seed) → unfitted estimators"""
    is_random: bool = True
    """whether a seed changes anything; else one training stands for all"""
    package: str = "sklearn"


def filled(model: Any) -> Any:
    """For estimators that do not take NaN."""
    return make_pipeline(SimpleImputer(strategy="constant", fill_value=0.0), model)


def linear(task: Task, y: Array, seed: int) -> list[Any]:
    """Logistic or ridge regression with a weak, a medium or a strong penalty."""
    if task == "classification":
        return [filled(LogisticRegression(C=c, max_iter=300)) for c in (1.0, 0.1, 0.01)]
    return [filled(Ridge(alpha=a)) for a in (1.0, 10.0, 100.0, 1000.0)]


def perceptron(task: Task, y: Array, seed: int) -> list[Any]:
    """Two hidden layers; a tenth of the training rows stops it where every class can have some."""
    rows, counts = len(y), np.unique(y, return_counts=True)[1]
    batch = min(BATCH, max(16, rows // 20))
    epochs = max(EPOCHS, math.ceil(MIN_STEPS / math.ceil(rows / batch)))
    can_stop = task == "regression" or (counts.min() > 1 and rows // 10 >= len(counts))
    build = MLPClassifier if task == "classification" else MLPRegressor
    model = build(
        hidden_layer_sizes=(128, 128),
        batch_size=min(batch, rows),
        max_iter=epochs,
        early_stopping=can_stop,
        n_iter_no_change=PATIENCE * epochs // EPOCHS,
        random_state=seed,
    )
    return [filled(model)]


def boosted_trees(task: Task, y: Array, seed: int) -> list[Any]:
    """scikit-learn's histogram-based gradient boosting."""
    is_class = task == "classification"
    build = HistGradientBoostingClassifier if is_class else HistGradientBoostingRegressor
    return [build(max_iter=100, early_stopping=False, random_state=seed)]


def forest(task: Task, y: Array, seed: int) -> list[Any]:
    """Random forest."""
    build = RandomForestClassifier if task == "classification" else RandomForestRegressor
    return [filled(build(n_estimators=200, n_jobs=-1, random_state=seed))]


def neighbours(task: Task, y: Array, seed: int) -> list[Any]:
    """Nearest rows, few or many."""
    build = KNeighborsClassifier if task == "classification" else KNeighborsRegressor
    return [filled(build(n_neighbors=min(k, len(y)), weights="distance")) for k in (5, 20)]


def xgboost(task: Task, y: Array, seed: int) -> list[Any]:
    """XGBoost with its own defaults but a smaller step."""
    package = require("xgboost")
    build = package.XGBClassifier if task == "classification" else package.XGBRegressor
    return [build(n_estimators=100, max_depth=6, learning_rate=0.1, random_state=seed)]


PREDICTORS: dict[str, Predictor] = {
    "linear": Predictor(linear, is_random=False),
    "mlp": Predictor(perceptron),
    "boosted_trees": Predictor(boosted_trees, is_random=False),
    "forest": Predictor(forest),
    "neighbours": Predictor(neighbours, is_random=False),
    "xgboost": Predictor(xgboost, is_random=False, package="xgboost"),
}


def default_predictors() -> tuple[str, ...]:
    """A linear one, a network, and trees: XGBoost's where it is installed."""
    trees = "xgboost" if importlib.util.find_spec("xgboost") else "boosted_trees"
    return ("linear", "mlp", trees)


def require(predictor: str) -> Any:
    """The package of a predictor, or one sentence that says what to install."""
    package = PREDICTORS[predictor].package
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"predictor {predictor} needs the package {package}: pip install {package}"
        ) from error


class Fitted(NamedTuple):
    """A trained predictor."""

    model: Any
    classes: NDArray[np.int64] | None
    """class numbers of the columns of a prediction; None for numbers"""
    mean: float
    std: float

    def predict(self, x: Array) -> Array:
        """Probabilities (n, classes), or numbers (n,)."""
        if self.classes is not None:
            probabilities: Array = self.model.predict_proba(x)
            return probabilities
        return self.model.predict(x).astype(np.float64) * self.std + self.mean


def fit_predictor(
    name: str, task: Task, train: tuple[Array, Array], validation: tuple[Array, Array], seed: int
) -> Fitted:
    """Train on (x, y); of several candidates the one that is best on validation rows."""
    x, y = train
    classes, mean, std = None, 0.0, 1.0
    if task == "classification":  # numbered without gaps, as XGBoost wants them
        classes, y = np.unique(y, return_inverse=True)
    else:  # many predictors answer in float32, which could not tell 2^60 + 1 from 2^60 + 9
        mean, std = float(y.mean()), float(y.std()) or 1.0
        y = (y - mean) / std
    models = PREDICTORS[name].build(task, y, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = [Fitted(model.fit(x, y), classes, mean, std) for model in models]
    if len(fitted) == 1:
        return fitted[0]
    return min(fitted, key=lambda each: _risk(each, *validation))


def _risk(fitted: Fitted, x: Array, y: Array) -> float:
    """Cross-entropy, or squared error; rows of a class that was not trained on do not count."""
    predicted = fitted.predict(x)
    if fitted.classes is None:
        return float(mean_squared_error(y, predicted))
    is_known = np.isin(y, fitted.classes)
    if not is_known.any():
        return 0.0
    return float(log_loss(y[is_known], predicted[is_known], labels=fitted.classes))
