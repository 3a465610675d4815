"""One predictor of one seed, with the interface scikit-learn users know."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from varjepa.downstream.inputs import as_inputs
from varjepa.downstream.models import (
    AnyInputs,
    FitOptions,
    Floats,
    LabelledInputs,
    fit_models,
)
from varjepa.downstream.task import Regression, task_for
from varjepa.errors import InputError


class Predictor:
    """A predictor of the paper by name: mlp, dcn_v2, resnet, autoint, ft_transformer, xgboost,
    linear_probe.

    Shape: inputs are a matrix (n, F), RawFeatures, Tokens (n, D, d), or Inputs with both.

    Examples:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(200, 3))
        >>> y = np.where(x[:, 0] > 0, "yes", "no")
        >>> model = Predictor("linear_probe").fit(x[:150], y[:150], validation=(x[150:], y[150:]))
        >>> model.predict([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]).tolist()
        ['yes', 'no']
    """

    def __init__(
        self, name: str = "mlp", *, seed: int = 0, options: FitOptions | None = None
    ) -> None:
        self.name = name
        self.seed = seed
        self.options = options

    def fit(
        self, X: AnyInputs, y: ArrayLike, validation: tuple[AnyInputs, ArrayLike] | None = None
    ) -> Predictor:
        """Early stopping and the choice of the best epoch need validation rows; without them
        a network trains all epochs.
        """
        options = self.options or FitOptions()
        inputs, labels = as_inputs(X), np.asarray(y)
        if labels.shape != (len(inputs),):
            raise InputError(f"the target has {len(labels)} values for {len(inputs)} rows.")
        held_out = None
        if validation is not None:
            others = as_inputs(validation[0])
            held_out = LabelledInputs(others, np.arange(len(others)), np.asarray(validation[1]))
        index = np.arange(len(inputs))
        task = task_for(options.task, labels, index)
        self.models_ = fit_models(
            self.name, LabelledInputs(inputs, index, labels), held_out, task, [self.seed], options
        )
        self.classes_ = None if isinstance(task, Regression) else task.classes
        return self

    def predict_proba(self, X: AnyInputs) -> Floats:
        """Probabilities of ``classes_``.  # (n, classes)"""
        if self.classes_ is None:
            raise InputError("a numeric target has no probabilities; use predict.")
        return self.models_.predict(X)[0]

    def predict(self, X: AnyInputs) -> NDArray[Any]:
        """Most likely classes, or numbers.  # (n,)"""
        values = self.models_.predict(X)[0]
        return values if self.classes_ is None else self.classes_[values.argmax(-1)]
