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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import ensemble, neural_network
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.pipeline import make_pipeline

from varjepa.errors import InputError
from varjepa.evaluate.splits import Index
from varjepa.metrics.target import Task

Array = NDArray[Any]
Floats = NDArray[np.float64]

MIN_STEPS = 4000
"""Training steps that the perceptron may take at least: on a hundred rows fifty epochs would leave
it half trained, and raw features would lose for that reason alone."""
EPOCHS, BATCH, PATIENCE = 50, 128, 16
"""of the perceptron on a large table, as in the paper"""


class Predictor(NamedTuple):
    build: Callable[[Task, Array, int], list[Any]]
    """(task, training targets, seed) → unfitted estimators"""
    is_random: bool = True
    """whether a seed changes anything; else one training stands for all"""
    package: str = "sklearn"


def filled(model: Any) -> Any:
    """For estimators that do not take NaN."""
    return make_pipeline(SimpleImputer(strategy="constant", fill_value=0.0), model)


def estimator_for(task: Task, module: Any, name: str) -> Any:
    """E.g. XGBClassifier or XGBRegressor."""
    return getattr(module, f"{name}{'Classifier' if task == 'classification' else 'Regressor'}")


def linear(task: Task, y: Array, seed: int) -> list[Any]:
    if task == "classification":
        return [filled(LogisticRegression(C=c, max_iter=300)) for c in (1.0, 0.1, 0.01)]
    return [filled(Ridge(alpha=a)) for a in (1.0, 10.0, 100.0, 1000.0)]


def longer_schedule(
    rows: int, steps: int, batch: int, epochs: int, patience: int
) -> tuple[int, int, int]:
    """On few rows smaller batches and more epochs and patience: so many steps at least."""
    batch = min(batch, max(16, rows // 20))
    more = max(epochs, math.ceil(steps / math.ceil(rows / batch)))
    return batch, more, patience * more // epochs


def perceptron(task: Task, y: Array, seed: int) -> list[Any]:
    """Two hidden layers; a tenth of the training rows stops it where every class can have some."""
    rows, counts = len(y), np.unique(y, return_counts=True)[1]
    batch, epochs, patience = longer_schedule(rows, MIN_STEPS, BATCH, EPOCHS, PATIENCE)
    is_class = task == "classification"
    model = estimator_for(task, neural_network, "MLP")(
        hidden_layer_sizes=(128, 128),
        batch_size=min(batch, rows),
        max_iter=epochs,
        early_stopping=not is_class or (counts.min() > 1 and rows // 10 >= len(counts)),
        n_iter_no_change=patience,
        random_state=seed,
    )
    return [filled(model)]


def boosted_trees(task: Task, y: Array, seed: int) -> list[Any]:
    build = estimator_for(task, ensemble, "HistGradientBoosting")
    return [build(max_iter=100, early_stopping=False, random_state=seed)]


def forest(task: Task, y: Array, seed: int) -> list[Any]:
    build = estimator_for(task, ensemble, "RandomForest")
    return [filled(build(n_estimators=200, n_jobs=-1, random_state=seed))]


def xgboost(task: Task, y: Array, seed: int) -> list[Any]:
    build = estimator_for(task, require("xgboost"), "XGB")
    return [build(n_estimators=100, max_depth=6, learning_rate=0.1, random_state=seed)]


PREDICTORS: dict[str, Predictor] = {
    "linear": Predictor(linear, is_random=False),
    "mlp": Predictor(perceptron),
    "boosted_trees": Predictor(boosted_trees, is_random=False),
    "forest": Predictor(forest),
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
    model: Any
    classes: Index | None
    """class numbers of the columns of a prediction; None for numbers"""
    mean: float
    std: float

    def predict(self, x: Array) -> Array:
        """Probabilities (n, classes), or numbers (n,)."""
        if self.classes is not None:
            probabilities: Array = self.model.predict_proba(x).astype(np.float32)
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        models = [model.fit(x, y) for model in PREDICTORS[name].build(task, y, seed)]
    fitted = [Fitted(model, classes, mean, std) for model in models]
    return fitted[0] if len(fitted) == 1 else min(fitted, key=lambda f: _risk(f, *validation))


def _risk(fitted: Fitted, x: Array, y: Array) -> float:
    """Cross-entropy, or squared error; rows of a class that was not trained on do not count."""
    predicted = fitted.predict(x).astype(np.float64)
    if fitted.classes is None:
        return float(mean_squared_error(y, predicted))
    is_known = np.isin(y, fitted.classes)
    if not is_known.any():
        return 0.0
    predicted /= predicted.sum(1, keepdims=True)
    return float(log_loss(y[is_known], predicted[is_known], labels=fitted.classes))


# --- Few labels: a logistic or a ridge regression, whose penalty is chosen by cross-validation on
# the same few labels. Validation labels play no part: whoever has 50 labels has no thousand to
# tune with.

SIZES = (50, 100, 200, 500, 1000)
"""how many training rows have a label, where there are as many"""
COMPARED = ("raw", "var_t_jepa", "raw+var_t_jepa")
"""representations"""
PENALTIES = np.logspace(3, -4, 8)
"""of squared weights, from strong to weak"""
FOLDS = 3
UNSEEN = 1e-3
"""probability of a class that a fold's training rows do not have"""
BLOCK = 512
"""rows predicted at a time"""

Guess = Callable[[Floats], Array]


def sizes_that_fit(train: int, sizes: Sequence[int] = SIZES) -> tuple[int, ...]:
    """Sizes up to the number of training rows."""
    return tuple(size for size in sizes if size <= train)


def labelled_rows(train: Index, most: int, seed: int, repeat: int) -> Index:
    """Rows that have a label, in a random order: the first 50 of the 100, so that sizes compare."""
    return np.random.default_rng([seed, repeat]).permutation(train)[:most]


def balance_blocks(blocks: Sequence[Array]) -> Floats:
    """One matrix of several, each with the same variance in all.

    A penalty shared by 20 raw columns and 1,000 numbers of an embedding hears the latter only.
    """
    parts = [part / np.float32(max(part.shape[1], 1) ** 0.5) for part in blocks]
    return np.concatenate(parts, axis=1).astype(np.float64)


def linear_guesses(
    features: Callable[[Index], Floats],
    labels: Array,  # (N,)
    task: Task,
    test: Index,
    orders: Sequence[Index],
    sizes: Sequence[int],
) -> Array:
    """Predictions for the test rows by a linear model of every order and size.

    ``features`` gives the inputs of some rows. Only the labels of the rows in an order are read.

    Shape: ``(orders, sizes, n)``.
    """
    models = []
    for order in orders:
        x, y = features(order), labels[order]
        models += [fit_linear(x[:size], y[:size], task) for size in sizes]
    blocks = (features(test[start : start + BLOCK]) for start in range(0, len(test), BLOCK))
    guesses = np.concatenate([np.stack([model(x) for model in models]) for x in blocks], axis=1)
    return guesses.reshape(len(orders), len(sizes), len(test))


def fit_linear(x: Floats, y: Array, task: Task) -> Guess:
    """A function from features to guesses; a single class is guessed always."""
    if np.ptp(y) == 0:
        return lambda rows: np.full(len(rows), y[0])
    if task == "regression":
        guess: Guess = RidgeCV(alphas=PENALTIES).fit(x, y).predict
        return guess
    # an L2 penalty keeps the weights in the span of the rows: as many inputs as rows will do
    centre = x.mean(0)
    span = np.linalg.svd(x - centre, full_matrices=False)[2] if len(x) < x.shape[1] else None

    def inside(rows: Floats) -> Floats:
        return rows - centre if span is None else (rows - centre) @ span.T

    inputs = inside(x)
    fold = np.empty(len(y), dtype=np.int64)  # each class spread evenly; rows are in random order
    fold[np.argsort(y, kind="stable")] = np.arange(len(y)) % FOLDS
    risks = sum(_fold_risks(inputs, y, fold == number) for number in range(FOLDS))
    model = list(_path(inputs, y, int(np.argmin(risks)) + 1))[-1]
    return lambda rows: model.predict(inside(rows))


def _path(x: Floats, y: Array, count: int) -> Iterator[LogisticRegression]:
    """Models of the first ``count`` penalties, each starting from the one before."""
    model = LogisticRegression(warm_start=True, max_iter=200, tol=1e-3)
    for penalty in PENALTIES[:count]:
        model.set_params(C=1.0 / penalty)
        with warnings.catch_warnings():  # the weakest penalties may take longer than they are worth
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x, y)
        yield model


def _fold_risks(x: Floats, y: Array, out: NDArray[np.bool_]) -> Floats:
    """Cross-entropy of the rows that are left out, summed, for every penalty."""
    inside = y[~out]
    if not out.any() or np.ptp(inside) == 0:
        return np.zeros(len(PENALTIES))
    risks = []
    for model in _path(x[~out], inside, len(PENALTIES)):
        place = np.searchsorted(model.classes_, y[out]).clip(max=len(model.classes_) - 1)
        chance = model.predict_proba(x[out])[np.arange(out.sum()), place]
        is_seen = model.classes_[place] == y[out]
        risks.append(-np.log(np.where(is_seen, chance, UNSEEN).clip(UNSEEN)).sum())
    return np.array(risks)
