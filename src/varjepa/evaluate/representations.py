"""The representations that are compared, of the same rows: raw, PCA, T-JEPA, Var-T-JEPA."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.evaluate.few_labels import balance_blocks
from varjepa.evaluate.parts import FinishedParts
from varjepa.evaluate.settings import NEED_VAR_T_JEPA, EvaluateSettings
from varjepa.evaluate.splits import Index, Split
from varjepa.evaluate.target import Target
from varjepa.models.inference import KINDS
from varjepa.report.store import Row
from varjepa.settings import Training
from varjepa.tables import TableCodec

Floats = NDArray[np.float64]

PCA_VARIANCE = 0.95
"""share of the variance that the principal components keep"""
MAX_LEVELS = 256
"""rarer levels of a column beyond this many share one input"""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Inputs of a predictor: scaled columns, an embedding, or both."""

    parts: tuple[NDArray[np.float32], ...]  # (n, ·) each, NaN where missing

    def rows(self, index: Index) -> NDArray[np.float32]:
        return np.concatenate([part[index] for part in self.parts], axis=1)

    def balanced(self, index: Index) -> Floats:
        """For the linear models on few labels."""
        return balance_blocks([np.nan_to_num(part[index]) for part in self.parts])


def represent(
    features: pa.Table,
    target: Target,
    split: Split,
    settings: EvaluateSettings,
    parts: FinishedParts,
    verbose: bool,
) -> tuple[dict[str, Blocks], dict[str, Floats], dict[str, Row]]:
    """Every representation of the labelled rows, the latent uncertainties of these rows, and how
    the models were fitted.
    """
    wanted = settings.representations
    labelled = features.take(target.known) if target.missing else features
    fit_rows = features if settings.transductive else labelled.take(split.train)
    y = target.values[split.train] if settings.labels_pick_checkpoint else None
    codec = TableCodec.fit(fit_rows, dict(settings.kinds), max_levels=VarTJEPA().max_levels)
    raw, components = encode_columns(codec, fit_rows, labelled)
    found = {"raw": Blocks((raw,)), "pca": Blocks((components,))}
    models: dict[str, Row] = {}
    latent: dict[str, Floats] = {}

    def embed(estimator: type[TJEPA | VarTJEPA]) -> Blocks:
        name = estimator.__name__
        if not parts.models.has(model=name):
            fit_model(unfitted(estimator, settings, verbose), fit_rows, y, labelled, parts)
        (models[name],) = (row for row in parts.models.rows if row["model"] == name)
        model = estimator.load(parts.folder / name).set_params(device=settings.device)
        tokens = model.embed(labelled).mean  # (n, D, d)
        return Blocks((standardise(tokens.reshape(len(tokens), -1), split.train),))

    with no_second_warning():
        if "t_jepa" in wanted:
            found["t_jepa"] = embed(TJEPA)
        if set(NEED_VAR_T_JEPA) & set(wanted):
            found["var_t_jepa"] = embed(VarTJEPA)
            found["raw+var_t_jepa"] = Blocks((raw, *found["var_t_jepa"].parts))
            arrays = parts.read("uncertainties")
            latent = {kind: arrays[kind].astype(np.float64) for kind in KINDS}
    return {name: found[name] for name in wanted}, latent, models


def unfitted(
    estimator: type[TJEPA | VarTJEPA], settings: EvaluateSettings, verbose: bool
) -> TJEPA | VarTJEPA:
    """A model with the estimator's own settings, but for the number of epochs."""
    return estimator(
        training=Training(epochs="auto" if settings.epochs is None else settings.epochs),
        column_kinds=dict(settings.kinds) or None,
        device=settings.device,
        random_state=settings.seed,
        verbose=int(verbose),
    )


def fit_model(
    model: TJEPA | VarTJEPA,
    fit_rows: pa.Table,
    y: NDArray[Any] | None,
    labelled: pa.Table,
    parts: FinishedParts,
) -> None:
    """Fit and save, with the uncertainties of all rows; the row that says so is written last."""
    start = time.perf_counter()
    model.fit(fit_rows, y)
    seconds = time.perf_counter() - start
    model.save(parts.folder / type(model).__name__)
    if isinstance(model, VarTJEPA):
        scores = model.uncertainties(labelled)  # one of every kind, e.g. "nll mean"
        parts.write("uncertainties", {name.split()[0]: score for name, score in scores.items()})
    row = {
        "model": type(model).__name__,
        "seconds": seconds,
        "epochs": len(model.history_),
        "best_epoch": model.best_epoch_,
        "selected_by": model.selected_by_,
        "active_units": model.collapse_.active_units,
        "d": model.embed(labelled.slice(0, 1)).mean.shape[-1],
        "history": model.history_,
    }
    parts.models.add([row])


def encode_columns(
    codec: TableCodec, fit_rows: pa.Table, labelled: pa.Table
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Standardised numbers and one-hot levels of the labelled rows, and their principal components,
    both fitted on the unlabelled rows.  # (n, F), (n, C)
    """
    mine = codec.encode(labelled)
    with no_second_warning():
        theirs = codec.encode(fit_rows)
    numeric = []
    for encoded in (theirs, mine):
        values = encoded.num.numpy().astype(np.float64)
        if encoded.observed is not None:
            values[~encoded.observed[:, : values.shape[1]].numpy()] = np.nan
        numeric.append(values)
    parts = [[np.empty((len(values), 0)) for values in numeric]]
    is_known = ~np.isnan(numeric[0]).all(0)
    if is_known.any():
        scaler = StandardScaler().fit(numeric[0][:, is_known])
        parts.append([scaler.transform(values[:, is_known]) for values in numeric])
    if mine.cat.shape[1]:
        encoder = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=MAX_LEVELS, sparse_output=False
        ).fit(theirs.cat.numpy())
        parts.append([encoder.transform(each.cat.numpy()) for each in (theirs, mine)])
    fitted, raw = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    if not np.ptp(np.nan_to_num(fitted), axis=0).any():  # nothing varies: nothing to rotate
        return raw.astype(np.float32), raw.astype(np.float32)
    pca = PCA(n_components=PCA_VARIANCE, svd_solver="full").fit(np.nan_to_num(fitted))
    components = pca.transform(np.nan_to_num(raw))
    return raw.astype(np.float32), components.astype(np.float32)


def standardise(values: NDArray[Any], train: Index) -> NDArray[np.float32]:
    """With the moments of the training rows; a constant column is only centred."""
    mean = values[train].mean(0, dtype=np.float64)
    std = values[train].std(0, dtype=np.float64)
    std[std <= 1e-6 * np.maximum(np.abs(mean), 1e-6)] = 1.0
    scaled: NDArray[np.float32] = (values - mean.astype(np.float32)) / std.astype(np.float32)
    return scaled


@contextmanager
def no_second_warning() -> Iterator[None]:
    """The codec of the raw features has warned of odd cells; once is enough."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="treated as missing")
        yield
