"""A fitted estimator as a model folder, and back.

On the way back nothing in the folder is believed: settings check themselves, the codec is checked
against the columns it names, and every tensor's type and shape against networks that are only
planned, before memory is allocated for them. What is left is what :func:`to_saved` could have
written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from varjepa.errors import InputError
from varjepa.model_folder import Kind, ModelFileError, OpenModel, SavedModel, WeightFile
from varjepa.randomness import seeded_weights
from varjepa.settings import OUTPUTS, from_json, to_json
from varjepa.tables import SCALINGS, TableCodec
from varjepa.tables.codec_json import (
    StrictObject,
    flag,
    integer,
    list_of,
    number,
    one_of,
    optional,
    text,
    whole_text,
)
from varjepa.tables.columns import KINDS
from varjepa.training.loop import CollapseReport

if TYPE_CHECKING:
    from varjepa.estimators.base import TableEstimator

LAYER_COUNTS = ("depth", "predictor_depth", "imputer_depth")

Estimator = TypeVar("Estimator", bound="TableEstimator")

_FRAMES = ("numpy", "pyarrow", "pandas", "polars", "modin", "cudf")


def parameters_to_json(estimator: TableEstimator) -> dict[str, Any]:
    """The parameters that describe a model; settings that were left out are saved as defaults."""
    estimator.check_parameters()
    seed = estimator.random_state
    return {
        **{name: to_json(estimator.settings(name)) for name in estimator.settings_kinds},
        "column_kinds": None if estimator.column_kinds is None else dict(estimator.column_kinds),
        "scaling": estimator.scaling,
        "max_levels": int(estimator.max_levels),
        "output": estimator.output,
        "device": estimator.device,
        # a generator's state is not a setting
        "random_state": int(seed) if isinstance(seed, Integral) else None,
    }


def parameters_from_json(kind: type[TableEstimator], value: Any, where: str) -> dict[str, Any]:
    """Arguments of the constructor, from untrusted JSON."""
    found = StrictObject(value, where)
    parameters: dict[str, Any] = {
        name: found.take(name, partial(from_json, one)) for name, one in kind.settings_kinds.items()
    }
    parameters |= {
        "column_kinds": found.take("column_kinds", optional(_kinds)),
        "scaling": found.take("scaling", optional(one_of(SCALINGS))),
        "max_levels": found.take("max_levels", _below(2**63)),
        "output": found.take("output", one_of(OUTPUTS)),
        "device": found.take("device", whole_text),
        "random_state": found.take("random_state", optional(_below(2**32))),
    }
    found.finish()
    return parameters


def _kinds(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where} must be a JSON object")
    return {whole_text(k, where): one_of(KINDS)(v, where) for k, v in value.items()}


def to_saved(estimator: TableEstimator) -> SavedModel:
    """Everything a loaded estimator needs to answer as this one does."""
    names = getattr(estimator, "feature_names_in_", None)
    config = {
        "estimator": type(estimator).__name__,
        "parameters": parameters_to_json(estimator),
        "seed": estimator.seed_,
        "best_epoch": estimator.best_epoch_,
        "selected_by": estimator.selected_by_,
        "collapse": asdict(estimator.collapse_),
        "n_features": estimator.n_features_in_,
        "feature_names": None if names is None else list(names),
        "frame": estimator.frame_,
        "history": [
            {key: _finite(value) for key, value in record.items()} for record in estimator.history_
        ],
        **estimator._learned_to_json(),
    }
    return SavedModel(config, estimator.codec_.to_json(), dict(estimator.model_.state_dict()))


def from_saved(kind: type[Estimator], saved: OpenModel, folder: Path) -> Estimator:
    """The estimator that was saved, or one sentence about what is wrong with the folder."""
    name = saved.config.get("estimator") if isinstance(saved.config, dict) else None
    if name != kind.__name__:
        if name in ("VarTJEPA", "TJEPA"):
            raise ModelFileError(f"{folder} holds a {name}, not a {kind.__name__}")
        raise ModelFileError(f"{folder} does not hold a {kind.__name__} of this version")
    try:
        config = StrictObject(saved.config, "config")
        config.take("estimator", text)
        parameters = config.take(
            "parameters", lambda value, where: parameters_from_json(kind, value, where)
        )
        estimator = kind(**parameters)
        estimator.codec_ = _codec(saved.codec)
        _restore(estimator, config)
        estimator.model_ = _networks(estimator, saved.weights).eval()
    except ModelFileError:
        raise
    except InputError as error:
        raise ModelFileError(f"{folder} is not a model to load: {error}") from error
    return estimator


def _restore(estimator: TableEstimator, config: StrictObject) -> None:
    """What was learned besides codec and networks."""
    names = estimator.codec_.schema.names
    estimator.seed_ = config.take("seed", _below(2**32))
    estimator.best_epoch_ = config.take("best_epoch", _below(2**32))
    estimator.selected_by_ = config.take("selected_by", whole_text)
    estimator.collapse_ = config.take("collapse", _collapse)
    estimator.n_features_in_ = config.take("n_features", integer)
    given = config.take("feature_names", optional(list_of(whole_text)))
    if estimator.n_features_in_ != len(names) or given not in (None, names):
        raise InputError("config.n_features and feature_names do not fit the codec's columns")
    if given is not None:
        estimator.feature_names_in_ = np.array(given, dtype=object)
    frame = config.take("frame", text)
    estimator.frame_ = frame if frame in _FRAMES else "pyarrow"  # else nobody could make one
    estimator.history_ = list(config.take("history", list_of(_record)))
    estimator._restore_learned(config)
    config.finish()


def _codec(value: Any) -> TableCodec:
    """The codec, once it has shown that it can write a row: the last level of every category."""
    codec = TableCodec.from_json(value)
    numbers = np.zeros((1, len(codec.numeric)))
    codes = np.array([[len(category.levels) for category in codec.categorical]], dtype=np.int64)
    try:
        codec.decode(numbers, codes)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise InputError("codec.columns have types that their values cannot have") from error
    return codec


def _networks(estimator: TableEstimator, weights: WeightFile) -> nn.Module:
    """Networks with the file's weights; they are planned first, without memory for weights."""
    shape = estimator.table_shape(estimator.codec_)
    # layers are planned one by one, and each has weights of its own
    architecture = estimator.settings("architecture")
    if any(getattr(architecture, name, 0) > len(weights) for name in LAYER_COUNTS):
        raise InputError("config.parameters has more layers than there are weights")
    try:
        with torch.device("meta"):
            planned = estimator._build(shape).state_dict()
    except (ArithmeticError, TypeError, ValueError, RuntimeError) as error:
        raise InputError("config.parameters are not those of a network") from error
    if weights.kinds != {name: Kind.of(tensor) for name, tensor in planned.items()}:
        raise InputError("the weights are not those of config.json and codec.json")
    with seeded_weights(estimator.seed_):  # leaves torch's own random numbers where they were
        model = estimator._build(shape)
    for name, tensor in model.state_dict().items():
        weights.read_into(name, tensor)
    return model


def _collapse(value: Any, where: str) -> CollapseReport:
    found = StrictObject(value, where)
    report = CollapseReport(
        active_units=found.take("active_units", number),
        active_share=found.take("active_share", number),
        silent_features=found.take("silent_features", list_of(integer)),
        collapsed=found.take("collapsed", flag),
    )
    found.finish()
    return report


def _record(value: Any, where: str) -> dict[str, Any]:
    """One epoch: names, and a number, a word or nothing for each."""
    if not isinstance(value, dict):
        raise InputError(f"{where} must be a JSON object")
    return {whole_text(key, where): _measured(item, where) for key, item in value.items()}


def _measured(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return whole_text(value, where)
    return integer(value, where) if isinstance(value, int) else number(value, where)


def _below(end: int) -> Any:
    def check(value: Any, where: str) -> int:
        if not 0 <= integer(value, where) < end:
            raise InputError(f"{where} must be between 0 and {end - 1}")
        return int(value)

    return check


def _finite(value: Any) -> Any:
    """JSON has no NaN: a loss that was none is missing."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
