"""Representations and predictors on them, cached.

What an interrupted evaluation has finished: models and predictions, found again by name.

A stamp says what everything in the folder depends on. Other settings are refused rather than mixed
in; more representations, predictors or runs of the same evaluation go on from what is there.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.decomposition import PCA

from varjepa.downstream import DEFAULT_ADAPTER, FitOptions, Inputs, RawFeatures, Tokens, fit_seeds
from varjepa.downstream import Split as PredictorSplit
from varjepa.downstream.inputs import RawEncoder
from varjepa.errors import InputError
from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.estimators.base import TableEstimator
from varjepa.estimators.parameters import pick_device
from varjepa.evaluate.settings import NEED_VAR_T_JEPA, EvaluateSettings, Rows, Target, training_of
from varjepa.evaluate.splits import Split
from varjepa.files import make_folder, read_json, write_bytes, write_json
from varjepa.models.inference import KINDS
from varjepa.settings import Training
from varjepa.tables import TableCodec
from varjepa.version import __version__

Arrays = dict[str, NDArray[Any]]
Estimator = TypeVar("Estimator", bound=TableEstimator)

SECONDS = "seconds"


class Kept:
    """A folder of finished parts."""

    def __init__(self, folder: Path, stamp: dict[str, Any]) -> None:
        self.folder = folder
        make_folder(folder)
        path = folder / "stamp.json"
        if path.exists():
            theirs = read_json(path)
            for name, ours in stamp.items():
                if not isinstance(theirs, dict) or theirs.get(name) != ours:
                    raise InputError(
                        f"{folder} holds parts of another evaluation ({name} differs); choose "
                        "another --out"
                    )
        else:
            write_json(path, stamp)

    def arrays(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """Arrays of that name, computed where they are not there; ``seconds`` among them."""
        path = self.folder / f"{name}.safetensors"
        if path.exists():
            try:
                return load_arrays(path.read_bytes())
            except SafetensorError as error:
                raise InputError(f"{path} is damaged; delete it and start again") from error
        start = time.perf_counter()
        found = {k: np.ascontiguousarray(v) for k, v in compute().items()}
        found[SECONDS] = np.array([time.perf_counter() - start])
        write_bytes(path, save_arrays(found))
        return found

    def estimator(self, unfitted: Estimator, fit: Callable[[], Estimator]) -> tuple[Estimator, Any]:
        """A fitted estimator with its training record."""
        folder = self.folder / type(unfitted).__name__
        record = folder.with_suffix(".json")
        if record.exists():  # written last
            found = type(unfitted).load(folder)
            return found.set_params(device=unfitted.device), read_json(record)
        start = time.perf_counter()
        fitted = fit()
        seconds = time.perf_counter() - start
        fitted.save(folder)
        described = {
            "seconds": seconds,
            "epochs": len(fitted.history_),
            "best_epoch": fitted.best_epoch_,
            "selected_by": fitted.selected_by_,
            "active_units": fitted.collapse_.active_units,
            "d": fitted.d,
            "history": fitted.history_,
        }
        write_json(record, described)
        return fitted, described


def stamp_of(table: pa.Table, settings: EvaluateSettings) -> dict[str, Any]:
    """What fitted representations and predictions depend on, as plain JSON."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    own = {"verbose", "device", "random_state", "training__epochs", "column_kinds"}
    models = {
        type(model).__name__: {
            k: list(v) if isinstance(v, tuple) else v
            for k, v in model.get_params().items()
            if k not in own and k not in model.settings_kinds
        }
        for model in (TJEPA(), VarTJEPA())
    }
    return {
        "table": hashlib.sha256(sink.getvalue()).hexdigest(),
        "target": settings.target,
        "task": settings.task,
        "seed": settings.seed,
        "epochs": settings.epochs,
        "transductive": settings.transductive,
        "labels_pick_checkpoint": settings.labels_pick_checkpoint,
        "kinds": [list(pair) for pair in settings.kinds],
        "estimators": models,
        "version": __version__,
    }


# --- The representations that are compared, for the same rows: raw, PCA, T-JEPA, Var-T-JEPA.

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
        "training": Training(epochs="auto" if settings.epochs is None else settings.epochs),
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


# --- Cells of the comparison: one predictor on one representation, all its trainings.
#
# A test row's label is replaced before anything is trained: predictors, early stopping and
# every
# choice see the labels of training and validation rows only.

Floats = NDArray[np.float64]

SCALE = "scale"
"""mean and standard deviation of a target of numbers, over the training rows"""


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Predictions of R trainings."""

    representation: str
    predictor: str
    validation: NDArray[Any]  # (R, n_validation, C) float32 probabilities, or (R, n_validation)
    test: NDArray[Any]  # (R, n_test, C), or (R, n_test) float64 numbers
    classes: NDArray[np.int64] | None  # (C,) class numbers of the columns; None for numbers
    seconds: float
    """all trainings together"""

    @property
    def adapter(self) -> str | None:
        """How embeddings entered the predictor."""
        return None if self.representation in ("raw", "pca") else DEFAULT_ADAPTER[self.predictor]

    @property
    def is_deterministic(self) -> bool:
        """Whether all trainings are one and the same."""
        return bool((self.test == self.test[:1]).all())

    def guesses(self, part: NDArray[Any]) -> NDArray[Any]:
        """Class numbers or numbers.  # (R, n)"""
        return part if self.classes is None else self.classes[part.argmax(-1)]


def fit_cell(
    representation: str,
    predictor: str,
    inputs: Inputs,
    target: Target,
    split: Split,
    settings: EvaluateSettings,
    kept: Kept,
) -> Cell:
    """Train where it has not been done, and predict validation and test rows."""
    both = np.concatenate([split.validation, split.test])

    def compute() -> Arrays:
        labels = hide_test_labels(target, split)
        scale: Arrays = {}
        if target.task == "regression":
            # predictors answer in float32, which could not tell 2^60 + 1 from 2^60 + 9
            here = labels[split.train]
            mean, std = here.mean(), here.std() or 1.0
            scale = {SCALE: np.array([mean, std])}
            labels = (labels - mean) / std
        found = fit_seeds(
            predictor,
            inputs,
            labels,
            PredictorSplit(split.train, split.validation, both),
            settings.seeds,
            FitOptions(
                task=target.task,
                training=training_of(predictor, len(split.train)),
                device=str(pick_device(settings.device)),
            ),
        )
        values: Arrays = {"values": found.values, **scale}
        return values if found.classes is None else values | {"classes": found.classes}

    arrays = kept.arrays(f"{representation}-{predictor}-{settings.runs}", compute)
    values, cut = arrays["values"], len(split.validation)
    if SCALE in arrays:
        mean, std = arrays[SCALE]
        values = values.astype(np.float64) * std + mean
    return Cell(
        representation,
        predictor,
        values[:, :cut],
        values[:, cut:],
        arrays.get("classes"),
        float(arrays[SECONDS][0]),
    )


def hide_test_labels(target: Target, split: Split) -> NDArray[Any]:
    """The labels with those of test rows replaced by a training row's."""
    visible = target.values.copy()
    visible[split.test] = visible[split.train[0]]
    return visible


def losses(cell: Cell, part: NDArray[Any], truth: NDArray[Any]) -> Floats:
    """Errors (0 or 1), or squared errors.  # (R, n)"""
    guesses = cell.guesses(part)
    if cell.classes is None:
        return (guesses.astype(np.float64) - truth) ** 2
    return (guesses != truth).astype(np.float64)


def best_on_validation(cells: list[Cell], truth: NDArray[Any]) -> Cell:
    """The cell with the least mean loss on the validation rows."""
    return min(cells, key=lambda cell: float(losses(cell, cell.validation, truth).mean()))
