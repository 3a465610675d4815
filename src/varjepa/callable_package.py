"""Packages that are also their own function, as ``varjepa.audit(df)``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package that is called as its function of the same name."""

    __function__: Callable[..., Any]

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.__function__(*arguments, **options)


def make_callable(package: str, function: Callable[..., Any]) -> None:
    """Let the package be called as the function; help and signature are the function's."""
    module: Any = sys.modules[package]
    module.__class__ = CallablePackage
    module.__function__ = function
    module.__signature__ = inspect.signature(function, eval_str=True)
    plain = [one.replace(annotation=one.empty) for one in module.__signature__.parameters.values()]
    call = f"{package}{inspect.Signature(plain)}"
    first, _, rest = (inspect.getdoc(function) or "").partition("\n")
    module.__doc__ = f"{first}\n\n    {call}\n{rest}"
