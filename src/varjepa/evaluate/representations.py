"""The representations that are compared, for the same rows: raw, PCA, T-JEPA, Var-T-JEPA."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from varjepa.downstream import Inputs, RawFeatures, Tokens
from varjepa.downstream.encoding import RawEncoder
from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.estimators.base import TableEstimator
from varjepa.evaluate.kept import Estimator, Kept
from varjepa.evaluate.rows import Rows
from varjepa.evaluate.settings import NEED_VAR_T_JEPA, EvaluateSettings
from varjepa.models.var_t_jepa.scoring import KINDS
from varjepa.tables import TableCodec

PCA_VARIANCE = 0.95
"""Share of the variance that the principal components keep."""


@dataclass(slots=True)
class Representations:
    """Every representation of the labelled rows."""

    inputs: dict[str, Inputs] = field(default_factory=dict)
    scores: dict[str, NDArray[np.float64]] = field(default_factory=dict)  # (n,) each
    """latent uncertainties of Var-T-JEPA; larger is less certain"""
    records: dict[str, Any] = field(default_factory=dict)
    """how the fitted ones were fitted"""


def represent(rows: Rows, settings: EvaluateSettings, kept: Kept, verbose: bool) -> Representations:
    """Fit on unlabelled rows what has to be fitted, and represent all labelled rows."""
    wanted = settings.representations
    kinds = dict(settings.kinds) or None
    codec = TableCodec.fit(rows.unlabelled, kinds, max_levels=VarTJEPA().max_levels)
    raw = RawFeatures.from_table(codec.encode(rows.labelled))
    found = Representations({"raw": Inputs(raw=raw)})

    def fitted(unfitted: Estimator) -> tuple[Estimator, Tokens]:
        def fit() -> Estimator:
            return unfitted.fit(rows.unlabelled, rows.fit_labels)

        with remarks_said_already():
            model, record = kept.estimator(unfitted, fit)
            tokens = Tokens(torch.as_tensor(_embed(model, rows.labelled)), standardise=True)
        found.records[type(unfitted).__name__] = record
        return model, tokens

    if "pca" in wanted:
        found.inputs["pca"] = Inputs(raw=principal_components(raw, codec, rows))
    common: dict[str, Any] = {
        "epochs": "auto" if settings.epochs is None else settings.epochs,
        "column_kinds": kinds,
        "device": settings.device,
        "random_state": settings.seed,
        "verbose": int(verbose),
    }
    if "t_jepa" in wanted:
        found.inputs["t_jepa"] = Inputs(tokens=fitted(TJEPA(**common))[1])
    if any(name in NEED_VAR_T_JEPA for name in wanted):
        model, tokens = fitted(VarTJEPA(**common))
        found.inputs["var_t_jepa"] = Inputs(tokens=tokens)
        found.inputs["raw+var_t_jepa"] = Inputs(raw, tokens)
        found.scores = latent_scores(model, rows.labelled, kept)
    found.inputs = {name: found.inputs[name] for name in wanted}
    return found


def principal_components(raw: RawFeatures, codec: TableCodec, rows: Rows) -> RawFeatures:
    """Components of the standardised, one-hot columns, fitted on the unlabelled rows."""
    with remarks_said_already():
        unlabelled = RawFeatures.from_table(codec.encode(rows.unlabelled))
    encoder = RawEncoder("one-hot").fit(unlabelled)
    matrix = encoder.transform(unlabelled).numeric
    if not np.ptp(matrix, axis=0).any():  # only constant columns: there is nothing to rotate
        return raw
    pca = PCA(n_components=PCA_VARIANCE, svd_solver="full").fit(matrix)
    return RawFeatures.from_numeric(pca.transform(encoder.transform(raw).numeric))


def latent_scores(model: VarTJEPA, table: pa.Table, kept: Kept) -> dict[str, NDArray[np.float64]]:
    """Every kind of uncertainty, one number per row."""

    def compute() -> dict[str, NDArray[Any]]:
        with remarks_said_already():
            return {**model.uncertainties(table)}

    arrays = kept.arrays("latent-uncertainty", compute)
    return {kind: arrays[kind].astype(np.float64) for kind in KINDS}  # a file has its own order


@contextmanager
def remarks_said_already() -> Iterator[None]:
    """The codec of the raw features has warned of odd cells; once is enough."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="treated as missing")
        yield


def _embed(model: TableEstimator, table: pa.Table) -> NDArray[np.float32]:
    assert isinstance(model, VarTJEPA | TJEPA)
    return model.embed(table).mean
