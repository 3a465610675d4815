"""Measurements of a step: time, kernels, arithmetic, memory."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

StepFunction = Callable[[], None]
"""One training step, everything in it: masks, noise, forward, backward, optimiser."""


def race(steps: Sequence[StepFunction], repeats: int, device: str) -> list[float]:
    """Median seconds of each, run in turn; the first round only warms up."""
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(1 + repeats):
        for step, taken in zip(steps, seconds, strict=True):
            synchronise(device)
            start = time.perf_counter()
            step()
            synchronise(device)
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken[1:]) for taken in seconds]


def count_kernels(contender: AbstractContextManager[StepFunction], device: str) -> int:
    """Kernels of one step; on a CPU, operators."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the profiler sees this thread only
    try:
        with contender as step:
            step()
            synchronise(device)
            kinds = [ProfilerActivity.CPU if device == "cpu" else ProfilerActivity.CUDA]
            with profile(activities=kinds) as record:
                step()
                synchronise(device)
    finally:
        torch.set_num_threads(before)
    events = record.events() or []
    if device == "cpu":
        return sum(_is_operator(e) and not _is_operator(e.cpu_parent) for e in events)
    return sum(e.device_type.name == "CUDA" for e in events)


def _is_operator(event: Any) -> bool:
    return event is not None and event.name.startswith("aten::")


def gemm_rate(tokens: int, width: int, ff: int, device: str) -> float:
    """Highest FLOP/s of products: a step's own, tokens × feed-forward, or a large square one.

    A GPU needs the large one: the step's own are too short to reach its full rate.
    """
    return max(product_rate(tokens, width, ff, device), product_rate(2048, 2048, 2048, device))


def product_rate(rows: int, inner: int, columns: int, device: str) -> float:
    """FLOP/s of one matrix product, the best of several."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    x, w = (torch.ones(n, inner, device=device, dtype=dtype) for n in (rows, columns))
    out = x.new_empty(rows, columns)
    is_large = rows * columns >= 1 << 21
    times = 1 if is_large and device == "cpu" else 10  # a short one alone would measure its launch

    def several() -> None:
        for _ in range(times):
            torch.mm(x, w.T, out=out)

    best = min(race([several], 1, device)[0] for _ in range(5 if is_large else 20))
    return times * 2.0 * rows * inner * columns / best


def peak_mb(measure: Callable[..., float], arguments: tuple[Any, ...], device: str) -> float:
    """The result of ``measure``, on a CPU in a fresh process."""
    if device != "cpu":
        return measure(*arguments)
    # spawn: a fork would inherit this process's peak
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_in_threads, (torch.get_num_threads(), measure, arguments))


def growth_mb(contender: AbstractContextManager[StepFunction], device: str) -> float:
    """By how much steps raise the peak memory; on a GPU, with what is allocated before them."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    with contender as step:
        before = 0.0 if device != "cpu" else peak_resident_mb()
        step()
        step()
        after = peak_resident_mb() if device == "cpu" else torch.cuda.max_memory_allocated() / 2**20
    return round(after - before, 1)


def _in_threads(threads: int, measure: Callable[..., float], arguments: tuple[Any, ...]) -> float:
    torch.set_num_threads(threads)
    return measure(*arguments)


def peak_resident_mb() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    # systems without /proc count it in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def synchronise(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def discard(result: object) -> None:
    """Ignore what a timed call returns."""
