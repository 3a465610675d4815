"""Result files that can be continued: a JSON list of rows, one writer, always whole on disk.

Every row carries what it takes to trust it (seed, settings, environment, seconds) and the format
version, so that rows of another version or of other settings are never mixed with new ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varjepa.errors import InputError
from varjepa.files import read_json, write_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT_VERSION = 1

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
        self.rows: list[Row] = self._checked(read_json(path)) if path.exists() else []

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
        write_json(self.path, self.rows)

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
            if row["settings"] != ours:
                raise InputError(
                    f"{self.path} holds results of other settings "
                    f"({_first_difference(row['settings'], ours)}); choose another folder"
                )
        return content


def plain(settings: DataclassInstance) -> Any:
    """Settings as they will be read back from JSON."""
    return json.loads(json.dumps(asdict(settings)))


def _first_difference(theirs: Any, ours: Any, name: str = "settings") -> str:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in [*ours, *theirs]:
            if theirs.get(key) != ours.get(key):
                return _first_difference(theirs.get(key), ours.get(key), key)
    return f"{name} {theirs} there, {ours} here"
