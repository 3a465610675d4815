"""Result rows in JSON files, and the one loop that computes the rows that are missing.

A file is a JSON list of rows, always whole on disk, with one writer. A row has what it takes to
trust it (settings, environment, format version), so rows of other settings are never mixed with new
ones. Many rows share a few settings and environments: on disk a row has their digests, and
``origins.json`` in the same folder says what these stand for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varjepa.errors import InputError
from varjepa.files import read_json, write_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT_VERSION = 1
ORIGINS_FILE = "origins.json"
SHARED = ("settings", "environment")
"""what many rows have in common"""

Row = dict[str, Any]
Log = Callable[[str], None]


def no_log(line: str) -> None:
    """Log nothing."""


class ResultStore:
    """The rows of one file. ``add`` replaces rows with the same key and rewrites the file whole."""

    def __init__(
        self, path: Path, key: Sequence[str], settings: Callable[[Row], Any] = lambda row: None
    ) -> None:
        """Open a file, or refuse it: rows of another version or of other settings stay as they are.

        ``key``: columns that tell rows apart. ``settings``: what the values of a row depend on.
        """
        self.path, self.key, self.settings = path, tuple(key), settings
        self.rows: list[Row] = self._checked(read_rows(path)) if path.exists() else []

    def key_of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def has(self, **wanted: Any) -> bool:
        return any(all(row[name] == value for name, value in wanted.items()) for row in self.rows)

    def add(self, rows: Iterable[Row]) -> None:
        """Add finished rows and write the file, ordered by key."""
        stamped = [
            {**row, "settings": self.settings(row), "format_version": FORMAT_VERSION}
            for row in rows
        ]
        by_key = {self.key_of(row): row for row in [*self.rows, *stamped]}
        self.rows = [by_key[key] for key in sorted(by_key)]
        write_rows(self.path, self.rows)

    def _checked(self, rows: list[Row]) -> list[Row]:
        try:
            sorted(map(self.key_of, rows))
            expected = [self.settings(row) for row in rows]
        except (KeyError, TypeError) as error:  # a key that this study does not have
            raise _foreign(self.path) from error
        for row, ours in zip(rows, expected, strict=True):
            theirs = row.get("settings")
            if not same_settings(theirs, ours):
                raise InputError(
                    f"{self.path} holds results of other settings "
                    f"({_first_difference(theirs, ours)}); choose another folder"
                )
        return rows


# --- the loop


@dataclass(frozen=True, slots=True)
class Job:
    """A place in a table: rows that are computed together."""

    about: Mapping[str, Any]
    """key columns that all its rows have"""
    seeds: Sequence[int]
    each: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """the other key columns: a row for every combination of their values"""
    seed_column: str = "seed"

    def missing_seeds(self, store: ResultStore) -> list[int]:
        """Seeds that lack a row."""
        there = {store.key_of(row) for row in store.rows}

        def is_complete(seed: int) -> bool:
            rows = (
                {**self.about, self.seed_column: seed, **dict(zip(self.each, values, strict=True))}
                for values in product(*self.each.values())
            )
            return all(store.key_of(row) in there for row in rows)

        return [seed for seed in self.seeds if not is_complete(seed)]


def run_jobs(
    store: ResultStore,
    jobs: Iterable[Job],
    compute: Callable[[Job, list[int]], Sequence[Row]],
    log: Log = no_log,
    describe: Callable[[Sequence[Row]], str] = lambda rows: "",
) -> None:
    """Compute the rows that are not there, a job at a time, and save after every job.

    ``compute`` gets a job and the seeds that it lacks; its rows need not repeat ``job.about``.
    """
    for job in jobs:
        seeds = job.missing_seeds(store)
        if seeds:
            rows = [{**job.about, **row} for row in compute(job, seeds)]
            store.add(rows)
            log(describe(rows))


# --- the files


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows with digests for what they share; first of all what the digests stand for."""
    origins_path = path.parent / ORIGINS_FILE
    known = _origins(origins_path)
    origins = dict(known)
    compact = []
    for row in rows:
        short = dict(row)
        for name in SHARED:
            if isinstance(row.get(name), dict):
                short[name] = _digest(row[name])
                origins[short[name]] = row[name]
        compact.append(short)
    if origins != known:
        write_json(origins_path, dict(sorted(origins.items())))
    write_json(path, compact)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, each with its settings and environment; other files are refused."""
    try:
        content = read_json(path)
    except (RecursionError, ValueError, OverflowError) as error:  # nested or digits without end
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a JSON file this version wrote") from error
    if not isinstance(content, list) or not all(
        isinstance(row, dict) and "format_version" in row for row in content
    ):
        raise _foreign(path)
    origins_path = path.parent / ORIGINS_FILE
    origins = _origins(origins_path)
    for row in content:
        if row["format_version"] != FORMAT_VERSION:
            raise InputError(
                f"{path} has format version {row['format_version']}, this varjepa has "
                f"{FORMAT_VERSION}; choose another folder"
            )
        for name in SHARED:
            if isinstance(row.get(name), str):
                if row[name] not in origins:
                    raise InputError(
                        f"{origins_path} does not say what {name} {row[name]} of {path} is"
                    )
                row[name] = origins[row[name]]
    return content


def _foreign(path: Path) -> InputError:
    return InputError(f"{path} was not written by this version of varjepa; choose another folder")


def _origins(path: Path) -> dict[str, Any]:
    origins = read_json(path) if path.exists() else {}
    if not isinstance(origins, dict):
        raise InputError(f"{path} is not a JSON file this version wrote")
    return origins


def _digest(value: Any) -> str:
    """The same for what is the same in JSON."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# --- settings


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
