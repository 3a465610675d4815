"""The types of a constructor's parameters, read off its annotations and checked before a fit.

Values of the right type that make no sense are refused where they are used, each in a sentence of
its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from sklearn.utils._param_validation import InvalidParameterError, validate_parameter_constraints

from varjepa.errors import InputError

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
