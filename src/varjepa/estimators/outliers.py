"""OutlierDetector: outliers of any table, in scikit-learn's manner."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from varjepa.errors import InputError
from varjepa.estimators.frames import to_arrow
from varjepa.estimators.var_t_jepa import VarTJEPA
from varjepa.settings import is_share


class OutlierDetector(OutlierMixin, BaseEstimator):
    """Outliers of a table with numbers, categories, dates and missing cells.

    Fit it on rows of which a few may be outliers, or on normal rows only. A row's score is
    :meth:`varjepa.VarTJEPA.outlier_score`.

    Args:
        estimator: the model of the rows; None: ``VarTJEPA()``. It is cloned, then fitted. A
            ``sklearn.frozen.FrozenEstimator`` of a fitted one, say of ``VarTJEPA.load(folder)``, is
            taken as it is, and ``fit`` only finds ``offset_``.
        contamination: share of the training rows that ``predict`` calls outliers, in (0, 0.5].
        random_state: seed of the model, unless it has one of its own.

    Attributes:
        estimator_: the fitted model; its ``cell_uncertainty(X, "atypical")`` says which cells of an
            outlier are unlikely.
        offset_: ``decision_function`` is ``score_samples`` minus this.

    Examples:
        >>> from varjepa import Training
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = VarTJEPA(training=Training(max_steps=20))
        >>> detector = OutlierDetector(model, contamination=0.05, random_state=0).fit(X)
        >>> detector.predict([[0.0, 0.0, 0.0], [9.0, -9.0, 9.0]]).tolist()
        [1, -1]
    """

    def __init__(
        self,
        estimator: VarTJEPA | None = None,
        *,
        contamination: float = 0.1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.contamination = contamination
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from rows; ``y`` is ignored."""
        if not is_share(self.contamination) or self.contamination > 0.5:
            raise InputError(f"contamination must be in (0, 0.5], not {self.contamination!r}")
        given: Any = VarTJEPA() if self.estimator is None else self.estimator
        is_frozen = isinstance(given, FrozenEstimator)
        model = given.estimator if is_frozen else given
        if not isinstance(model, VarTJEPA):
            raise InputError(f"estimator must be a VarTJEPA, not {type(model).__name__}")
        if not is_frozen:
            model = clone(model)
            if model.random_state is None:
                model.set_params(random_state=self.random_state)
            model.fit(X)
        scores = -model.outlier_score(X).astype(np.float64)
        self.estimator_ = model
        self.offset_ = float(np.quantile(scores, self.contamination))
        self.n_features_in_ = model.n_features_in_
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.feature_names_in_
        return self

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Minus the outlier score: lower is more of an outlier.  # (n,)"""
        check_is_fitted(self)
        to_arrow(self, X, reset=False)  # an error names this class
        return -self.estimator_.outlier_score(X).astype(np.float64)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """``score_samples`` minus ``offset_``: below 0 for outliers.  # (n,)"""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 for inliers, −1 for outliers.  # (n,)"""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(VarTJEPA()).input_tags
        return tags
