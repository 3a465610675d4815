"""Raw columns to numbers with scikit-learn's encoders, fitted on training rows only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

from varjepa.downstream.inputs import RawFeatures

RawForm = Literal["one-hot", "codes", "trees"]
"""Scaled numbers and one-hot levels; scaled numbers and level codes; numbers as they are with NaN
for missing, and one-hot levels."""

RawScaling = Literal["standard", "minmax"]

MAX_LEVELS = 256
"""Rarer levels of a column beyond this many share one."""


@dataclass(frozen=True, slots=True)
class RawMatrix:
    """Encoded raw columns."""

    numeric: NDArray[np.float32]  # (n, F)
    codes: NDArray[np.int64]  # (n, C), 0 for a level the training rows do not have


class RawEncoder:
    """Missing numbers become the column's mean (trees see NaN), a missing level is a level."""

    def __init__(self, form: RawForm, scaling: RawScaling = "standard") -> None:
        if form not in get_args(RawForm) or scaling not in get_args(RawScaling):
            raise ValueError(f"unknown form {form!r} or scaling {scaling!r}")
        self.form = form
        self.scaling = scaling

    def fit(self, raw: RawFeatures) -> RawEncoder:
        self.levels: tuple[int, ...] = ()
        self._numeric: Any = None
        self._levels: Any = None
        if raw.numeric.shape[1] and self.form != "trees":
            scaler = StandardScaler() if self.scaling == "standard" else MinMaxScaler()
            imputer = SimpleImputer(strategy="mean", keep_empty_features=True)
            self._numeric = make_pipeline(imputer, scaler).fit(_finite(raw.numeric))
        if raw.categorical.shape[1] and self.form == "codes":
            self._levels = OrdinalEncoder(
                handle_unknown="use_encoded_value", unknown_value=-1, max_categories=MAX_LEVELS
            ).fit(raw.categorical)
            highest = self._levels.transform(raw.categorical).max(0)
            self.levels = tuple(int(code) + 2 for code in highest)  # code 0 is an unseen level
        elif raw.categorical.shape[1]:
            self._levels = OneHotEncoder(
                handle_unknown="infrequent_if_exist",
                max_categories=MAX_LEVELS,
                sparse_output=False,
                dtype=np.float32,
            ).fit(raw.categorical)
        return self

    def transform(self, raw: RawFeatures) -> RawMatrix:
        values = _finite(raw.numeric)
        if self._numeric is not None:
            values = self._numeric.transform(values)
        numeric = values.astype(np.float32)
        codes = np.empty((len(raw), 0), dtype=np.int64)
        if self._levels is not None and self.form == "codes":
            codes = self._levels.transform(raw.categorical).astype(np.int64) + 1
        elif self._levels is not None:
            numeric = np.concatenate([numeric, self._levels.transform(raw.categorical)], axis=1)
        return RawMatrix(numeric, codes)


def _finite(numeric: NDArray[Any]) -> NDArray[np.float64]:
    """Infinite numbers count as missing."""
    values = np.asarray(numeric, dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)
