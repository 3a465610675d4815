"""One training over several processes, which torchrun started: who does which rows, and who says.

Every process has the whole table, the same weights and the same random numbers. Of each batch it
computes its own rows; what they add up to (gradients, losses) is summed over all processes, so all
take the same step. Whatever is decided is decided from such sums, or by the leader, process 0,
which alone writes and prints.

Gradients travel as one flat message a step instead of through DistributedDataParallel. That hooks
into ``backward`` to send some gradients while others are computed. A model of ours has 2 MB of
them, which take a hundredth of a CPU's step to send, and on CPUs neither way was faster than the
other. But slices of rows have no single ``backward`` to hook into, the guard needs all gradients
before the step anyway, and on a GPU the message is one more node of the recorded step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from varjepa.errors import InputError
from varjepa.tables.encoded import EncodedTable

PROMPT = timedelta(seconds=30)
"""Processes in step with each other wait no longer: one has gone, or its machine."""

PATIENT = timedelta(minutes=10)
"""What one does alone, such as reading a table or writing to a slow disk, may take as long. A
process that has ended is noticed at once all the same."""


class LostProcessError(RuntimeError):
    """Another process of this training has ended or does not answer."""


@dataclass(frozen=True, slots=True)
class Team:
    """The processes that train one model; without groups, this one alone."""

    rank: int = 0
    size: int = 1
    prompt: dist.ProcessGroup | None = None
    patient: dist.ProcessGroup | None = None

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    # --- rows

    def part(self, rows: int) -> slice:
        """The share of this process of so many rows; none for some where there are too few."""
        return slice(self.rank * rows // self.size, (self.rank + 1) * rows // self.size)

    def over_rows(
        self, work: Callable[[EncodedTable], tuple[Tensor, ...]], rows: EncodedTable
    ) -> tuple[Tensor, ...]:
        """What ``work`` gives for all rows, each process doing its part.  # (N, …) each"""
        if self.prompt is None or len(rows) < self.size:
            return work(rows)
        parts = work(rows.take(self.part(len(rows))))
        return tuple(self._gather(part, len(rows)) for part in parts)

    def _gather(self, mine: Tensor, rows: int) -> Tensor:
        """All rows' results, from everybody's."""
        room = mine.new_zeros(-(-rows // self.size), *mine.shape[1:])
        room[: len(mine)] = mine
        found = [torch.empty_like(room) for _ in range(self.size)]
        with _losing_nobody():
            dist.all_gather(found, room, group=self.prompt)
        parts = [Team(rank, self.size).part(rows) for rank in range(self.size)]
        return torch.cat(
            [theirs[: p.stop - p.start] for theirs, p in zip(found, parts, strict=True)]
        )

    # --- sums and decisions

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Sum each over all processes, in place and in one message; the same to the last bit."""
        if self.prompt is None:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _losing_nobody():
            dist.all_reduce(flat, group=self.prompt)
        sums = flat.split([tensor.numel() for tensor in tensors])
        torch._foreach_copy_(
            list(tensors), [s.view_as(t) for s, t in zip(sums, tensors, strict=True)]
        )

    def total(self, value: float) -> float:
        """The sum over processes."""
        return self._agree(value, dist.ReduceOp.SUM)

    def highest(self, value: int) -> int:
        """The largest that any process says."""
        return int(self._agree(value, dist.ReduceOp.MAX))

    def _agree(self, value: float, how: dist.ReduceOp.RedOpType) -> float:
        if self.prompt is None:
            return value
        number = torch.tensor(value, dtype=torch.float64)
        with _losing_nobody():
            dist.all_reduce(number, how, group=self.prompt)
        return float(number)

    def leaders_number(self, value: float) -> float:
        """What the leader says; what others say does not count."""
        return value if self.prompt is None else self._leaders(value, self.prompt)

    def _leaders(self, value: float, group: dist.ProcessGroup) -> float:
        number = torch.tensor(value, dtype=torch.float64)
        with _losing_nobody():
            dist.broadcast(number, 0, group=group)
        return float(number)

    # --- after something that takes one process longer than another

    def wait_for_leader(self) -> None:
        """Others go on when the leader comes here; the leader waits for nobody."""
        if self.patient is not None:
            self._leaders(0.0, self.patient)

    def leaders_bytes(self, content: bytes) -> bytes:
        """The leader's message."""
        if self.patient is None:
            return content
        length = int(self._leaders(len(content), self.patient))
        if not length:
            return b""
        message = _as_tensor(content) if self.leads else torch.zeros(length, dtype=torch.uint8)
        with _losing_nobody():
            dist.broadcast(message, 0, group=self.patient)
        return message.numpy().tobytes()

    def everyones_bytes(self, content: bytes) -> list[bytes]:
        """A message of each process, in order."""
        if self.patient is None:
            return [content]
        lengths = [torch.zeros((), dtype=torch.int64) for _ in range(self.size)]
        with _losing_nobody():
            dist.all_gather(lengths, torch.tensor(len(content)), group=self.patient)
        longest = max(int(length) for length in lengths)
        if not longest:
            return [b""] * self.size
        found = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        with _losing_nobody():
            dist.all_gather(found, _as_tensor(content.ljust(longest)), group=self.patient)
        return [
            message[: int(length)].numpy().tobytes()
            for message, length in zip(found, lengths, strict=True)
        ]

    @contextmanager
    def sharing_errors(self) -> Iterator[None]:
        """Where one process finds wrong input inside, every process raises its error at the end."""
        error: InputError | None = None
        try:
            yield
        except InputError as found:
            error = found
        sentences = self.everyones_bytes(str(error or "").encode())
        if error is not None:
            raise error
        for rank, sentence in enumerate(sentences):
            if sentence:
                raise InputError(f"process {rank} of {self.size}: {sentence.decode()}")

    def refuse_different(self, content: bytes) -> None:
        """Every process must have been given the same table and options."""
        leaders, *others = self.everyones_bytes(content)
        for rank, theirs in enumerate(others, start=1):
            if theirs != leaders:
                raise InputError(
                    f"process {rank} of {self.size} sees another table or other options than "
                    "process 0"
                )


ALONE = Team()

_TEAM: ContextVar[Team] = ContextVar("team", default=ALONE)


def current_team() -> Team:
    """The processes of the :func:`together` that is open here, or this one alone."""
    return _TEAM.get()


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands among those that torchrun started."""

    rank: int
    size: int
    local_rank: int
    """among those of this machine"""


def place_from_torchrun() -> Place | None:
    """From the environment; None where there is no other process."""
    try:
        rank, size, local = (int(os.environ[n]) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    except (KeyError, ValueError):
        return None
    return Place(rank, size, local) if size > 1 else None


@contextmanager
def together(device: torch.device) -> Iterator[Team]:
    """Train with the other processes that torchrun started, if any, whatever is fitted inside.

    Every process must do the same things inside. NCCL on GPUs, one GPU a process; gloo on CPUs.
    """
    place = place_from_torchrun()
    if place is None:
        yield ALONE
        return
    if device.type == "cuda":
        if device.index is not None:
            raise InputError(f"device {str(device)!r} names one GPU; with torchrun say cuda")
        if place.local_rank >= torch.cuda.device_count():
            raise InputError(
                f"torchrun started more processes than this machine has GPUs "
                f"({torch.cuda.device_count()})"
            )
        torch.cuda.set_device(place.local_rank)
    with joined(device) as team:
        yield team


@contextmanager
def joined(
    device: torch.device, store: Any = None, rank: int = -1, size: int = -1
) -> Iterator[Team]:
    """Find the others, by torchrun's environment unless there is a ``store`` to meet at."""
    # numbers and sentences go over gloo even where gradients do not: nobody waits for a GPU
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with _losing_nobody():
        dist.init_process_group(backend, timeout=PATIENT, store=store, rank=rank, world_size=size)
    token = None
    try:
        with _losing_nobody():
            prompt = dist.new_group(timeout=PROMPT)
        team = Team(dist.get_rank(), dist.get_world_size(), prompt, dist.group.WORLD)
        token = _TEAM.set(team)
        yield team
    finally:
        if token is not None:
            _TEAM.reset(token)
        dist.destroy_process_group()


@contextmanager
def _losing_nobody() -> Iterator[None]:
    """What gloo and NCCL say in many words, as a RuntimeError: another process is not there."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcessError(
            "another process of this training has ended or does not answer"
        ) from error


def _as_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
