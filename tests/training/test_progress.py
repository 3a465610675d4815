"""Claims about what a training shows.

1. While rows are read a terminal shows how many, and has nothing of it left afterwards; blocks come
   through as they are, and a reading that is given up takes its bar along.
2. What is no terminal, such as a log, gets nothing, not even an empty line; from the bar over steps
   neither.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from rich.console import Console

from varjepa.training import progress


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is written to a terminal that is not one; its width is that of a wide one."""
    screen = io.StringIO()

    def console(stderr: bool) -> Console:
        assert stderr
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


def test_a_log_gets_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(progress.reading_bar(blocks(), 2000))) == 2
    with progress.progress_bar() as bar:
        bar.on_step(1, 2)
        bar.on_epoch({"epoch": 1, "rec": 0.5})
    assert capsys.readouterr() == ("", "")
