"""What a training shows: a bar or lines of progress, a closing sentence, a history, TensorBoard."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
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


class Listener(Protocol):
    """Is told about every step and every epoch."""

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
    """The listeners that a user asked for, closed at the end."""
    with ExitStack() as stack:
        members: list[Listener] = []
        if bar:
            members.append(stack.enter_context(show_progress()))
        if folder is not None:
            make_folder(folder)
            members.append(JsonlHistory(folder / "history.jsonl"))
            if tensorboard:
                members.append(stack.enter_context(tensorboard_events(folder)))
        yield Listeners(members)


# --- progress: a bar on a terminal, lines now and then in a log


@contextmanager
def show_progress() -> Iterator[Listener]:
    """Progress on stderr."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield ProgressLines(lambda line: console.print(line, markup=False, soft_wrap=True))
        return
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with passing_bar(*columns) as progress:
        task = progress.add_task("", total=None, epoch=1, loss="")

        class Bar:
            def on_step(self, step: int, total: int) -> None:
                progress.update(task, completed=step, total=total)

            def on_epoch(self, record: Record) -> None:
                progress.update(task, epoch=record["epoch"] + 1, loss=f"loss {record['loss']:.4g}")

        yield Bar()


def show_lines(lines: Sequence[str]) -> None:
    """Lines on stderr, as they are."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True)


class ProgressLines:
    """A line now and then, for a log."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.say = say
        self.timer = LineTimer(clock)
        self.epoch, self.loss = 1, ""

    def on_step(self, step: int, total: int) -> None:
        left = self.timer.time_left(step / total)
        if left is not None:
            self.say(f"epoch {self.epoch}, {step / total:.0%} done{self.loss}, {left} left")

    def on_epoch(self, record: Record) -> None:
        self.epoch, self.loss = record["epoch"] + 1, f", loss {record['loss']:.4g}"


class LineTimer:
    """Decides when a log gets another line.

    At every tenth of the work, and in between after 10 s, 20 s, 40 s, and so on: about 20 lines
    however long the work takes, and none if it takes less than a second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.start: tuple[float, float] | None = None
        """time and share done at the first call: a resumed training does not begin at 0"""
        self.last, self.tenths = clock(), 0
        self.interval = 10.0

    def time_left(self, done: float) -> str | None:
        """In words, for a share of the work that is done; None: no line yet."""
        now, tenths = self.clock(), int(10 * done)
        if self.start is None:
            self.start, self.tenths = (now, done), tenths
            return None
        waited = now - self.last
        if waited < 1 or (tenths == self.tenths and waited < self.interval):
            return None
        if tenths == self.tenths:
            self.interval = 2 * waited
        self.tenths, self.last = tenths, now
        return in_words((now - self.start[0]) * (1 - done) / (done - self.start[1]))


def in_words(seconds: float) -> str:
    """A duration.

    Examples:
        >>> in_words(7.4), in_words(95), in_words(7260)
        ('7 s', '2 min', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


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
    """A bar on a terminal that is gone at the end; nothing, not even an empty line, in a log."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


# --- the end, in words


def describe_training(
    history: Sequence[Record],
    score_name: str,
    patience: int,
    collapsed: bool,
    silent_columns: Sequence[str] = (),
) -> str:
    """Whether a training went well, and whether a longer one would help.

    ``silent_columns``: columns that vary and leave no trace in the embedding.
    """
    if collapsed:
        return "not good: the latents have collapsed, so that all rows look alike to the model"
    scores = [r[score_name] for r in history if r.get(score_name) is not None]
    if silent_columns:
        told = ", ".join(silent_columns[:5]) + (" …" if len(silent_columns) > 5 else "")
        start = f"fair: {len(silent_columns)} columns leave no trace in the embedding ({told})"
    else:
        start = "good: every column leaves a trace in the embedding"
    return f"{start}; {_would_longer_help(scores, patience)}"


LEVEL = (0.05, 0.002)
"""The last quarter of a training has levelled off if it gained less than this share of the whole
gain, or of the score itself."""


def _would_longer_help(scores: Sequence[float], patience: int) -> str:
    """From the validation scores of a training, in order; higher is better."""
    if len(scores) < 2:
        return "too few validations to tell whether longer training would help"
    best = max(range(len(scores)), key=scores.__getitem__)
    if len(scores) - 1 - best >= patience:
        return "training stopped when the validation score no longer improved: longer will not help"
    before = max(scores[: -max(1, len(scores) // 4)])
    least = max(LEVEL[0] * (scores[best] - scores[0]), LEVEL[1] * abs(scores[best]))
    if scores[best] - before > least:
        return "the validation score was still improving when training ended: raise the epochs"
    return "the validation score has levelled off: longer training would hardly help"


# --- what is kept of a training


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
