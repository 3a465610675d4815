"""Packages of the extra ``downstream``, imported when a predictor asks for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from varjepa.errors import InputError


def require(package: str, predictor: str) -> Any:
    """The package, or one sentence that says what to install."""
    try:
        return import_module(package)
    except ImportError as error:
        raise InputError(
            f"predictor {predictor} needs the package {package}: install varjepa[downstream]."
        ) from error
