"""Constructor parameters of the estimators: nested settings, checks, devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from sklearn.utils._param_validation import InvalidParameterError, validate_parameter_constraints

from varjepa.errors import InputError
from varjepa.models.table_rows import TableShape
from varjepa.settings import Settings, field_names
from varjepa.tables import TableCodec

if TYPE_CHECKING:
    from varjepa.estimators.base import TableEstimator

Output = Literal["flat", "mean", "cls"]
OUTPUTS: tuple[Output, ...] = get_args(Output)


class ParameterError(InputError, InvalidParameterError):
    """A parameter of a wrong type, under scikit-learn's name for it too."""


def check_parameters(estimator: TableEstimator) -> None:
    """Refuse constructor parameters that make no sense; settings have checked themselves."""
    try:
        validate_parameter_constraints(
            estimator._parameter_constraints,
            estimator.get_params(deep=False),
            caller_name=type(estimator).__name__,
        )
    except InvalidParameterError as error:
        raise ParameterError(" ".join(str(error).split())) from error
    one_of("output", estimator.output, OUTPUTS)
    at_least_one("max_levels", estimator.max_levels)
    on_cpu = pick_device(estimator.device).type == "cpu"
    if on_cpu and estimator.settings("training").precision == "bfloat16":
        # some CPUs announce bfloat16 instructions and then stop at them
        raise InputError('precision "bfloat16" needs a GPU; a CPU computes in float32')


def expand(name: str, settings: Settings) -> dict[str, Any]:
    """The fields of a settings object as scikit-learn's nested parameters."""
    return {f"{name}__{field}": getattr(settings, field) for field in field_names(type(settings))}


def changed(name: str, settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """A copy of frozen settings with some fields changed."""
    known = field_names(type(settings))
    for field in changes:
        if field not in known:
            raise ValueError(
                f"Invalid parameter {field!r} for {name}; valid ones are {', '.join(known)}"
            )
    return replace(settings, **changes)  # type: ignore[type-var]


def nested(kind: type[TableEstimator], flat: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters by their plain names as nested parameters: ``d`` → ``architecture__d``."""
    places = {
        field: name for name, one in kind.settings_kinds.items() for field in field_names(one)
    }
    return {f"{places[k]}__{k}" if k in places else k: v for k, v in flat.items()}


def at_least_one(name: str, value: Any) -> None:
    """Refuse what is not a positive integer."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
        raise InputError(f"{name} must be an integer of at least 1, not {value!r}")


def one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    """Refuse a value that is not among the known ones."""
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")


def table_shape(codec: TableCodec) -> TableShape:
    """What the networks need to know of a table; every category has MISSING as a state more."""
    numeric = len(codec.numeric)
    return TableShape(numeric, tuple(f.levels + 1 for f in codec.features[numeric:]))


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
