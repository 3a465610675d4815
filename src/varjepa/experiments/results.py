"""Result files that can be continued: a JSON list of rows, one writer, always whole on disk.

Every row carries what it takes to trust it (seed, settings, environment, seconds) and the format
version, so that rows of another version or of other settings are never mixed with new ones.
Thousands of rows share a few settings and environments: on disk a row has their digests, and
``origins.json`` beside it has what they stand for.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varjepa.errors import InputError
from varjepa.files import read_json, write_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT_VERSION = 1

ORIGINS_FILE = "origins.json"
_SHARED = ("settings", "environment")
"""what many rows have in common"""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """What the rows of a file look like."""

    key: tuple[str, ...]
    """columns that tell rows apart"""
    values: tuple[str, ...]
    """columns that every row has besides"""
    settings: Callable[[Row], Any]
    """everything a row's values depend on, as plain JSON; kept in the row"""

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)


class ResultFile:
    """Rows on disk. ``add`` replaces rows with the same key and rewrites the file atomically."""

    def __init__(self, path: Path, layout: Layout) -> None:
        """Open a file, or refuse it: nothing of another version or settings is overwritten."""
        self.path = path
        self.layout = layout
        self.rows: list[Row] = self._checked(read_rows(path)) if path.exists() else []

    def has(self, **wanted: Any) -> bool:
        """Whether some row has all these values."""
        return any(all(row[name] == value for name, value in wanted.items()) for row in self.rows)

    def add(self, rows: list[Row]) -> None:
        """Add finished rows and write the file, ordered by key."""
        stamped = [
            {**row, "settings": self.layout.settings(row), "format_version": FORMAT_VERSION}
            for row in rows
        ]
        by_key = {self.layout.key_of(row): row for row in [*self.rows, *stamped]}
        self.rows = [by_key[key] for key in sorted(by_key)]
        write_rows(self.path, self.rows)

    def _checked(self, content: Any) -> list[Row]:
        foreign = InputError(
            f"{self.path} was not written by this version of varjepa; choose another folder"
        )
        needed = {*self.layout.key, *self.layout.values, "settings", "format_version"}
        if not isinstance(content, list) or not all(
            isinstance(row, dict) and needed <= row.keys() for row in content
        ):
            raise foreign
        try:
            sorted(self.layout.key_of(row) for row in content)
            expected = [self.layout.settings(row) for row in content]
        except (KeyError, TypeError) as error:  # a key that this study does not have
            raise foreign from error
        for row, ours in zip(content, expected, strict=True):
            if row["format_version"] != FORMAT_VERSION:
                raise InputError(
                    f"{self.path} has format version {row['format_version']}, this varjepa writes "
                    f"{FORMAT_VERSION}; choose another folder"
                )
            if not same_settings(row["settings"], ours):
                raise InputError(
                    f"{self.path} holds results of other settings "
                    f"({_first_difference(row['settings'], ours)}); choose another folder"
                )
        return content


def write_rows(path: Path, rows: list[Row]) -> None:
    """Write rows with digests for what they share; first of all what the digests stand for."""
    beside = path.parent / ORIGINS_FILE
    known = _origins(beside)
    origins = dict(known)
    compact = []
    for row in rows:
        short = dict(row)
        for name in _SHARED:
            if isinstance(row.get(name), dict):
                short[name] = _digest(row[name])
                origins[short[name]] = row[name]
        compact.append(short)
    if origins != known:
        write_json(beside, dict(sorted(origins.items())))
    write_json(path, compact)


def read_rows(path: Path) -> Any:
    """What a file holds, each row with its settings and environment."""
    content = read_json(path)
    if not isinstance(content, list):
        return content
    beside = path.parent / ORIGINS_FILE
    origins = _origins(beside)
    for row in content:
        for name in _SHARED:
            if isinstance(row, dict) and isinstance(row.get(name), str):
                if row[name] not in origins:
                    raise InputError(f"{beside} does not say what {name} {row[name]} of {path} is")
                row[name] = origins[row[name]]
    return content


def _origins(path: Path) -> dict[str, Any]:
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise InputError(f"{path} is not a JSON file this version wrote")
    return found


def _digest(value: Any) -> str:
    """The same for what is the same in JSON."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def rounded(value: float) -> float | None:
    """A figure as it is written down; nothing where there is none."""
    return round(value, 6) if math.isfinite(value) else None


def plain(settings: DataclassInstance) -> Any:
    """Settings as they will be read back from JSON."""
    return json.loads(json.dumps(asdict(settings)))


def same_settings(theirs: Any, ours: Any) -> bool:
    """Whether two settings mean the same; one that came later and is None changes nothing.

    Examples:
        >>> same_settings({"a": {"b": 1}}, {"a": {"b": 1, "new": None}})
        True
        >>> same_settings({"a": None}, {"a": 1})
        False
    """
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = {*theirs, *ours}
        return all(same_settings(theirs.get(key), ours.get(key)) for key in keys)
    return bool(theirs == ours)


def _first_difference(theirs: Any, ours: Any, name: str = "settings") -> str:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in [*ours, *theirs]:
            if not same_settings(theirs.get(key), ours.get(key)):
                return _first_difference(theirs.get(key), ours.get(key), key)
    return f"{name} {theirs} there, {ours} here"
