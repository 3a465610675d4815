"""A Ray cluster of two processors in a process of its own, and a look at its workers."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT = 150.0
"""Seconds that anything may take here on a machine that is busy with something else too."""

_CLUSTER = """
import logging, sys, ray
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False,
         logging_level=logging.CRITICAL, object_store_memory=1 << 27)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


class Cluster:
    """Where a cluster is, and who belongs to it."""

    def __init__(self, process: subprocess.Popen[str], address: str, environment: dict[str, str]):
        self.process, self.address, self.environment = process, address, environment

    def workers(self) -> list[int]:
        """Processes that embed parts at this moment."""
        return [pid for pid in descendants(self.process.pid) if "embed_missing" in name_of(pid)]


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Two processors; it ends with the block, or with this process."""
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _CLUSTER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, "Ray did not start"
        yield Cluster(process, address, environment)
    finally:
        process.stdin.close()
        process.wait(LIMIT)
        process.stdout.close()


def wait_until(enough: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something to happen while a process runs."""
    end = time.monotonic() + LIMIT
    while not enough():
        assert process.poll() is None, "ended too early"
        assert time.monotonic() < end, "took too long"
        time.sleep(0.01)


def kill_in_the_middle(workers: Callable[[], list[int]], out: Path) -> bool:
    """SIGKILL a worker that has a part half written; False where none has at this moment."""
    for pid in workers():
        with_part_open = any(map(_is_half, files_of(pid, out)))
        if not with_part_open:
            continue
        os.kill(pid, signal.SIGSTOP)
        if any(map(_is_half, files_of(pid, out))):  # still
            os.kill(pid, signal.SIGKILL)
            return True
        os.kill(pid, signal.SIGCONT)
    return False


def files_of(pid: int, folder: Path) -> list[Path]:
    """Files of a folder that a process has open."""
    found = []
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            target = Path(os.readlink(entry))  # noqa: PTH115 - of a process that may end meanwhile
            if folder in target.parents:
                found.append(target)
    except OSError:
        return []
    return found


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and those that they have started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(status.rsplit(")", 1)[1].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def environment_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_text().split("\0")
    except OSError:
        return []


def _is_half(path: Path) -> bool:
    return path.name.endswith(".tmp")
