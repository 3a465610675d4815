"""Claims about what a training shows.

1. While rows are read a terminal shows how many, and has nothing of it left afterwards; blocks come
   through as they are, and a reading that is given up takes its bar along. A log gets nothing. A
   notebook has a bar if it can show one.
2. While it trains, a terminal of 80 columns shows a bar with the epoch, one loss and the time left,
   on one line.
3. A log gets a line now and then: about 20 for a training of any length, none for one of less than
   10 s. A resumed training knows its time left too.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from rich.console import Console

from varjepa.training import progress


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is written to a terminal that is not one; its width is that of a wide one."""
    screen = io.StringIO()

    def console(stderr: bool, highlight: bool) -> Console:
        assert stderr
        assert not highlight
        return Console(file=screen, force_terminal=True, width=120)

    monkeypatch.setattr(progress, "Console", console)
    yield screen
    drawing = [t for t in threading.enumerate() if "Refresh" in type(t).__name__]
    for thread in drawing:  # has been told to end, which may take it a moment
        thread.join(timeout=5)
    assert not [thread for thread in drawing if thread.is_alive()]


def blocks() -> Iterator[pa.Table]:
    yield pa.table({"x": range(1500)})
    yield pa.table({"x": range(500)})


def test_a_bar_while_rows_are_read(stderr: io.StringIO) -> None:
    found = list(progress.reading_bar(blocks(), 2000))
    assert [block.num_rows for block in found] == [1500, 500]
    assert "2,000 of 2,000 rows" in stderr.getvalue()
    assert stderr.getvalue().endswith("\x1b[1A\x1b[2K")  # the line is taken back


def test_a_reading_that_is_given_up(stderr: io.StringIO) -> None:
    for _ in progress.reading_bar(blocks(), 2000):
        break
    assert "0 of 2,000 rows" in stderr.getvalue()
    assert stderr.getvalue().endswith("\x1b[1A\x1b[2K")


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_has_a_bar_where_widgets_are_installed(
    widgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = Console(file=io.StringIO(), force_jupyter=True)
    monkeypatch.setattr(progress, "Console", lambda **options: notebook)
    monkeypatch.setattr(progress, "find_spec", lambda name: name if widgets else None)
    bar = MagicMock()
    monkeypatch.setattr(progress, "Progress", bar)
    with progress.progress() as show:
        show(1, 2, "reading", "")
    assert bar.called == widgets


def test_a_log_gets_nothing_of_reading(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(progress.reading_bar(blocks(), 2000))) == 2
    with progress.listening(True, None, False) as bar:  # over before a line is due
        bar.on_step(1, 2)
        bar.on_epoch({"epoch": 1, "loss": 0.5})
    assert capsys.readouterr() == ("", "")


def test_a_bar_fits_a_narrow_terminal(stderr: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(stderr_: bool = True, **_: object) -> Console:
        return Console(file=stderr, force_terminal=True, width=80)

    monkeypatch.setattr(progress, "Console", narrow)
    with progress.listening(True, None, False) as bar:
        for epoch in range(1, 4):
            bar.on_step(10_000 * epoch, 1_000_000)
            bar.on_epoch({"epoch": 1000 * epoch, "loss": -12345.678, "rec": 1.0, "gen": 2.0})
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stderr.getvalue())
    last = [line for line in re.split(r"[\r\n]", shown) if line.strip()][-1]
    assert len(last) <= 80
    assert "epoch 2001" in last
    assert "loss -1.235e+04" in last
    assert last.rstrip().endswith("left")
    assert "rec" not in shown


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(steps: int, seconds: float, first: int = 0) -> list[str]:
    """What a log holds of a training of so many steps, ten a epoch."""
    clock, lines = Clock(), []
    listener = progress.Listener(progress.LinesNowAndThen(lines.append, clock))
    for step in range(first + 1, steps + 1):
        clock.now += seconds
        listener.on_step(step, steps)
        if step % 10 == 0:
            listener.on_epoch({"epoch": step // 10, "loss": 1 / step})
    return lines


@pytest.mark.parametrize("seconds", [0.2, 1.0, 60.0, 3600.0])
def test_a_log_gets_a_line_now_and_then(seconds: float) -> None:
    lines = lines_of(1000, seconds)
    assert 9 <= len(lines) <= 25
    assert len(set(lines)) == len(lines)
    assert all(", loss " in line for line in lines if not line.startswith("epoch 1,"))


def test_lines_say_where_a_training_stands() -> None:
    assert lines_of(100, 0.09) == []
    assert "epoch 5, 50% done, loss 0.025, 50 s left" in lines_of(100, 1.0)
    resumed = lines_of(100, 1.0, first=90)
    assert len(resumed) == 1
    assert resumed[0].endswith(" 0 s left")
