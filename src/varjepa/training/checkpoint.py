"""Checkpoints of a training on disk: whole or not there, the newest two of them.

Number 7 is three files: 7.safetensors with every tensor, 7.json with the rest, and 7.manifest.json
with a SHA-256 of both. The manifest is written last and removed first, so what has a manifest is
whole. What a killed process left behind (temporaries, files without a manifest) goes at the next
start.
"""

from __future__ import annotations

import hashlib
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from varjepa.errors import InputError
from varjepa.files import make_folder, only_writer, remove_temporaries, write_bytes
from varjepa.model_folder.parsing import ModelFileError, dump_json, parse_json
from varjepa.model_folder.weights import WeightFile
from varjepa.training.distributed import Team

FORMAT = "varjepa checkpoint"
FORMAT_VERSION = 1

KEPT = 2
"""whole checkpoints that stay"""

LARGEST_SHARE = 0.01
"""of a training's time that goes into checkpoints, however slow the disk"""

_MANIFEST = ".manifest.json"
_SET_ASIDE = "set-aside"
_OURS = re.compile(r"[0-9]+(\.manifest)?\.json|[0-9]+\.safetensors")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One moment of a training."""

    facts: dict[str, Any]
    """what JSON can hold"""
    tensors: Mapping[str, Tensor]


class Checkpoints:
    """A folder with the newest checkpoints of one training; open it with :func:`checkpointing`."""

    def __init__(self, folder: Path, every: float) -> None:
        """``every``: seconds between two checkpoints; 0: after every step."""
        self.folder, self.every = folder, every
        self.identity: dict[str, Any] = {}
        """what the training is about; another one does not go on from here"""
        self._damaged: set[int] = set()
        self._opened_at = self._saved_at = time.monotonic()
        self._spent = self._cost = 0.0

    def is_due(self) -> bool:
        """Whether it is time for the next one, and there is time to spend on it."""
        now = time.monotonic()
        affordable = self._spent + self._cost <= LARGEST_SHARE * (now - self._opened_at)
        return not self.every or (now - self._saved_at >= self.every and affordable)

    def save(self, facts: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write the next checkpoint, then remove the oldest."""
        start = time.monotonic()
        numbers = whole_checkpoints(self.folder)
        number = max([0, *numbers, *self._damaged]) + 1
        contents = {
            ".safetensors": save({k: v.detach().cpu().contiguous() for k, v in tensors.items()}),
            ".json": dump_json({"identity": self.identity, **facts}),
        }
        manifest = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "sha256": {end: hashlib.sha256(text).hexdigest() for end, text in contents.items()},
        }
        try:
            for end, content in contents.items():
                write_bytes(self.folder / f"{number}{end}", content)
            write_bytes(self.folder / f"{number}{_MANIFEST}", dump_json(manifest))
            for old in sorted({*numbers} - self._damaged)[: -(KEPT - 1)]:
                _remove(self.folder, old)
            for old in self._damaged:
                _remove(self.folder, old)
        except OSError as error:
            raise InputError(
                f"cannot write a checkpoint to {self.folder}: {error.strerror}; earlier ones are "
                "as they were"
            ) from error
        self._damaged.clear()
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - start
        self._spent += self._cost

    def latest(self) -> Checkpoint | None:
        """The newest that is undamaged; None where there is none at all."""
        numbers = whole_checkpoints(self.folder)
        for number in reversed(numbers):
            try:
                return self._read(number)
            except ModelFileError as error:
                warnings.warn(f"{error}; looking for an older checkpoint", stacklevel=2)
                self._damaged.add(number)
        if numbers:
            raise InputError(
                f"no checkpoint in {self.folder} can be read; remove them to start over"
            )
        return None

    def _read(self, number: int) -> Checkpoint:
        path = self.folder / f"{number}{_MANIFEST}"
        manifest = parse_json(_content(path), path)
        sums = manifest.get("sha256") if isinstance(manifest, dict) else None
        kind = FORMAT, FORMAT_VERSION
        if not isinstance(sums, dict) or (manifest.get("format"), manifest.get("version")) != kind:
            raise ModelFileError(f"{path} is not a checkpoint that this varjepa reads")
        contents = {}
        for end in (".json", ".safetensors"):
            path = self.folder / f"{number}{end}"
            contents[end] = _content(path)
            if hashlib.sha256(contents[end]).hexdigest() != sums.get(end):
                raise ModelFileError(f"{path} is damaged: its SHA-256 is not the manifest's")
        tensors = contents[".safetensors"]
        facts = parse_json(contents[".json"], self.folder / f"{number}.json", beside=len(tensors))
        if not isinstance(facts, dict) or not facts.keys() >= {"identity", "finished"}:
            raise ModelFileError(f"{self.folder / f'{number}.json'} is not of a checkpoint")
        return Checkpoint(facts, dict(WeightFile(BytesIO(tensors), len(tensors), path)))


@contextmanager
def checkpointing(folder: Path, every: float, resume: bool) -> Iterator[Checkpoints]:
    """Checkpoints in a folder that nobody else writes to.

    Without ``resume`` the training starts over; an unfinished one that lies there is set aside.
    """
    make_folder(folder)
    with only_writer(folder):
        _tidy(folder)
        checkpoints = Checkpoints(folder, every)
        if not resume:
            _set_aside(checkpoints)
        yield checkpoints


def leaders_checkpoint(past: Checkpoint | None, folder: Path, team: Team) -> Checkpoint | None:
    """What the leader read, for processes that may not even see its disk."""
    if team.size == 1:
        return past
    facts = team.leaders_bytes(b"" if past is None else dump_json(past.facts))
    if not facts:
        return None
    tensors = team.leaders_bytes(b"" if past is None else save(dict(past.tensors)))
    return Checkpoint(
        parse_json(facts, folder, beside=len(tensors)),
        dict(WeightFile(BytesIO(tensors), len(tensors), folder)),
    )


def whole_checkpoints(folder: Path) -> list[int]:
    """Numbers of the checkpoints that have a manifest, oldest first."""
    stems = (path.name.removesuffix(_MANIFEST) for path in folder.glob(f"*{_MANIFEST}"))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal())


def remove_checkpoints(folder: Path) -> None:
    """Remove a training's checkpoints, for what was learned is safe elsewhere; nothing else.

    The folder goes too if it is empty then. Files of the user's stay, and so does what was set
    aside: a warning has said where it lies.
    """
    for number in whole_checkpoints(folder):
        _remove(folder, number)
    with suppress(OSError):
        for path in folder.iterdir():  # of a save that was interrupted
            if _OURS.fullmatch(path.name):
                path.unlink()
        folder.rmdir()


def _set_aside(checkpoints: Checkpoints) -> None:
    """Make room for a training from the beginning without losing an unfinished one."""
    folder = checkpoints.folder
    numbers = whole_checkpoints(folder)
    if not numbers:
        return
    try:
        finished = checkpoints._read(numbers[-1]).facts["finished"]
    except ModelFileError:
        finished = False
    if finished:
        for number in numbers:
            _remove(folder, number)
        return
    aside = folder / _SET_ASIDE
    aside.mkdir(exist_ok=True)
    remove_checkpoints(aside)  # of the time before
    aside.mkdir(exist_ok=True)
    for path in [path for path in folder.iterdir() if _OURS.fullmatch(path.name)]:
        path.rename(aside / path.name)
    warnings.warn(
        f"{folder} held checkpoints of a training that was not finished; this one starts over, "
        f"and they lie in {aside} (resume would have gone on)",
        stacklevel=4,
    )


def _tidy(folder: Path) -> None:
    """Remove what a killed process left behind."""
    remove_temporaries(folder)
    whole = set(whole_checkpoints(folder))
    for path in [*folder.glob("*.json"), *folder.glob("*.safetensors")]:
        stem = path.name.split(".")[0]
        if stem.isascii() and stem.isdecimal() and int(stem) not in whole:
            path.unlink(missing_ok=True)


def _remove(folder: Path, number: int) -> None:
    for end in (_MANIFEST, ".json", ".safetensors"):
        (folder / f"{number}{end}").unlink(missing_ok=True)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from error
