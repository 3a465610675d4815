"""What a training shows: bars while rows are read and steps taken, a JSONL history, TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from varjepa.errors import InputError
from varjepa.files import make_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from varjepa.training.state import Record

TERMS = ("rec", "gen", "kl_sx", "kl_z", "kl_sy", "imputation", "scale", "spread")


class Listener(Protocol):
    """Somebody who is told about every step and every epoch."""

    def on_step(self, step: int, total: int) -> None: ...
    def on_epoch(self, record: Record) -> None: ...


class Listeners:
    """Several listeners as one."""

    def __init__(self, members: list[Listener]) -> None:
        self.members = members

    def on_step(self, step: int, total: int) -> None:
        for member in self.members:
            member.on_step(step, total)

    def on_epoch(self, record: Record) -> None:
        for member in self.members:
            member.on_epoch(record)


@contextmanager
def listening(bar: bool, folder: Path | None, tensorboard: bool) -> Iterator[Listeners]:
    """The listeners a user asked for, closed at the end."""
    with ExitStack() as stack:
        members: list[Listener] = []
        if bar:
            members.append(stack.enter_context(progress_bar()))
        if folder is not None:
            make_folder(folder)
            members.append(JsonlHistory(folder / "history.jsonl"))
            if tensorboard:
                members.append(stack.enter_context(tensorboard_events(folder)))
        yield Listeners(members)


@contextmanager
def progress_bar() -> Iterator[Listener]:
    """A bar on stderr with the loss terms, the active units and the time left."""
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TextColumn("{task.fields[terms]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with passing_bar(*columns) as progress:
        task = progress.add_task("", total=None, epoch=1, terms="")

        class Bar:
            def on_step(self, step: int, total: int) -> None:
                progress.update(task, completed=step, total=total)

            def on_epoch(self, record: Record) -> None:
                terms = " ".join(f"{name} {record[name]:.3g}" for name in TERMS if name in record)
                if "active_units" in record:
                    terms += f" active {record['active_units']:.0f}"
                progress.update(task, epoch=record["epoch"] + 1, terms=terms)

        yield Bar()


def reading_bar(blocks: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same blocks, with a bar on stderr: how many of the ``rows`` have been read."""
    columns = (
        TextColumn("reading"),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,} rows"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with passing_bar(*columns) as progress:
        task = progress.add_task("", total=rows)
        for block in blocks:
            yield block
            progress.advance(task, block.num_rows)


def passing_bar(*columns: ProgressColumn) -> Progress:
    """A bar on a terminal that is gone at the end; nothing, not even a line, in a log."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class JsonlHistory:
    """One JSON object a line, written every epoch: a crash keeps what was learnt so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mode = "w"  # an older history stays until there is something to put in its place

    def on_step(self, step: int, total: int) -> None:
        pass

    def on_epoch(self, record: Record) -> None:
        with self.path.open(self.mode, encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.mode = "a"


@contextmanager
def tensorboard_events(folder: Path) -> Iterator[Listener]:
    """The same numbers as TensorBoard scalars."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("TensorBoard is not installed: pip install tensorboard") from error
    writer: Any = SummaryWriter(str(folder))

    class Events:
        def on_step(self, step: int, total: int) -> None:
            pass

        def on_epoch(self, record: Record) -> None:
            for name, value in record.items():
                if name != "epoch" and isinstance(value, float | int):
                    writer.add_scalar(name, value, record["epoch"])

    try:
        yield Events()
    finally:
        writer.close()
