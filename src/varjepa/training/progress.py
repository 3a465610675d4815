"""What a training shows: a bar or lines of progress, a history, TensorBoard."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from varjepa.errors import InputError
from varjepa.files import make_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from varjepa.training.loop import Record

Show = Callable[[int, int, str, str], None]
"""Called with the work done, all work, what is done, and a figure about it."""


class Listener:
    """Is told about every step and every epoch, and tells the user, a file, and TensorBoard."""

    def __init__(self, show: Show | None, history: Path | None = None, writer: Any = None) -> None:
        self.show, self.history, self.writer = show, history, writer
        self.mode = "w"  # an older history stays until there is something to put in its place
        self.epoch, self.loss = 1, ""

    def on_step(self, step: int, total: int) -> None:
        if self.show is not None:
            self.show(step, total, f"epoch {self.epoch}", self.loss)

    def on_epoch(self, record: Record) -> None:
        self.epoch, self.loss = record["epoch"] + 1, f"loss {record['loss']:.4g}"
        if self.history is not None:  # at once: a crash keeps what was learned so far
            with self.history.open(self.mode, encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            self.mode = "a"
        if self.writer is not None:
            for name, value in record.items():
                if name != "epoch" and isinstance(value, float | int):
                    self.writer.add_scalar(name, value, record["epoch"])


@contextmanager
def listening(bar: bool, folder: Path | None, tensorboard: bool) -> Iterator[Listener]:
    """A listener as the user wants it, closed at the end."""
    with ExitStack() as stack:
        show = stack.enter_context(progress()) if bar else None
        if folder is None:
            yield Listener(show)
            return
        make_folder(folder)
        writer = stack.enter_context(closing(_open_tensorboard(folder))) if tensorboard else None
        yield Listener(show, folder / "history.jsonl", writer)


def _open_tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("TensorBoard is not installed: pip install tensorboard") from error
    return SummaryWriter(str(folder))


# --- progress: a bar on a terminal, lines now and then in a log


@contextmanager
def progress() -> Iterator[Show]:
    """Progress on stderr: a bar that is gone at the end, or a few lines where none can be shown."""
    console = Console(stderr=True, highlight=False)
    in_notebook = console.is_jupyter and find_spec("ipywidgets") is not None  # Rich asks for it
    if not (console.is_terminal or in_notebook):
        yield LinesNowAndThen(lambda line: console.print(line, markup=False, soft_wrap=True))
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figure]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, figure="")

        def show(done: int, total: int, what: str, figure: str) -> None:
            bar.update(task, completed=done, total=total, description=what, figure=figure)

        yield show


class LinesNowAndThen:
    """Lines for a log.

    None in the first 10 s; then at every tenth of the work, and in between after 10 s, 20 s, 40 s,
    and so on: about 20 lines however long the work takes.
    """

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.say, self.clock = say, clock
        self.start: tuple[float, float] | None = None
        """time and share done at the first call: a resumed training does not begin at 0"""
        self.last, self.tenths = clock(), 0
        self.least, self.interval = 10.0, 10.0

    def __call__(self, done: int, total: int, what: str, figure: str) -> None:
        now, share = self.clock(), done / total
        tenths, waited = int(10 * share), now - self.last
        if self.start is None:
            self.start, self.tenths = (now, share), tenths
            return
        if waited < self.least or (tenths == self.tenths and waited < self.interval):
            return
        self.least = 1.0
        if tenths == self.tenths:
            self.interval = 2 * waited
        self.tenths, self.last = tenths, now
        left = in_words((now - self.start[0]) * (1 - share) / max(share - self.start[1], 1e-9))
        self.say(", ".join(filter(None, (what, f"{share:.0%} done", figure, f"{left} left"))))


def reading_bar(blocks: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same blocks, with progress: how many of the ``rows`` have been read."""
    done = 0
    with progress() as show:
        show(0, rows, "reading", f"0 of {rows:,} rows")
        for block in blocks:
            yield block
            done += block.num_rows
            show(done, rows, "reading", f"{done:,} of {rows:,} rows")


def show_lines(lines: Sequence[str]) -> None:
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True)


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
