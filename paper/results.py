"""Result rows in JSON files: written whole, resumed, merged, summarised.

Result files that can be continued: a JSON list of rows, one writer, always whole on disk.

Every row carries what it takes to trust it (seed, settings, environment, seconds) and the format
version, so that rows of another version or of other settings are never mixed with new ones.
Thousands of rows share a few settings and environments: on disk a row has their digests, and
``origins.json`` beside it has what they stand for.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper.datasets.catalogue import DATASETS, dataset_info
from paper.published import Quoted
from varjepa.errors import InputError
from varjepa.files import make_folder, only_writer, read_json, write_json

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


# --- One results folder from several: rows that other machines or sessions have finished.

Open = Callable[[Path], Sequence[ResultFile]]
"""Opens the files of one study in a folder; refuses rows of other settings."""


def merge_folders(folder: Path, sources: Sequence[Path], open_files: Open) -> int:
    """Take every row whose key is not in the folder yet, earlier sources first; how many.

    Only rows: embeddings and models stay where they are, and finished cells do not need them.
    """
    opened = []
    for source in sources:
        files = open_files(source)
        if not any(file.rows for file in files):
            names = " or ".join(file.path.name for file in files)
            raise InputError(f"{source} has no rows to merge in {names}")
        opened.append(files)
    make_folder(folder)
    taken = 0
    with only_writer(folder):
        for number, target in enumerate(open_files(folder)):
            fresh = {target.layout.key_of(row): row for row in target.rows}
            before = set(fresh)
            for files in opened:
                for row in files[number].rows:
                    fresh.setdefault(target.layout.key_of(row), row)
            if fresh.keys() != before:
                target.add(list(fresh.values()))
            taken += len(fresh) - len(before)
    return taken


# --- Names that a user asks for: those there are, or one sentence.


def known(what: str, names: Sequence[str], all_of_them: Sequence[str]) -> list[str]:
    """The names asked for, in the table's order; one sentence for a name there is not."""
    for name in names:
        if name not in all_of_them:
            raise InputError(f"there is no {what} {name!r}; known are {', '.join(all_of_them)}")
    return [name for name in all_of_them if name in names]


def known_datasets(names: Sequence[str]) -> list[str]:
    """Datasets by name or by the paper's abbreviation, in the paper's order."""
    asked = {dataset_info(name).name for name in names}
    return [name for name in DATASETS if name in asked]


def file_name(words: str) -> str:
    """Words as part of a file's name.

    Examples:
        >>> file_name("High KL + low recon.")
        'High-KL---low-recon-'
    """
    return "".join(c if c.isalnum() else "-" for c in words)


# --- Means over the seeds of a cell, and how far they are from the paper's.


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the seeds of one cell."""

    mean: float
    std: float | None
    """sample standard deviation; None for a single seed"""
    rows: int
    """test rows that the mean is about"""


def summarise(rows: Sequence[Row], metric: str) -> Summary:
    """Mean and standard deviation of rows that differ in their seeds."""
    values = [row[metric] for row in rows]
    std = statistics.stdev(values) if len(values) > 1 else None
    kept = max(1, round(rows[0]["coverage"] * rows[0]["test_rows"]))
    return Summary(statistics.fmean(values), std, kept)


def group(rows: Sequence[Row], *names: str) -> Mapping[tuple[Any, ...], list[Row]]:
    """Rows by the values of some columns."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return found


def binomial(mean: float, rows: int) -> float:
    """Standard error of a share of so many rows, which another split alone would bring."""
    return math.sqrt(max(mean * (1 - mean), 0.0) / rows)


def deviations(ours: Summary, paper: Quoted) -> float:
    """Our mean minus the paper's in standard deviations of that difference.

    Three things make it vary: the seeds here, the seeds there, and two different test splits.
    """
    mean, std = paper
    split = binomial(ours.mean, ours.rows)
    variance = (ours.std or 0.0) ** 2 + (std or 0.0) ** 2 + 2 * split**2
    return (ours.mean - mean) / math.sqrt(variance) if variance else 0.0


def is_reached(ours: Summary, paper: Quoted) -> bool:
    """At or above the paper's mean minus the larger of its deviation and two binomial errors.

    The errors are those of the paper's share on the rows that ours is about: the bar does not
    depend on what was measured.
    """
    mean, std = paper
    slack = max(std or 0.0, 2 * binomial(mean, ours.rows))
    return ours.mean >= mean - slack - 1e-12  # .852 − .002 is not quite .850 in binary


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean; None for a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


# --- A claim, and whether result rows show it; what is missing is neither for nor against.


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim about results."""

    claim: str
    holds: bool | None
    """None: open, because cells that would decide it are missing"""
    evidence: str


def at_least(count: int, goal: int, missing: int) -> bool | None:
    """Whether enough cells are for a claim; open as long as missing ones could decide.

    Examples:
        >>> at_least(160, 160, 8), at_least(150, 160, 9), at_least(150, 160, 10)
        (True, False, None)
    """
    if count >= goal:
        return True
    return False if count + missing < goal else None


def at_most(amount: float, goal: float, missing: int) -> bool | None:
    """The same for what may only grow with the missing ones.

    Examples:
        >>> at_most(5, 3, 1), at_most(2, 3, 1), at_most(3, 3, 0)
        (False, None, True)
    """
    if amount > goal:
        return False
    return None if missing else True


def counted(names: Iterable[str]) -> str:
    """How often each name occurs, in their order.

    Examples:
        >>> counted(["sim", "adult", "sim"])
        'sim 2, adult 1'
    """
    return ", ".join(f"{name} {count}" for name, count in Counter(names).items())


def with_missing(evidence: str, missing: int) -> str:
    """Evidence that says how much of it is not there."""
    return f"{evidence}; {missing} missing" if missing else evidence
