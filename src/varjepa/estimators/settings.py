"""An estimator's parameters, checked and turned into the settings of the layers below.

The types of a constructor's parameters, read off its annotations and checked before a fit.

Values of the right type that make no sense are refused where they are used, each in a sentence of
its own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from sklearn.utils._param_validation import InvalidParameterError, validate_parameter_constraints

from varjepa.errors import InputError
from varjepa.models.masking import MaskSettings
from varjepa.models.table_rows import TableShape
from varjepa.tables import TableCodec
from varjepa.training.settings import PRECISIONS, TrainingSettings

if TYPE_CHECKING:
    from varjepa.estimators.base import TableEstimator

_PLAIN: dict[Any, list[Any]] = {
    bool: ["boolean"],
    int: [Integral],
    float: [Real],
    str: [str],
    tuple: [tuple, list],  # JSON gives a list back where there was a tuple
    Mapping: [Mapping],
    NoneType: [None],
}


class ParameterError(InputError, InvalidParameterError):
    """A parameter of a wrong type, by the name that scikit-learn has for it too."""


def constraints_of(kind: type[TableEstimator]) -> dict[str, list[Any]]:
    """What scikit-learn calls the constraints of every parameter."""
    hints = get_type_hints(kind.__init__)
    return {name: _constraints(name, hint) for name, hint in hints.items() if name != "return"}


def check_types(estimator: TableEstimator) -> None:
    """Refuse a parameter of a type that its annotation does not name."""
    try:
        validate_parameter_constraints(
            estimator._parameter_constraints,
            estimator.get_params(deep=False),
            caller_name=type(estimator).__name__,
        )
    except InvalidParameterError as error:
        raise ParameterError(" ".join(str(error).split())) from error


def _constraints(name: str, hint: Any) -> list[Any]:
    if name == "random_state":
        return ["random_state"]
    folders = [os.PathLike] if name.endswith("_dir") else []
    return [*_types(hint), *folders]


def _types(hint: Any) -> list[Any]:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return [kind for part in get_args(hint) for kind in _types(part)]
    if origin is Literal:
        return [*{type(value) for value in get_args(hint)}]
    return _PLAIN[origin or hint]


# --- An estimator's parameters, checked and turned into the settings of the layers below.

Settings = TypeVar("Settings")

Output = Literal["flat", "mean", "cls"]
OUTPUTS: tuple[Output, ...] = get_args(Output)

OF_THE_RUN = (
    "capture", "checkpoint_dir", "checkpoint_every", "device", "log_dir", "resume", "tensorboard",
    "verbose",
)  # fmt: skip
"""Parameters about where and how a training runs, not about what comes out."""

AUTO_STEPS = 1400
"""Optimiser steps that ``epochs="auto"`` aims at, within 10 to 200 epochs."""


def check_parameters(estimator: TableEstimator) -> None:
    """Refuse what no layer below would refuse in one sentence."""
    check_types(estimator)
    one_of("output", estimator.output, OUTPUTS)
    one_of("precision", estimator.precision, PRECISIONS)
    for name in ("epochs", "batch_size"):
        value = getattr(estimator, name)
        if value != "auto" and not _counts(value):
            raise InputError(f'{name} must be a positive number or "auto", not {value!r}')
    if estimator.max_steps is not None and not _counts(estimator.max_steps):
        raise InputError(f"max_steps must be at least 1 or None, not {estimator.max_steps!r}")
    for name in ("check_every", "patience", "targets"):
        at_least_one(name, getattr(estimator, name))
    for name in ("context_share", "target_share"):
        if len(getattr(estimator, name)) != 2:
            raise InputError(f"{name} must be two shares, not {getattr(estimator, name)!r}")
    if estimator.precision == "bfloat16" and pick_device(estimator.device).type == "cpu":
        # some CPUs announce bfloat16 instructions and then stop at them
        raise InputError('precision "bfloat16" needs a GPU; a CPU computes in float32')
    if estimator.tensorboard and estimator.log_dir is None:
        raise InputError("tensorboard needs log_dir, the folder for its events")
    if estimator.resume and estimator.checkpoint_dir is None:
        raise InputError("resume needs checkpoint_dir, the folder of the checkpoints")
    if not 0.0 <= estimator.checkpoint_every < math.inf:
        raise InputError(
            f"checkpoint_every must be a number of seconds, not {estimator.checkpoint_every!r}"
        )
    if not 0.0 <= estimator.validation_share < 1.0:
        raise InputError(f"validation_share must be in [0, 1), not {estimator.validation_share}")


def _counts(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def at_least_one(name: str, value: Any) -> None:
    """Refuse what is not a positive whole number."""
    if not _counts(value):
        raise InputError(f"{name} must be at least 1 and whole, not {value!r}")


def one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    """Refuse a value that is not among the known ones."""
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")


def table_shape(codec: TableCodec) -> TableShape:
    """What the networks need to know of a table; every category has MISSING as a state more."""
    numeric = len(codec.numeric)
    return TableShape(numeric, tuple(f.levels + 1 for f in codec.features[numeric:]))


def settings_of(estimator: TableEstimator, kind: type[Settings]) -> Settings:
    """The settings whose fields are parameters of the estimator."""
    values = {field.name: getattr(estimator, field.name) for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: as_setting(value) for name, value in values.items()})


def as_setting(value: Any) -> Any:
    """JSON gives a list back where there was a tuple."""
    return tuple(value) if isinstance(value, list) else value


def training_settings(estimator: TableEstimator, rows: int) -> TrainingSettings:
    """Optimisation, with what is "auto" decided by the number of rows to train on."""
    e = estimator
    batch = min(512, max(32, rows // 20)) if e.batch_size == "auto" else e.batch_size
    steps = math.ceil(rows / batch)  # of an epoch
    wanted = min(200, max(10, math.ceil(AUTO_STEPS / steps)))
    settings = TrainingSettings(
        epochs=wanted if e.epochs == "auto" else e.epochs,
        max_steps=e.max_steps,
        batch=batch,
        learning_rate=e.learning_rate,
        masks=settings_of(e, MaskSettings),
        weight_decay=e.weight_decay,
        check_every=e.check_every,
        patience=e.patience,
        precision=e.precision,
        capture=e.capture,
    )
    return replace(settings, warm_up_epochs=e.warm_up_share * length_of(settings, rows))


def length_of(settings: TrainingSettings, rows: int) -> float:
    """Epochs that a training takes at most, of which the last may end early."""
    if settings.max_steps is None:
        return settings.epochs
    return min(settings.epochs, settings.max_steps / math.ceil(rows / settings.batch))


def pick_device(name: str) -> torch.device:
    """The device asked for; "auto" takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r} is not auto, cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device {name!r} is not auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r} was asked for, but torch sees no GPU")
    return device
