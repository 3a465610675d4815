"""Time to quality: how long a user waits for a fit with defaults, and for what comes after it.

Quality is the log-likelihood of held-out cells that ``fit`` itself measures at every validation.
The gap runs from the columns' marginals to the best of a run that is several times as long; a fit
has quality once it has closed 99 % of the gap. Its time is that from the call of ``fit`` to the
end of that validation, reading and encoding included.

A fifth of the cells of every table is removed first, so that the same fit can fill them, and peers
can too. Every measurement is a process of its own and a row of the results; a row that is there is
not measured again.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from subprocess import Popen
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import varjepa
from benchmarks.ground.peers import IMPUTERS, fill_mean_mode, isolation_forest, version_of
from benchmarks.ground.scoring import imputation_figures
from benchmarks.ground.tables import Bools, CodedTable, Coder, load, remove, removed_cells
from benchmarks.measures import peak_resident_mb, product_rate, synchronise
from varjepa.environment import describe_environment
from varjepa.errors import InputError
from varjepa.estimators import base
from varjepa.estimators.fitting import hold_out
from varjepa.models.var_t_jepa import CellDistributions, VarTJepa
from varjepa.tables import TableCodec
from varjepa.tables.codec import EncodedTable
from varjepa.training import loop
from varjepa.training.loop import HeldOutCells
from varjepa.training.losses import Loss

Row = dict[str, Any]

# --- Tables.


@dataclass(frozen=True, slots=True)
class FitShape:
    """Rows and columns of a table; ``source`` names a real one to be used where it is there."""

    rows: int
    columns: int
    source: str | None = None


FIT_SHAPES = {
    "500x10": FitShape(500, 10),
    "10000x15": FitShape(10_000, 15),
    "adult": FitShape(50_000, 14, "adult"),
    "10000x100": FitShape(10_000, 100),
}


def dependent_table(rows: int, columns: int, seed: int = 0) -> pd.DataFrame:
    """Numbers and categories that depend on a few hidden factors, in ways that are not linear.

    Every third column is a category of 2 to 9 levels; of the numbers one in three is skewed and one
    in three an integer of few values.
    """
    rng = np.random.default_rng(seed)
    count = max(2, columns // 5)
    factors = rng.normal(size=(rows, count))
    table = {}
    for j in range(columns):
        first = factors[:, j % count]
        second = factors[:, rng.integers(count)]
        bend = rng.normal()
        value = first + 0.5 * bend * np.abs(second) + 0.25 * first * second
        value = value + 0.2 * rng.normal(size=rows)
        if j % 3 == 0:
            levels = int(rng.integers(2, 10))
            cuts = np.quantile(value, np.sort(rng.random(levels - 1)))
            names = rng.permutation([f"level {i}" for i in range(levels)])
            table[f"c{j}"] = names[np.searchsorted(cuts, value)]
        elif j % 3 == 1:
            table[f"c{j}"] = np.round(value * 3) if j % 2 else value
        else:
            table[f"c{j}"] = np.exp(value)
    return pd.DataFrame(table)


@dataclass(frozen=True, slots=True)
class FitTable:
    source: str
    frame: pd.DataFrame
    truth: CodedTable
    known: CodedTable
    removed: Bools
    coder: Coder


def fit_table(shape: FitShape) -> FitTable:
    """The real table where it is there, otherwise a made one of the same shape."""
    whole, source = None, "made"
    if shape.source is not None:
        with suppress(InputError, OSError):
            whole, source = load(shape.source, shape.rows).features, shape.source
    if whole is None:
        whole = dependent_table(shape.rows, shape.columns)
    numbers = [name for name in whole if pd.api.types.is_numeric_dtype(whole[name])]
    whole = whole.astype(dict.fromkeys(numbers, np.float64))
    removed = removed_cells(whole, 0)
    frame, coder = remove(whole, removed), Coder(whole)
    return FitTable(source, frame, coder(whole), coder(frame), removed, coder)


# --- The quality of a model that knows the columns' own distributions and nothing else.


class Marginals(VarTJepa):
    """Every cell's distribution is that of its column among the training rows."""

    def __init__(self, like: VarTJepa, rows: EncodedTable) -> None:
        nn.Module.__init__(self)
        self.shape = like.shape
        known = rows.num
        if rows.observed is not None:
            known = known.masked_fill(~rows.observed[:, : like.shape.numeric], torch.nan)
        self.mean = known.nanmean(0)
        self.log_var = (known - self.mean).square().nanmean(0).clamp_min(1e-4).log()
        self.bins = deepcopy(like.target_decoder.bins)
        most = max([1, *like.shape.levels])
        counts = [torch.bincount(cat, minlength=most) + 0.5 for cat in rows.cat.T]
        logits = torch.stack(counts).log() if counts else rows.num.new_zeros(0, most)
        logits[:, 0] = -torch.inf  # MISSING
        self.log_levels = logits.log_softmax(-1)  # (F_cat, most)
        self.to(rows.num.device)

    def nll_of_cells(self, w: EncodedTable, asked: Tensor) -> Tensor:
        bins, levels = None, []
        if self.bins is not None:
            bins = self.bins.share.clamp_min(1e-30).log().expand(len(w), -1, -1)
        if len(self.log_levels):
            categories = torch.arange(len(self.log_levels), device=w.num.device)
            probabilities = self.log_levels.expand(len(w), -1, -1)
            levels = [(categories + self.shape.numeric, probabilities)]
        return CellDistributions(self.mean, self.log_var, levels, self.bins, bins).nll(w)


def marginals_score(model: varjepa.VarTJEPA, frame: pd.DataFrame) -> float:
    """The score that the marginals have on the cells which the fit was validated with."""
    rows = model.encode(frame)
    training, held_out = hold_out(rows, model.settings("training").validation_share, model.seed_)
    marginals = Marginals(model.model_, rows.take(training))
    selection = HeldOutCells(rows.take(held_out), model.seed_)
    return selection.score(cast(Loss, SimpleNamespace(model=marginals)))


# --- Where the time of a fit goes.

PARTS: dict[str, tuple[tuple[Any, str], ...]] = {
    "reading": ((base, "to_arrow"), (TableCodec, "fit")),
    "encoding": ((TableCodec, "encode"),),
    "training": ((base, "train"),),
    "validation": ((HeldOutCells, "score"), (loop, "check_collapse")),
    "calibration": ((varjepa.VarTJEPA, "_calibrate"),),
}
"""functions whose time is that of a part; validation is inside of training"""


@contextmanager
def stopwatch(device: str) -> Iterator[dict[str, float]]:
    """Seconds spent in each part, while this is open."""
    seconds: dict[str, float] = defaultdict(float)
    with ExitStack() as stack:
        for part, functions in PARTS.items():
            for owner, name in functions:
                whole = vars(owner)[name]
                inner = whole.__func__ if isinstance(whole, classmethod) else whole

                def timed(*args: Any, _inner: Any = inner, _part: str = part, **kwargs: Any) -> Any:
                    synchronise(device)  # steps before a validation are not part of it
                    start = time.perf_counter()
                    try:
                        return _inner(*args, **kwargs)
                    finally:
                        synchronise(device)
                        seconds[_part] += time.perf_counter() - start

                setattr(owner, name, classmethod(timed) if inner is not whole else timed)
                stack.callback(setattr, owner, name, whole)
        yield seconds


def shares_of(seconds: dict[str, float], fit_s: float, save_s: float) -> dict[str, float]:
    """Shares of fit and save together; steps are the training without its validations."""
    parts = {name: seconds[name] for name in PARTS}
    parts["steps"] = parts.pop("training") - parts["validation"]
    parts["saving"] = save_s
    parts["other"] = fit_s + save_s - sum(parts.values())
    return {name: round(one / (fit_s + save_s), 4) for name, one in parts.items()}


# --- Measurements, each in a process of its own; ``emit`` hands a row back.

Emit = Callable[[Row], None]
USED_ROWS = 10_000
"""rows that are embedded, filled and audited, at most"""


def measure_machine(emit: Emit, device: str) -> None:
    emit({"gflop_per_s": round(product_rate(2048, 2048, 2048, device) / 1e9, 1)})


def measure_fits(emit: Emit, device: str, name: str, fits: int) -> None:
    """Fits with defaults, all with one seed; then the last model is used."""
    # nothing is compiled yet when the first fit starts
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    table = fit_table(FIT_SHAPES[name])
    for i in range(fits):
        model, row = _fit(table, device, varjepa.VarTJEPA(random_state=0, device=device))
        resident = peak_resident_mb()
        peak = resident if device == "cpu" else torch.cuda.max_memory_allocated() / 2**20
        emit({
            "task": f"fit {i}", "is_cold": i == 0, "source": table.source,
            "table": list(table.frame.shape), **row, "peak_mb": round(peak, 1),
            "resident_peak_mb": round(resident, 1),
        })  # fmt: skip
    emit({"task": "use", **_use(table, model, device)})


def _fit(
    table: FitTable, device: str, model: varjepa.VarTJEPA
) -> tuple[varjepa.VarTJEPA, dict[str, Any]]:
    curve: list[tuple[float, float]] = []
    with stopwatch(device) as seconds:
        start = time.perf_counter()
        processor = time.process_time()

        def on_epoch(record: Row) -> None:
            if record.get("held-out cells") is not None:
                curve.append((round(time.perf_counter() - start, 3), record["held-out cells"]))

        model.fit(table.frame, on_epoch=on_epoch)
        synchronise(device)
        fit_s, processor_s = time.perf_counter() - start, time.process_time() - processor
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        model.save(Path(folder) / "model")
        save_s = time.perf_counter() - start
    return model, {
        "fit_s": round(fit_s, 3), "processor_s": round(processor_s, 3),
        "save_s": round(save_s, 3), "shares": shares_of(seconds, fit_s, save_s),
        "epochs": len(model.history_), "marginals": marginals_score(model, table.frame),
        "curve": curve, "architecture": asdict(model.model_.settings),
    }  # fmt: skip


def _use(table: FitTable, model: varjepa.VarTJEPA, device: str) -> Row:
    """Rows per second of what comes after a fit, and the error of the filled cells."""
    few = table.frame.head(USED_ROWS)
    rates = {}
    for name, use in (
        ("embed", model.transform),
        ("impute", model.impute),
        ("audit", partial(varjepa.audit, model=model)),
    ):
        start = time.perf_counter()
        use(few)
        synchronise(device)
        rates[f"{name}_rows_per_s"] = round(len(few) / (time.perf_counter() - start), 1)
    start = time.perf_counter()
    filled = table.coder(model.impute(table.frame))
    return {**rates, "impute_s": round(time.perf_counter() - start, 3), **_errors(table, filled)}


def measure_long(emit: Emit, device: str, name: str, epochs: int, limit: float | None) -> None:
    """The best score of a run that no validation ends."""
    table = fit_table(FIT_SHAPES[name])
    model = varjepa.VarTJEPA(random_state=0, device=device).set_params(
        training__epochs=epochs, training__patience=epochs, training__time_limit=limit
    )
    _, row = _fit(table, device, model)
    emit({"best": max(score for _, score in row["curve"]), **row})


def measure_peer(emit: Emit, name: str, peer: str) -> None:
    """What a user would take instead, from coded table to filled cells or scores."""
    table = fit_table(FIT_SHAPES[name])
    start = time.perf_counter()
    if peer == "isolation_forest":
        isolation_forest(fill_mean_mode(table.known, None, 0).values, None, 0)
        emit({"seconds": round(time.perf_counter() - start, 3)})
        return
    filled = IMPUTERS[peer](table.known, None, 0)
    seconds = time.perf_counter() - start
    emit({"seconds": round(seconds, 3), **_errors(table, filled)})


BUSY_SHAPES = {"300x7": FitShape(300, 7), "2000x15": FitShape(2000, 15)}


def measure_busy(emit: Emit, name: str, steps: int) -> None:
    """A fit of so many steps on a CPU, alone and beside a process that never waits."""
    shape = BUSY_SHAPES[name]
    frame = dependent_table(shape.rows, shape.columns)
    model = varjepa.VarTJEPA(random_state=0, device="cpu")
    model.set_params(training__patience=1000, training__max_steps=1).fit(frame)
    model.set_params(training__max_steps=steps)
    for busy in (0, 1):
        with ExitStack() as stack:
            for _ in range(busy):
                other = stack.enter_context(Popen([sys.executable, "-c", "while True: pass"]))
                stack.callback(other.kill)
            start, processor = time.perf_counter(), time.process_time()
            model.fit(frame)
            emit({
                "shape": name, "steps": steps, "busy_processes": busy, "seed": 0,
                "fit_s": round(time.perf_counter() - start, 3),
                "processor_s": round(time.process_time() - processor, 3),
                "environment": describe_environment("cpu"),
            })  # fmt: skip


PEERS = ("boosting", "miss_forest", "miceforest", "isolation_forest")


def _errors(table: FitTable, filled: CodedTable) -> Row:
    figures = imputation_figures(table.truth, filled, table.removed)
    return {name: figures[name] for name in ("rmse", "accuracy")}


# --- The run.


def bench_fits(
    shapes: Sequence[str],
    device: str,
    repeats: int = 3,
    peers: Sequence[str] = PEERS,
    peer_limit: float = 600.0,
    long: float = 3.0,
    time_limit: float | None = None,
    rows: list[Row] | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Measure what ``rows`` lacks; ``on_row`` is called with every new row.

    On a GPU the first fit of a process is cold, and ``repeats`` warm ones follow. Nothing is begun
    after ``time_limit`` seconds; a peer is ended after ``peer_limit``.
    """
    rows = [] if rows is None else rows
    end = None if time_limit is None else time.monotonic() + time_limit
    fits = repeats + (device != "cpu")

    def has(shape: str | None, task: str, on: str = device) -> Row | None:
        wanted = (shape, on, task)
        return next((r for r in rows if (r["shape"], r["device"], r["task"]) == wanted), None)

    def measure(
        shape: str | None, task: str, work: Any, *args: Any, on: str = device, limit: Any = None
    ) -> None:
        left = None if end is None else end - time.monotonic()
        if has(shape, task, on) is not None or (left is not None and left <= 0):
            return
        allowed = min((x for x in (limit, left) if x is not None), default=None)
        for measured in in_process(work, args, allowed):
            if measured is None and limit is None:  # the whole time is over, not the peer's
                continue
            row = {
                "shape": shape,
                "device": on,
                "task": task,
                **(measured or {"seconds": None, "limit_s": limit}),
                "environment": describe_environment(on),
            }
            rows.append(row)
            on_row(row)

    measure(None, "machine", measure_machine, device)
    for shape in shapes:
        if has(shape, "use") is None:
            begun = (shape, device, "fit")  # of a run that did not end
            rows[:] = [r for r in rows if (r["shape"], r["device"], r["task"][:3]) != begun]
            measure(shape, "use", measure_fits, device, shape, fits)
        first = has(shape, "fit 0")
        if first is not None:
            epochs = max(1, round(long * first["epochs"]))
            left = None if end is None else max(1.0, end - time.monotonic() - 10.0)
            measure(shape, "long", measure_long, device, shape, epochs, left)
        for peer in peers:
            if version_of(peer) is not None:
                measure(
                    shape, f"peer {peer}", measure_peer, shape, peer, on="cpu", limit=peer_limit
                )
    return rows


def in_process(
    work: Callable[..., None], args: tuple[Any, ...], limit: float | None
) -> Iterator[Row | None]:
    """The rows that ``work`` emits in a fresh process; None where it was ended by the limit.

    The limit's seconds count from when the process has imported what it needs.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_emit_all, args=(there, work, args))
    process.start()
    there.close()
    try:
        with suppress(EOFError):  # a process that did not start says so below
            here.recv()
        end = None if limit is None else time.monotonic() + limit
        while here.poll(None if end is None else max(0.0, end - time.monotonic())):
            try:
                yield here.recv()
            except EOFError:
                break
        else:
            yield None
            return
        process.join()
        if process.exitcode:
            raise RuntimeError(f"{work.__name__}{args} ended with code {process.exitcode}")
    finally:
        process.kill()
        process.join()


def _emit_all(connection: Any, work: Callable[..., None], args: tuple[Any, ...]) -> None:
    connection.send(None)  # ready
    work(connection.send, *args)
    connection.close()


# --- What the rows say.

CLOSED = 0.99
"""share of the gap that quality means"""


def seconds_to_quality(fit: Row, best: float) -> float | None:
    """Seconds until a validation has closed 99 % of the gap; None: the fit ended before."""
    wanted = best - (1.0 - CLOSED) * (best - fit["marginals"])
    return next((seconds for seconds, score in fit["curve"] if score >= wanted), None)


def summarise(rows: Sequence[Row]) -> list[Row]:
    """A row per shape and device: medians over warm fits, and the peers' seconds and errors."""
    summaries = []
    for shape, device in dict.fromkeys((r["shape"], r["device"]) for r in rows if "curve" in r):
        mine = [r for r in rows if (r["shape"], r["device"]) == (shape, device)]
        fits = [r for r in mine if r["task"].startswith("fit ")]
        long = next((r for r in mine if r["task"] == "long"), None)
        use = next((r for r in mine if r["task"] == "use"), None)
        if not fits or long is None:
            continue
        best = max(score for fit in (*fits, long) for _, score in fit["curve"])
        warm = [r for r in fits if not r["is_cold"]] if device != "cpu" else fits
        reached = [seconds_to_quality(fit, best) for fit in warm or fits]
        known = [seconds for seconds in reached if seconds is not None]
        closed = (max(s for _, s in fits[0]["curve"]) - fits[0]["marginals"]) / (
            best - fits[0]["marginals"]
        )
        summaries.append({
            "shape": shape, "device": device, "source": fits[0]["source"],
            "to_quality_s": median(known) if len(known) == len(reached) else None,
            "fit_s": median(r["fit_s"] for r in warm or fits),
            "cold_to_quality_s": seconds_to_quality(fits[0], best), "cold_fit_s": fits[0]["fit_s"],
            "closed_share": round(closed, 4), "marginals": fits[0]["marginals"], "best": best,
            "shares": fits[-1]["shares"], "peak_mb": fits[-1]["peak_mb"], "use": use,
            "peers": {
                r["task"].removeprefix("peer "): {
                    k: r.get(k) for k in ("seconds", "limit_s", "rmse", "accuracy")
                }
                for r in rows
                if r["shape"] == shape and r["task"].startswith("peer ")
            },
        })  # fmt: skip
    return summaries
