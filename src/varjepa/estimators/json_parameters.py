"""Constructor parameters as JSON, and back: each must be what the constructor's signature says."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from varjepa.errors import InputError
from varjepa.estimators.parameters import as_setting
from varjepa.tables.strict_json import StrictObject, whole_text

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
