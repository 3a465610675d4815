"""Ctrl-C and SIGTERM during a training: first a checkpoint, then what the signal means anyway.

A signal is held back until training is between two steps. Then its old handler is put back and the
signal sent again: whoever handles it, or nobody, finds a training that can be resumed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class HeldSignals:
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
