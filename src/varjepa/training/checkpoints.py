"""Checkpoints of a training: signals that wait for one, the files, when they are written.

Ctrl-C and SIGTERM are held back until training is between two steps. Then a checkpoint is written,
the signal's old handler is restored, and the signal is sent again.
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
from typing import TYPE_CHECKING, Any, Self

from safetensors.torch import save
from torch import Tensor

from varjepa.errors import InputError
from varjepa.files import make_folder, only_writer, remove_temporaries, write_bytes
from varjepa.model_folder import (
    ModelFileError,
    WeightFile,
    compare_arithmetic,
    describe_arithmetic,
    dump_json,
    parse_json,
)
from varjepa.training.processes import World
from varjepa.training.step import Stepper

if TYPE_CHECKING:
    from varjepa.training.loop import TrainingState

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class DeferredSignals:
    """Holds signals back while it is open; outside of the main thread it does nothing.

    A second signal is not held back.
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
        self._restore_handlers()
        if self.waiting is not None:  # it came after the last step
            signal.raise_signal(self.waiting)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Signals are delivered at once inside: nothing that a checkpoint holds changes here."""
        self._interruptible = True
        try:
            self.deliver()
            yield
        finally:
            self._interruptible = False

    def deliver(self) -> None:
        """Save, then send the signal that waits, if any."""
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
            self.deliver()

    def send(self, number: int) -> None:
        """Restore all handlers and send this signal to its own."""
        self.waiting = None
        self._restore_handlers()
        signal.raise_signal(number)

    def _restore_handlers(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())


# --- Files. Checkpoint 7 is three of them: 7.safetensors with every tensor, 7.json with the rest,
# and 7.manifest.json with a SHA-256 of both. The manifest is written last and removed first, so a
# checkpoint with a manifest is complete. What a killed process left behind (temporaries, files
# without a manifest) is removed at the next start.

FORMAT = "varjepa checkpoint"
FORMAT_VERSION = 1

MAX_CHECKPOINTS = 2
"""complete checkpoints that stay on disk"""

MAX_SHARE = 0.01
"""maximum share of a training's time that goes into checkpoints"""

_MANIFEST = ".manifest.json"
_SET_ASIDE = "set-aside"
_OURS = re.compile(r"[0-9]+(\.manifest)?\.json|[0-9]+\.safetensors")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A training between two steps."""

    facts: dict[str, Any]
    """everything but tensors, as JSON"""
    tensors: Mapping[str, Tensor]


class Checkpoints:
    """A folder with the newest checkpoints of one training; open it with :func:`checkpointing`."""

    def __init__(self, folder: Path, every: float) -> None:
        """``every``: seconds between two checkpoints; 0: after every step."""
        self.folder, self.every = folder, every
        self.identity: dict[str, Any] = {}
        """table and settings of the training; another training must not resume from here"""
        self._damaged: set[int] = set()
        self._opened_at = self._saved_at = time.monotonic()
        self._spent = self._cost = 0.0

    def is_due(self) -> bool:
        """Whether enough time has passed for the next one, also compared with what it costs."""
        now = time.monotonic()
        affordable = self._spent + self._cost <= MAX_SHARE * (now - self._opened_at)
        return not self.every or (now - self._saved_at >= self.every and affordable)

    def save(self, facts: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write the next checkpoint, then remove the oldest."""
        start = time.monotonic()
        numbers = complete_checkpoints(self.folder)
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
            for old in sorted({*numbers} - self._damaged)[: -(MAX_CHECKPOINTS - 1)]:
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
        """The newest that is undamaged; None if there is no checkpoint."""
        numbers = complete_checkpoints(self.folder)
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
        facts = parse_json(
            contents[".json"], self.folder / f"{number}.json", weights_size=len(tensors)
        )
        if not isinstance(facts, dict) or not facts.keys() >= {"identity", "finished"}:
            raise ModelFileError(f"{self.folder / f'{number}.json'} is not of a checkpoint")
        return Checkpoint(facts, dict(WeightFile(BytesIO(tensors), len(tensors), path)))


@contextmanager
def checkpointing(folder: Path, every: float, resume: bool) -> Iterator[Checkpoints]:
    """Checkpoints in a folder that no other process writes to.

    Without ``resume`` the training starts over, and an unfinished one in the folder is set aside.
    """
    make_folder(folder)
    with only_writer(folder):
        _tidy(folder)
        checkpoints = Checkpoints(folder, every)
        if not resume:
            _set_aside(checkpoints)
        yield checkpoints


def broadcast_checkpoint(past: Checkpoint | None, folder: Path, world: World) -> Checkpoint | None:
    """What the main process read, for processes that may not see its disk."""
    if world.size == 1:
        return past
    facts = world.broadcast_bytes(b"" if past is None else dump_json(past.facts))
    if not facts:
        return None
    tensors = world.broadcast_bytes(b"" if past is None else save(dict(past.tensors)))
    return Checkpoint(
        parse_json(facts, folder, weights_size=len(tensors)),
        dict(WeightFile(BytesIO(tensors), len(tensors), folder)),
    )


def complete_checkpoints(folder: Path) -> list[int]:
    """Numbers of the checkpoints that have a manifest, oldest first."""
    stems = (path.name.removesuffix(_MANIFEST) for path in folder.glob(f"*{_MANIFEST}"))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal())


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a training whose result is saved elsewhere, and nothing else.

    The folder is removed too if it is empty then. The user's own files stay, and so does what was
    set aside.
    """
    for number in complete_checkpoints(folder):
        _remove(folder, number)
    with suppress(OSError):
        for path in folder.iterdir():  # of a save that was interrupted
            if _OURS.fullmatch(path.name):
                path.unlink()
        folder.rmdir()


def _set_aside(checkpoints: Checkpoints) -> None:
    """Move the checkpoints of an unfinished training away; remove those of a finished one."""
    folder = checkpoints.folder
    numbers = complete_checkpoints(folder)
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
    remove_checkpoints(aside)  # set aside earlier
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
    complete = set(complete_checkpoints(folder))
    for path in list(folder.iterdir()):
        if _OURS.fullmatch(path.name) and int(path.name.split(".")[0]) not in complete:
            path.unlink(missing_ok=True)


def _remove(folder: Path, number: int) -> None:
    for end in (_MANIFEST, ".json", ".safetensors"):
        (folder / f"{number}{end}").unlink(missing_ok=True)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from error


# --- When a checkpoint is written, of what, and how a training resumes from it.

SAVE = 1
"""The request for a checkpoint; a signal that waits is requested by its number, 2 or 15."""


class Checkpointer:
    """Writes checkpoints of a training between its steps; only the main process does."""

    def __init__(
        self, checkpoints: Checkpoints, stepper: Stepper, state: TrainingState, world: World
    ) -> None:
        self.checkpoints, self.stepper, self.state, self.world = checkpoints, stepper, state, world
        self.signals = DeferredSignals(self._write)

    def save(self, finished: bool = False) -> None:
        """Write a checkpoint now; no process continues, or ends, before it is written."""
        if self.world.is_main:
            self._write(finished)
        self.world.wait_for_main()

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
        """Continue from a checkpoint."""
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
        """Save if it is time or a signal waits for it: on all processes or on none."""
        due = self.world.is_main and self.checkpoints.is_due()
        request = self.world.max_number(self.signals.waiting or (SAVE if due else 0))
        if request > SAVE:
            self.signals.waiting = None  # a second one waits until this is written
            self.save()
            self.signals.send(request)
        elif request:
            self.save()

    def validating(self) -> AbstractContextManager[None]:
        """Validation changes nothing that a checkpoint holds, so signals may interrupt it.

        Other processes notice when they wait for the main one.
        """
        return self.signals.interruptible() if self.world.is_main else nullcontext()


@contextmanager
def checkpointed(
    checkpoints: Checkpoints,
    past: Checkpoint | None,
    stepper: Stepper,
    state: TrainingState,
    world: World,
) -> Iterator[Checkpointer]:
    """Checkpoint a training that continues from ``past``; signals are held back meanwhile."""
    checkpointer = Checkpointer(checkpoints, stepper, state, world)
    if past is not None:
        checkpointer.restore(past)
    with checkpointer.signals:
        yield checkpointer


def seconds_before(facts: Mapping[str, Any]) -> float:
    """Seconds that a training had taken when these facts were written."""
    unfinished = 0.0 if facts["finished"] else facts["seconds"]  # of the epoch it was in
    return float(unfinished + sum(record["seconds"] for record in facts["history"]))
