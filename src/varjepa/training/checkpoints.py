"""Checkpoints of a training on disk: when, of what, and how to resume.

Ctrl-C and SIGTERM during a training: first a checkpoint, then what the signal means anyway.

A signal is held back until training is between two steps. Then its old handler is put back and the
signal sent again: whoever handles it, or nobody, finds a training that can be resumed.
"""

from __future__ import annotations

import hashlib
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Self

from safetensors.torch import save
from torch import Tensor

from varjepa.environment import compare_arithmetic, describe_arithmetic
from varjepa.errors import InputError
from varjepa.files import make_folder, only_writer, remove_temporaries, write_bytes
from varjepa.model_folder import ModelFileError, WeightFile, dump_json, parse_json
from varjepa.training.processes import Team
from varjepa.training.state import TrainingState
from varjepa.training.step import Stepper

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class DeferredSignals:
    """Holds signals while it is open. Away from the main thread, where Python hears none, nothing.

    A second signal is not held: somebody is in a hurry.
    """

    def __init__(self, save: Callable[[], None]) -> None:
        self.save = save
        self.waiting: int | None = None
        self._interruptible = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                if before not in (None, signal.SIG_IGN):
                    self._before[number] = before
                    signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        self._put_back()
        if self.waiting is not None:  # it came after the last step
            signal.raise_signal(self.waiting)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Signals are obeyed at once: nothing that a checkpoint holds changes meanwhile."""
        self._interruptible = True
        try:
            self.obey()
            yield
        finally:
            self._interruptible = False

    def obey(self) -> None:
        """Save and let go of the signal that waits, if any."""
        if self.waiting is not None:
            number, self.waiting = self.waiting, None
            self._interruptible = False
            self.save()
            self.send(number)

    def _receive(self, number: int, frame: Any) -> None:
        if self.waiting is not None:
            self.send(number)
        self.waiting = number
        if self._interruptible:
            self.obey()

    def send(self, number: int) -> None:
        """Hold no more signals, and let this one do what it does without us."""
        self.waiting = None
        self._put_back()
        signal.raise_signal(number)

    def _put_back(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())


# --- Checkpoints of a training on disk: whole or not there, the newest two of them.
#
# Number 7 is three files: 7.safetensors with every tensor, 7.json with the rest, and
# 7.manifest.json
# with a SHA-256 of both. The manifest is written last and removed first, so what has a
# manifest is
# whole. What a killed process left behind (temporaries, files without a manifest) goes at the
# next
# start.

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


# --- When a training is checkpointed, of what, and how it goes on from one.

SAVE = 1
"""What a process says that wants a checkpoint; one that holds a signal says its number, 2 or 15."""


class Checkpointer:
    """Keeps a training on disk between its steps; of several processes, the leader does."""

    def __init__(
        self, checkpoints: Checkpoints, stepper: Stepper, state: TrainingState, team: Team
    ) -> None:
        self.checkpoints, self.stepper, self.state, self.team = checkpoints, stepper, state, team
        self.signals = DeferredSignals(self._write)

    def save(self, finished: bool = False) -> None:
        """Write a checkpoint of this very step; no process goes on, or ends, before it is there."""
        if self.team.leads:
            self._write(finished)
        self.team.wait_for_leader()

    def _write(self, finished: bool = False) -> None:
        tensors = {f"best.{name}": weight for name, weight in self.state.best.items()}
        facts = {
            "environment": describe_arithmetic(),
            "step": self.stepper.done,
            "steps": int(self.stepper.total),
            "finished": finished,
            **self.state.facts(),
        }
        self.checkpoints.save(facts, {**tensors, **self.stepper.tensors()})

    def restore(self, past: Checkpoint) -> None:
        """Go back to where a checkpoint was taken."""
        prefix = "best."
        best = {
            name.removeprefix(prefix): tensor
            for name, tensor in past.tensors.items()
            if name.startswith(prefix)
        }
        try:
            self.state.restore(past.facts, best)
            self.stepper.restore(past.tensors)
            difference = compare_arithmetic(past.facts["environment"])
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"the checkpoints in {self.checkpoints.folder} are not of this training: {error}"
            ) from error
        if difference:
            warnings.warn(
                f"the checkpoint was written by {difference}: the end of the training may differ "
                "in its last digits from one without an interruption",
                stacklevel=2,
            )

    def after_step(self) -> None:
        """Save where it is time to, or a signal waits for it: on all processes or on none."""
        due = self.team.leads and self.checkpoints.is_due()
        wish = self.team.highest(self.signals.waiting or (SAVE if due else 0))
        if wish > SAVE:
            self.signals.waiting = None  # a second one waits until this is written
            self.save()
            self.signals.send(wish)
        elif wish:
            self.save()

    def looking(self) -> AbstractContextManager[None]:
        """A look at the validation rows changes nothing that is kept: it may end at any moment.

        Where there are others, they hear of it when they look for the leader.
        """
        return self.signals.interruptible() if self.team.leads else nullcontext()


class NoCheckpointer:
    """For a training that nobody keeps."""

    def save(self, finished: bool = False) -> None:
        pass

    def after_step(self) -> None:
        pass

    def looking(self) -> AbstractContextManager[None]:
        return nullcontext()


@contextmanager
def keeping(
    checkpoints: Checkpoints | None,
    past: Checkpoint | None,
    stepper: Stepper,
    state: TrainingState,
    team: Team,
) -> Iterator[Checkpointer | NoCheckpointer]:
    """Keep a training, after going back to ``past``; signals are held meanwhile."""
    if checkpoints is None:
        yield NoCheckpointer()
        return
    checkpointer = Checkpointer(checkpoints, stepper, state, team)
    if past is not None:
        checkpointer.restore(past)
    with checkpointer.signals:
        yield checkpointer
