"""Result files that can be continued: a JSON list of rows, one writer, always whole on disk.

Every row carries what it takes to trust it (seed, settings, environment, seconds) and the format
version, so that rows of another version or of other settings are never mixed with new ones.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varjepa.errors import InputError
from varjepa.files import read_json, write_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT_VERSION = 1

Row = dict[str, Any]


class ResultFile:
    """Rows on disk. ``add`` replaces rows with the same key and rewrites the file atomically."""

    def __init__(self, path: Path, key: tuple[str, ...], settings: DataclassInstance) -> None:
        """Open a file, or refuse it: nothing of another version or settings is overwritten."""
        self.path = path
        self.key = key
        self.settings = json.loads(json.dumps(asdict(settings)))  # as it will be read back
        self.rows: list[Row] = []
        if path.exists():
            self.rows = self._checked(read_json(path))

    def has(self, **wanted: Any) -> bool:
        """Whether some row has all these values."""
        return any(all(row[name] == value for name, value in wanted.items()) for row in self.rows)

    def add(self, rows: list[Row]) -> None:
        """Add finished rows and write the file, ordered by key."""
        stamped = [
            {**row, "settings": self.settings, "format_version": FORMAT_VERSION} for row in rows
        ]
        by_key = {self._key_of(row): row for row in [*self.rows, *stamped]}
        self.rows = [by_key[key] for key in sorted(by_key)]
        write_json(self.path, self.rows)

    def _key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def _checked(self, content: Any) -> list[Row]:
        needed = {*self.key, "settings", "format_version"}
        if not isinstance(content, list) or not all(
            isinstance(row, dict) and needed <= row.keys() for row in content
        ):
            raise InputError(
                f"{self.path} was not written by this version of varjepa; choose another folder"
            )
        for row in content:
            if row["format_version"] != FORMAT_VERSION:
                raise InputError(
                    f"{self.path} has format version {row['format_version']}, this varjepa writes "
                    f"{FORMAT_VERSION}; choose another folder"
                )
            if row["settings"] != self.settings:
                raise InputError(
                    f"{self.path} holds results of other settings "
                    f"({_first_difference(row['settings'], self.settings)}); choose another folder"
                )
        return content


def _first_difference(theirs: Any, ours: Any, name: str = "settings") -> str:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in [*ours, *theirs]:
            if theirs.get(key) != ours.get(key):
                return _first_difference(theirs.get(key), ours.get(key), key)
    return f"{name} {theirs} there, {ours} here"
