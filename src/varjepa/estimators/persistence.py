"""A fitted estimator as a model folder, and back without trusting a byte.

Constructor parameters as JSON, and back: each must be what the constructor's signature says.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from varjepa.errors import InputError
from varjepa.estimators.settings import as_setting, table_shape
from varjepa.model_folder import Kind, ModelFileError, OpenModel, SavedModel, WeightFile
from varjepa.randomness import seeded_weights
from varjepa.tables import TableCodec
from varjepa.tables.codec_json import (
    StrictObject,
    flag,
    list_of,
    number,
    optional,
    text,
    whole,
    whole_text,
)
from varjepa.training.collapse_alarm import CollapseReport

if TYPE_CHECKING:
    from varjepa.estimators.base import TableEstimator

_NOT_SAVED = ("checkpoint_dir", "checkpoint_every", "log_dir", "resume", "verbose")
"""Parameters about one machine's folders and screens."""

_LATER = ("max_steps",)
"""Parameters that an older model folder lacks; its model was fitted with their defaults."""

LAYER_COUNTS = ("depth", "predictor_depth", "imputer_depth", "auxiliary_layers")
_MAY_BE_ZERO = (*LAYER_COUNTS, "n_aux")
"""Every other whole number counts something that there is at least one of."""


def parameters_to_json(estimator: TableEstimator) -> dict[str, Any]:
    """The parameters that describe a model; one that could not be read back is named here."""
    hints = _saved_hints(type(estimator))
    parameters = {name: plain(getattr(estimator, name)) for name in hints}
    if not isinstance(parameters["random_state"], int | None):
        parameters["random_state"] = None  # a generator's state is not a setting
    for name, hint in hints.items():
        if not _fits(name, parameters[name], hint):
            raise InputError(
                f"cannot save {name}={getattr(estimator, name)!r}: it is not what a "
                f"{type(estimator).__name__} takes"
            )
    return parameters


def parameters_from_json(kind: type[TableEstimator], value: Any, where: str) -> dict[str, Any]:
    """Arguments of the constructor."""
    found = StrictObject(value, where)

    def take(name: str, hint: Any) -> Any:
        def check(item: Any, where: str) -> Any:
            if not _fits(name, item, hint):
                raise InputError(f"{where} is not what a {kind.__name__} takes")
            return as_setting(item)

        return found.take(name, check)

    parameters = {
        name: take(name, hint)
        for name, hint in _saved_hints(kind).items()
        if name not in _LATER or name in found.left
    }
    found.finish()
    return parameters


def plain(value: Any) -> Any:
    """The value in JSON's own types: numpy's numbers as Python's, tuples as lists."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value is of an annotated type.

    Examples:
        >>> fits([0.1, 1], tuple[float, float]), fits(True, int), fits("auto", int | None)
        (True, False, False)
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is tuple:
        return (
            isinstance(value, list)
            and len(value) == len(arguments)
            and all(map(fits, value, arguments))
        )
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, item = arguments
        return isinstance(value, dict) and all(
            fits(k, key) and fits(v, item) for k, v in value.items()
        )
    if hint is Any:
        return any(fits(value, one) for one in (None, bool, int, float, str))
    return _SCALARS[hint](value)


def _fits(name: str, value: Any, hint: Any) -> bool:
    return fits(value, hint) and (hint is not int or value > 0 or name in _MAY_BE_ZERO)


def _saved_hints(kind: type[TableEstimator]) -> dict[str, Any]:
    """Name and type of every parameter that is saved."""
    hints = get_type_hints(kind.__init__)
    names = (name for name in kind._get_param_names() if name not in _NOT_SAVED)
    return {name: hints.get(name, Any) for name in names}


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, float) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    try:
        return bool(whole_text(value, "")) or value == ""
    except InputError:
        return False


_SCALARS: dict[Any, Any] = {
    None: lambda value: value is None,
    types.NoneType: lambda value: value is None,
    bool: lambda value: isinstance(value, int) and value in (0, 1),
    int: lambda value: isinstance(value, int) and _is_number(value) and value >= 0,
    float: _is_number,
    str: _is_text,
}
"""No parameter that counts something is negative."""


# --- A fitted estimator as a model folder's content, and back.
#
# On the way back nothing in the folder is believed: settings are checked against the
# constructor, the
# codec against the columns it names, and every tensor's type and shape against networks that
# are only
# planned, before room is made for them. What is left is what :func:`to_saved` could have
# written.

Estimator = TypeVar("Estimator", bound="TableEstimator")

_FRAMES = ("numpy", "pyarrow", "pandas", "polars", "modin", "cudf")


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
            {key: _finite(plain(value)) for key, value in record.items()}
            for record in estimator.history_
        ],
    }
    return SavedModel(config, estimator.codec_.to_json(), dict(estimator.model_.state_dict()))


def from_saved(kind: type[Estimator], saved: OpenModel, folder: Path) -> Estimator:
    """The estimator that was saved, or one sentence about what is wrong with the folder."""
    if not isinstance(saved.config, dict) or saved.config.get("estimator") != kind.__name__:
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
    estimator.n_features_in_ = config.take("n_features", whole)
    given = config.take("feature_names", optional(list_of(whole_text)))
    if estimator.n_features_in_ != len(names) or given not in (None, names):
        raise InputError("config.n_features and feature_names do not fit the codec's columns")
    if given is not None:
        estimator.feature_names_in_ = np.array(given, dtype=object)
    frame = config.take("frame", text)
    estimator.frame_ = frame if frame in _FRAMES else "pyarrow"  # else nobody could make one
    estimator.history_ = list(config.take("history", list_of(_record)))
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
    shape = table_shape(estimator.codec_)
    # layers are planned one by one, and each has weights of its own
    if any(getattr(estimator, name, 0) > len(weights) for name in LAYER_COUNTS):
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
        silent_features=found.take("silent_features", list_of(whole)),
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
    return whole(value, where) if isinstance(value, int) else number(value, where)


def _below(end: int) -> Any:
    def check(value: Any, where: str) -> int:
        if not 0 <= whole(value, where) < end:
            raise InputError(f"{where} must be between 0 and {end - 1}")
        return int(value)

    return check


def _finite(value: Any) -> Any:
    """JSON has no NaN: a loss that was none is missing."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
