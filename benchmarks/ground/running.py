"""Which groups of jobs are left, the processes that compute them, and the store of their rows.

A run has two files of rows: the contender's, in a folder of its own, and the peers', which are
cached by table, job, seed, rows and package version. A row that is there is not computed again.
A file is rewritten whole after every group, so a kill loses one group at most.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.ground.jobs import (
    GROUPS,
    METHODS,
    OURS,
    Contender,
    JobGroup,
    Row,
    applies,
    measure,
    package_versions,
    version_of,
)
from benchmarks.ground.tables import ROWS
from paper.store import ResultStore, read_rows
from varjepa.environment import describe_environment
from varjepa.files import study_folder

KEY = ("table", "job", "method", "seed", "rows", "version")
FILE = "ground.json"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Log = Callable[[str], None]
Outcome = list[Row] | Exception


@dataclass(frozen=True, slots=True)
class Options:
    tables: Sequence[str]
    jobs: Sequence[str]
    methods: Sequence[str]
    seeds: Sequence[int] = (0, 1)
    rows: int = ROWS
    contender: Contender = Contender()  # noqa: RUF009 (frozen)
    workers: int = 1
    threads: int = 0
    """of each worker; 0: as many as it takes"""
    time_limit: float = float("inf")
    """seconds after which no group is started"""


def run_ground(options: Options, out: Path, cache: Path, log: Log) -> int:
    """Compute the rows that are missing; returns how many groups failed."""
    ours = {"contender": options.contender.kind, "set": dict(options.contender.parameters)}
    stores: dict[bool, ResultStore] = {}
    with ExitStack() as stack:
        if OURS in options.methods:
            stack.enter_context(study_folder(out))
            stores[True] = ResultStore(out / FILE, KEY, lambda row: ours)
        if any(method != OURS for method in options.methods):
            if not stores or out.resolve() != cache.parent.resolve():
                stack.enter_context(study_folder(cache.parent))
            stores[False] = ResultStore(cache, KEY)
        groups = missing_groups(options, stores, log)
        log(f"{len(groups)} groups of jobs")
        environment = {**describe_environment(options.contender.device), **package_versions()}
        failed = 0
        for group, outcome in compute(groups, options):
            if isinstance(outcome, Exception):
                failed += 1
                log(f"{group}: failed: {type(outcome).__name__}: {str(outcome)[:500]}")
            else:
                rows = [{**row, "environment": environment} for row in outcome]
                stores[group.method == OURS].add(rows)
                log(f"{group}: {_in_words(rows)}")
    return failed


def missing_groups(
    options: Options, stores: Mapping[bool, ResultStore], log: Log = lambda line: None
) -> list[JobGroup]:
    """Groups without rows: a fit that serves several jobs at a time, so that one is complete early.

    ``stores``: the contender's under True, the peers' under False.
    """
    versions = {method: version_of(method) for method in options.methods}
    for method in (method for method, version in versions.items() if version is None):
        log(f"{method} is left out: its package is not installed")
    there = {key: {store.key_of(row) for row in store.rows} for key, store in stores.items()}
    groups = []
    for seed in options.seeds:
        for together in GROUPS:
            for table in options.tables:
                for method, version in versions.items():
                    about = (method, seed, options.rows, version)
                    jobs = tuple(
                        job
                        for job in together
                        if job in options.jobs
                        and job in METHODS[method]
                        and applies(job, table)
                        and (table, job, *about) not in there[method == OURS]
                    )
                    if jobs and version is not None:
                        group = JobGroup(table, jobs, method, seed, options.rows, options.contender)
                        # peers have no fit to share
                        each = [jobs] if method == OURS else [(job,) for job in jobs]
                        groups += [replace(group, jobs=some) for some in each]
    return groups


def compute(groups: Sequence[JobGroup], options: Options) -> Iterator[tuple[JobGroup, Outcome]]:
    """Groups with their rows, or with the error that ended them, as they finish."""
    end = time.monotonic() + options.time_limit
    if options.threads:
        os.environ.update(dict.fromkeys(THREADS, str(options.threads)))  # for new processes
    if options.workers == 1:
        limit_threads(options.threads)
        for group in groups:
            if time.monotonic() < end:
                yield group, attempt(group)
        return
    left = list(reversed(groups))
    with ProcessPoolExecutor(
        options.workers,
        multiprocessing.get_context("spawn"),  # a fork would share the GPU's context
        initializer=limit_threads,
        initargs=(options.threads,),
        max_tasks_per_child=8,  # memory that a library keeps goes back
    ) as pool:
        running: dict[Future[Outcome], JobGroup] = {}
        while running or (left and time.monotonic() < end):
            while left and len(running) < options.workers and time.monotonic() < end:
                group = left.pop()
                running[pool.submit(attempt, group)] = group
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def attempt(group: JobGroup) -> Outcome:
    """The group's rows, or its error: one table must not end a night's run."""
    try:
        return measure(group)
    except Exception as error:  # whatever it is, the line says it
        return RuntimeError(f"{type(error).__name__}: {error}")


def limit_threads(threads: int) -> None:
    """Threads of everything that computes in this process; 0: as they come."""
    if threads:
        import torch
        from threadpoolctl import threadpool_limits

        torch.set_num_threads(threads)
        threadpool_limits(threads)


def merge(out: Path, sources: Sequence[Path]) -> int:
    """Take the rows of other files into one; returns how many are new or replaced."""
    with study_folder(out.parent):
        store = ResultStore(out, KEY, lambda row: row.get("settings"))
        rows = [row for source in sources for row in read_rows(source)]
        store.add(rows)
    return len(rows)


def _in_words(rows: Sequence[Row]) -> str:
    figures = {name: value for row in rows for name, value in row["figures"].items()}
    plain = (f"{k} {v:.4g}" for k, v in figures.items() if isinstance(v, int | float))
    return f"{rows[0]['seconds']:.1f} s, {rows[0]['peak_mb']:.0f} MB; {', '.join(plain)}"
