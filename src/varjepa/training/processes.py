"""One training over several processes that torchrun started.

Every process has the same weights and the same random numbers. Of each batch it computes its own
rows; gradients and losses are summed over all processes, so all take the same step. Decisions are
made from such sums, or by the main process (rank 0), which alone writes and prints.

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
from varjepa.tables.codec import EncodedTable

SHORT_TIMEOUT = timedelta(seconds=30)
"""For messages within a step: a process that does not answer in time is lost."""

LONG_TIMEOUT = timedelta(minutes=10)
"""For messages after work that one process does alone, such as reading a table or writing to a slow
disk. A process that has ended is noticed at once all the same."""


class LostProcessError(RuntimeError):
    """Another process of this training has ended or does not answer."""


@dataclass(frozen=True, slots=True)
class World:
    """The processes that train one model; without groups, this process alone."""

    rank: int = 0
    size: int = 1
    short: dist.ProcessGroup | None = None
    """with the short timeout"""
    long: dist.ProcessGroup | None = None
    """with the long timeout"""

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    # --- rows

    def own_slice(self, rows: int) -> slice:
        """The rows of a batch that belong to this process; it may be none."""
        return slice(self.rank * rows // self.size, (self.rank + 1) * rows // self.size)

    def map_rows(
        self, work: Callable[[EncodedTable], tuple[Tensor, ...]], rows: EncodedTable
    ) -> tuple[Tensor, ...]:
        """``work`` of all rows, of which each process computes its own.  # (N, …) each"""
        if self.short is None or len(rows) < self.size:
            return work(rows)
        here, everything = self.own_slice(len(rows)), []
        for part in work(rows.take(here)):
            whole = part.new_zeros(len(rows), *part.shape[1:])  # a sum with 0 is exact
            whole[here] = part
            self.sum_tensors([whole])
            everything.append(whole)
        return tuple(everything)

    # --- sums and decisions

    def sum_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Sum each over all processes, in place and in one message; the same to the last bit."""
        if self.short is None:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _detect_lost_process():
            dist.all_reduce(flat, group=self.short)
        sums = flat.split([tensor.numel() for tensor in tensors])
        torch._foreach_copy_(
            list(tensors), [s.view_as(t) for s, t in zip(sums, tensors, strict=True)]
        )

    def sum_number(self, value: float) -> float:
        return self._reduce(value, dist.ReduceOp.SUM)

    def max_number(self, value: int) -> int:
        return int(self._reduce(value, dist.ReduceOp.MAX))

    def _reduce(self, value: float, operation: dist.ReduceOp.RedOpType) -> float:
        if self.short is None:
            return value
        number = torch.tensor(value, dtype=torch.float64)
        with _detect_lost_process():
            dist.all_reduce(number, operation, group=self.short)
        return float(number)

    def broadcast_number(self, value: float) -> float:
        return value if self.short is None else _broadcast(value, self.short)

    # --- after something that takes one process longer than another

    def wait_for_main(self) -> None:
        """Other processes continue when the main one arrives here, which itself does not wait."""
        if self.long is not None:
            _broadcast(0.0, self.long)

    def broadcast_bytes(self, content: bytes, source: int = 0) -> bytes:
        """The message of one process, the main one unless another is named."""
        if self.long is None:
            return content
        length = int(_broadcast(len(content), self.long, source))
        if not length:
            return b""
        message = bytearray(content if self.rank == source else length)
        with _detect_lost_process():
            shared = torch.frombuffer(message, dtype=torch.uint8)
            dist.broadcast(shared, source, group=self.long)
        return bytes(message)

    def gather_bytes(self, content: bytes) -> list[bytes]:
        """A message of each process, in order."""
        return [self.broadcast_bytes(content, source) for source in range(self.size)]

    @contextmanager
    def sharing_errors(self) -> Iterator[None]:
        """An InputError of one process inside is raised by every process at the end."""
        error: InputError | None = None
        try:
            yield
        except InputError as raised:
            error = raised
        sentences = self.gather_bytes(str(error or "").encode())
        if error is not None:
            raise error
        for rank, sentence in enumerate(sentences):
            if sentence:
                raise InputError(f"process {rank} of {self.size}: {sentence.decode()}")

    def check_same(self, content: bytes) -> None:
        """Every process must have been given the same table and options."""
        main, *others = self.gather_bytes(content)
        for rank, other in enumerate(others, start=1):
            if other != main:
                raise InputError(
                    f"process {rank} of {self.size} sees another table or other options than "
                    "process 0"
                )


ALONE = World()

_WORLD: ContextVar[World] = ContextVar("world", default=ALONE)


def current_world() -> World:
    """The processes of the :func:`join_world` that is open here, or this one alone."""
    return _WORLD.get()


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
def join_world(device: torch.device) -> Iterator[World]:
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
    with connect(device) as world:
        yield world


@contextmanager
def connect(
    device: torch.device, store: Any = None, rank: int = -1, size: int = -1
) -> Iterator[World]:
    """Connect with the others, by torchrun's environment unless there is a ``store`` to meet at."""
    # numbers and sentences go over gloo even where gradients do not: they never wait for a GPU
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with _detect_lost_process():
        dist.init_process_group(
            backend, timeout=LONG_TIMEOUT, store=store, rank=rank, world_size=size
        )
    token = None
    try:
        with _detect_lost_process():
            short = dist.new_group(timeout=SHORT_TIMEOUT)
        world = World(dist.get_rank(), dist.get_world_size(), short, dist.group.WORLD)
        token = _WORLD.set(world)
        yield world
    finally:
        if token is not None:
            _WORLD.reset(token)
        dist.destroy_process_group()


@contextmanager
def _detect_lost_process() -> Iterator[None]:
    """A RuntimeError of gloo or NCCL means that another process is not there."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcessError(
            "another process of this training has ended or does not answer"
        ) from error


def _broadcast(value: float, group: dist.ProcessGroup, source: int = 0) -> float:
    number = torch.tensor(value, dtype=torch.float64)
    with _detect_lost_process():
        dist.broadcast(number, source, group=group)
    return float(number)
