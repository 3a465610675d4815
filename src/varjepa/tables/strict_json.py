"""Read JSON that must be exactly what was expected, naming the place where it is not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from varjepa.errors import InputError
from varjepa.tables.quoting import listed

Check = Callable[[Any, str], Any]
"""Takes a JSON value and where it stands; returns what it means, or raises InputError."""

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class StrictObject:
    """A JSON object of which every key must be taken, once."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise InputError(f"{where} must be a JSON object")
        self.left, self.where = dict(value), where

    def take(self, key: str, check: Check) -> Any:
        if key not in self.left:
            raise InputError(f"{self.where} lacks {key!r}")
        return check(self.left.pop(key), f"{self.where}.{key}")

    def finish(self) -> None:
        if self.left:
            raise InputError(f"{self.where} has unknown keys: {listed(list(self.left))}")


def text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where} must be text")
    return value


def whole_text(value: Any, where: str) -> str:
    """Text without halves of characters: JSON can spell them, no file or Arrow table holds them."""
    if _HALF_CHARACTER.search(text(value, where)):
        raise InputError(f"{where} must be text of whole characters")
    return str(value)


def flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{where} must be true or false")
    return value


def whole(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**64:
        raise InputError(f"{where} must be a whole number of 64 bits")
    return value


def number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where} must be a finite number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InputError(f"{where} must be a finite number")
    return found


def whole_or_number(value: Any, where: str) -> int | float:
    """Keeps the difference between 1 and 1.0: it tells integer columns from others."""
    return value if type(value) is int else number(value, where)


def share(value: Any, where: str) -> float:
    if not 0.0 <= number(value, where) <= 1.0:
        raise InputError(f"{where} must be between 0 and 1")
    return float(value)


def optional(check: Check) -> Check:
    return lambda value, where: None if value is None else check(value, where)


def one_of(choices: tuple[str, ...]) -> Check:
    def check(value: Any, where: str) -> str:
        if not isinstance(value, str) or value not in choices:
            raise InputError(f"{where} must be one of {', '.join(choices)}")
        return value

    return check


def list_of(check: Check) -> Check:
    def checked(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise InputError(f"{where} must be a JSON list")
        return tuple(check(item, f"{where}[{i}]") for i, item in enumerate(value))

    return checked
