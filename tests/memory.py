"""How much memory a piece of work took at its peak, as the kernel counts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_RESET_PEAK = "5"


class Peak:
    """Filled at the end of the block."""

    bytes = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """The block's largest resident size above the one before it; skips where nobody counts it."""
    reset = Path("/proc/self/clear_refs")
    try:
        reset.write_text(_RESET_PEAK)
        before = _status("VmRSS")
    except OSError:
        pytest.skip("this system does not measure a part of a process")
    peak = Peak()
    try:
        yield peak
    finally:
        peak.bytes = max(0, _status("VmHWM") - before)


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{key}:"))
