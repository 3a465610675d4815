"""The parts of a folder of embeddings, computed by the workers of a Ray cluster.

A task is a part of the plan: whoever has a processor or GPU free embeds it and writes it where
every engine would. Rows never pass through Ray: Ray Data's Parquet files are cut and named as its
scheduler goes, and a run that is repeated adds all its rows again. A part of a plan has its place,
appears whole, and does no harm when it is computed twice. So the folder has the same bytes whoever
made it, and a worker that dies costs the part it was at.

The model, the input and the output folder have to be seen under the same paths by all machines.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

from varjepa.errors import InputError
from varjepa.files import remove_temporaries
from varjepa.scale.embedding import Engine, Report, Work, embed_part
from varjepa.scale.plan import Part, read_part
from varjepa.tables.messages import TableWarnings

OLDEST = (2, 55)
"""Before that, Ray runs code that a Parquet file brings while it reads the file's columns."""

MOST_DEATHS = 5
"""Of workers at the same part, before the part is to blame."""

MOST_TASKS = 1_000
"""Handed to Ray at a time; enough for a cluster that grows with what is asked of it."""

PATIENCE = 30.0
"""Seconds that a shared file system may take to show here what was written elsewhere."""

CONNECT_SECONDS = 10.0
"""For a first word from a cluster."""

OBJECT_STORE_BYTES = 1 << 27
"""Of a Ray of our own. Rows do not travel through it."""


def ray_engine(address: str | None = None) -> Engine:
    """An engine that computes on the Ray cluster at an address, such as ``auto`` or a host:port.

    Without one: a Ray that runs in this process already, or the one that the environment variable
    ``RAY_ADDRESS`` names, or else all processors of this machine.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    _check_version()
    _check_address(address)

    def compute(work: Work, missing: Sequence[Part], report: Report) -> None:
        with _session(address) as ray:
            _compute(ray, work, missing, report)

    return compute


def _compute(ray: Any, work: Work, missing: Sequence[Part], report: Report) -> None:
    needs = task_needs(ray.cluster_resources(), work.embedder.device)
    work = _anywhere(work, "cuda" if needs["num_gpus"] else "cpu")
    embed = ray.remote(max_retries=MOST_DEATHS, max_calls=0, **needs)(embed_missing)
    everything = ray.put(work)
    waiting, running = iter(missing), dict[Any, Part]()
    try:
        while True:
            for part in islice(waiting, MOST_TASKS - len(running)):
                running[embed.remote(everything, part)] = part
            if not running:
                break
            for done in ray.wait(list(running))[0]:
                part = running.pop(done)
                if (wrong := ray.get(done)) is not None:
                    raise InputError(wrong)
                report(len(part), _arrived(work, part))
    except ray.exceptions.RayTaskError as error:  # such as a machine without this package
        raise InputError(f"Ray gave up: {_lines(error)[-1]}") from error
    except ray.exceptions.RayError as error:
        raise InputError(f"Ray gave up: {_lines(error)[0]}") from error
    for folder in {(work.out / part.path).parent for part in missing}:
        remove_temporaries(folder)  # of workers that died


def task_needs(resources: Mapping[str, float], device: str) -> dict[str, int]:
    """A GPU for each task in a cluster that has some, else a processor.

    Examples:
        >>> task_needs({"CPU": 64.0, "GPU": 8.0}, "auto")
        {'num_cpus': 0, 'num_gpus': 1}
    """
    has_gpus = resources.get("GPU", 0) >= 1
    if device == "cuda" and not has_gpus:
        raise InputError("--device cuda: this Ray cluster has no GPU")
    on_gpu = has_gpus and device != "cpu"
    return {"num_cpus": int(not on_gpu), "num_gpus": int(on_gpu)}


def embed_missing(work: Work, part: Part) -> str | None:
    """What a worker does with a part; where the user can mend what is wrong, the sentence."""
    try:
        if read_part(work.out, work.plan, part) is None:
            embed_part(work, part)
    except InputError as error:
        return str(error)
    return None


def _anywhere(work: Work, device: str) -> Work:
    """The same work for processes that started in other folders."""
    folder = str(Path(work.embedder.model_folder).absolute())
    return replace(
        work,
        embedder=replace(work.embedder, model_folder=folder, device=device),
        tables=tuple(replace(table, path=table.path.absolute()) for table in work.tables),
        out=work.out.absolute(),
    )


def _arrived(work: Work, part: Part) -> TableWarnings:
    """What a part that was just written says, as it is seen from here."""
    end = time.monotonic() + PATIENCE
    while (part_warnings := read_part(work.out, work.plan, part)) is None:
        if time.monotonic() > end:
            raise InputError(
                f"a worker wrote {work.out / part.path}, which is not there on this machine; "
                "--out must be a folder that all of them share"
            )
        time.sleep(0.1)
    return part_warnings


def _check_version() -> None:
    """One sentence that says what to install, where Ray is missing or too old; nothing imported."""
    try:
        installed = version("ray")
    except PackageNotFoundError as error:
        raise InputError("--engine ray needs Ray: pip install 'varjepa[scale]'") from error
    numbers = re.match(r"(\d+)\.(\d+)", installed)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise InputError(
            f"Ray {installed} may run code that is hidden in a Parquet file, and {OLDEST[0]}."
            f"{OLDEST[1]} does not: pip install --upgrade 'varjepa[scale]'"
        )


def _import_ray(is_own: bool) -> Any:
    """Ray with our settings, which it reads from the environment when it is first imported.

    A user who has imported it, or set one of them, has decided for himself.
    """
    if is_own and "ray" not in sys.modules:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # sends no statistics
        if "RAY_AUTH_MODE" not in os.environ:
            # its ports are open to the network and take code: only from who knows the token
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return import_module("ray")


def _check_address(address: str) -> None:
    """Ray itself would wait for minutes."""
    host_and_port = re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:(\d+)", address)
    if host_and_port is None:
        if address not in ("local", "auto"):
            raise InputError(f"--address {address} is neither auto nor a host:port")
        return
    try:
        socket.create_connection((host_and_port[1], int(host_and_port[2])), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"--address {address}: there is no answer") from error


@contextmanager
def _session(address: str) -> Iterator[Any]:
    """Ray while it is needed: one that runs already stays, one that was started here ends."""
    ray = _import_ray(is_own=address == "local")
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address == "local":
        options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    try:
        with _kept_sigterm():
            ray.init(address, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"--address {address}: {_lines(error)[0]}") from error
    try:
        with redirect_stdout(sys.stderr):  # where Ray says that a worker died or a machine is full
            yield ray
    finally:
        ray.shutdown()


@contextmanager
def _kept_sigterm() -> Iterator[None]:
    """Ray takes this signal for itself; here it goes on to mean what it meant."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _lines(error: Exception) -> list[str]:
    return str(error).strip().splitlines() or [type(error).__name__]
