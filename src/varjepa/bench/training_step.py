"""Our training step and embedding pass beside Algorithm 1 as written, in one run.

Both see the same rows, masks and noise sizes, step in turn, and are judged by their medians. Peak
memory on a CPU is that of a fresh process each, since memory once asked for is seldom given back.
"""

from __future__ import annotations

import copy
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from varjepa.bench.reference import ReferenceStep, draw_masks_plainly
from varjepa.bench.shapes import SHAPES, BenchShape
from varjepa.environment import describe_environment
from varjepa.errors import InputError
from varjepa.masking import FeatureMasks, draw_mask_sizes, draw_masks
from varjepa.models.var_t_jepa.embedding import embed_in_blocks, take_rows
from varjepa.models.var_t_jepa.model import Rows, VarTJepa, draw_latent_noise
from varjepa.networks.row_slices import RowThreads, slices_of
from varjepa.variational.elbo import ElboWeights, weighted_loss
from varjepa.variational.model import LatentNoise

StepFunction = Callable[[], None]
"""One training step, everything in it: masks, noise, forward, backward, optimiser."""

MaskSizes = Literal["middle", "drawn"]
"""middle: (M_ctx, M_trg) in the middle of their ranges, (2, 4) for Adult; drawn: as in training"""


@dataclass(frozen=True, slots=True)
class Task:
    """What both train on."""

    shape: BenchShape
    model: VarTJepa
    rows: Rows  # one batch
    sizes: tuple[tuple[int, int], ...]
    """mask sizes of the steps, one after the other and then again"""
    seed: int


Contender = Callable[[Task], AbstractContextManager[StepFunction]]
"""Gets ready to train the task's model and gives the step; its exit gives back what it holds."""


@contextmanager
def reference_step(task: Task, with_dropout: bool = False) -> Iterator[StepFunction]:
    """Algorithm 1 as written."""
    model, rows, views = task.model, task.rows, task.shape.masks.targets
    drop = (task.shape.dropout, task.shape.predictor_dropout) if with_dropout else (0.0, 0.0)
    reference = ReferenceStep(model, *drop)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator(rows.num.device).manual_seed(task.seed)
    steps = _cycle(task.sizes)

    def step() -> None:
        sizes = next(steps)
        masks = draw_masks_plainly(len(rows), model.shape.features, sizes, views, generator)
        shared = draw_latent_noise(model, len(rows), sizes[0], generator)
        shape = (len(rows), views, *shared.s_y.shape[1:])
        s_y = torch.randn(shape, generator=generator, device=generator.device)
        optimiser.zero_grad()
        terms = reference(rows, masks, LatentNoise(shared.s_x, shared.z, s_y))
        weighted_loss(terms, ElboWeights()).mean().backward()
        optimiser.step()

    yield step


@contextmanager
def sliced_step(task: Task) -> Iterator[StepFunction]:
    """Ours on a CPU: the target posterior once, and a core to every slice of rows."""
    model, rows, views = task.model, task.rows, task.shape.masks.targets
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator(rows.num.device).manual_seed(task.seed)
    steps, slices = _cycle(task.sizes), slices_of(len(rows), model.shape.features)

    with RowThreads() as threads:

        def step() -> None:
            sizes = next(steps)
            masks = draw_masks(len(rows), model.shape.features, None, sizes, views, generator)
            noise = draw_latent_noise(model, len(rows), sizes[0], generator)

            def loss_of(here: slice) -> tuple[torch.Tensor, None]:
                w, m = take_rows(rows, here), _masks_at(masks, here)
                n = LatentNoise(noise.s_x[here], noise.z[here], noise.s_y[here])
                terms = model.terms(w, m, model(w, m, n))
                return weighted_loss(terms, ElboWeights()).sum() / len(rows), None

            optimiser.zero_grad()
            threads.backward(loss_of, slices, model.parameters())
            optimiser.step()

        yield step


def bench_steps(
    shapes: Sequence[str] = tuple(SHAPES),
    device: str = "cpu",
    repeats: int = 7,
    mask_sizes: MaskSizes = "middle",
    ours: Contender = sliced_step,
    with_dropout: bool = False,
    seed: int = 0,
    batch: int | None = None,
) -> list[dict[str, Any]]:
    """One row of figures per shape.

    ``with_dropout`` gives the reference the paper's dropout, which ours does not have; ``batch``
    replaces the paper's batch size.
    """
    for name in shapes:
        if name not in SHAPES:
            raise InputError(f"--shapes {name!r} is not one of {', '.join(SHAPES)}")
    return [
        _bench_shape(name, device, repeats, mask_sizes, ours, with_dropout, seed, batch)
        for name in shapes
    ]


def make_task(
    name: str,
    device: str = "cpu",
    mask_sizes: MaskSizes = "middle",
    seed: int = 0,
    batch: int | None = None,
) -> Task:
    """A model with random weights and a batch of random, complete rows."""
    shape = SHAPES[name]
    generator = torch.Generator().manual_seed(seed)
    count = batch or shape.batch
    num = torch.rand(count, shape.table.numeric, generator=generator)
    levels = shape.table.levels
    cat = [torch.randint(1, n, (count,), generator=generator) for n in levels]
    rows = Rows(
        num.to(device),
        (torch.stack(cat, 1) if cat else torch.empty(count, 0, dtype=torch.long)).to(device),
        None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = VarTJepa(shape.table, shape.model).to(device)
    features = shape.table.features
    if mask_sizes == "drawn":
        sizes = tuple(draw_mask_sizes(features, shape.masks, generator) for _ in range(32))
    else:
        sizes = (_middle_sizes(features, shape),)
    return Task(shape, model, rows, sizes, seed)


def _bench_shape(
    name: str,
    device: str,
    repeats: int,
    mask_sizes: MaskSizes,
    ours: Contender,
    with_dropout: bool,
    seed: int,
    batch: int | None,
) -> dict[str, Any]:
    def task() -> Task:
        return make_task(name, device, mask_sizes, seed, batch)

    def reference(t: Task) -> AbstractContextManager[StepFunction]:
        return reference_step(t, with_dropout)

    arguments = (name, device, mask_sizes, seed, batch)
    peaks = [_peak_mb(kind, arguments) for kind in (reference_step, ours)]
    flops, kernels = _count(ours, task(), device)
    _, reference_kernels = _count(reference, task(), device)
    rate = _gemm_rate(task(), device)
    with ExitStack() as stack:
        steps = [stack.enter_context(kind(task())) for kind in (reference, ours)]
        reference_s, ours_s = _race(steps, repeats, device)
    embed_rows = task()
    plain = ReferenceStep(embed_rows.model.eval())
    reference_embed_s, embed_s = _race(
        [
            lambda: _discard(plain.embed(embed_rows.rows)),
            lambda: _discard(embed_in_blocks(embed_rows.model, embed_rows.rows)),
        ],
        repeats,
        device,
    )
    count = len(embed_rows.rows)
    return {
        "shape": name,
        "device": device,
        "batch": count,
        "mask_sizes": mask_sizes,
        "reference_dropout": with_dropout,
        "repeats": repeats,
        "reference_ms": round(reference_s * 1e3, 2),
        "ours_ms": round(ours_s * 1e3, 2),
        "ratio": round(reference_s / ours_s, 2),
        "rows_per_s": round(count / ours_s, 1),
        "peak_mb": peaks[1],
        "reference_peak_mb": peaks[0],
        "kernels": kernels,
        "reference_kernels": reference_kernels,
        "gflop": round(flops / 1e9, 2),
        "gemm_gflop_per_s": round(rate / 1e9, 1),
        "limit_ms": round(flops / rate * 1e3, 2),
        "share_of_limit": round(flops / rate / ours_s, 3),
        "embed_rows_per_s": round(count / embed_s, 1),
        "reference_embed_rows_per_s": round(count / reference_embed_s, 1),
        "embed_ratio": round(reference_embed_s / embed_s, 2),
        "environment": describe_environment(device),
    }


def _race(steps: Sequence[StepFunction], repeats: int, device: str) -> list[float]:
    """Median seconds of each, run in turn; the first round only warms up."""
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(1 + repeats):
        for step, taken in zip(steps, seconds, strict=True):
            _synchronise(device)
            start = time.perf_counter()
            step()
            _synchronise(device)
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken[1:]) for taken in seconds]


def _count(contender: Contender, task: Task, device: str) -> tuple[int, int]:
    """Floating-point operations of products, and kernels (on a CPU: operators), of one step."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # counters see this thread only
    try:
        with contender(copy.deepcopy(task)) as step:
            step()
            with FlopCounterMode(display=False) as counter:
                step()
            _synchronise(device)
            kinds = [ProfilerActivity.CPU if device == "cpu" else ProfilerActivity.CUDA]
            with profile(activities=kinds) as record:
                step()
                _synchronise(device)
    finally:
        torch.set_num_threads(before)
    events = record.events() or []
    if device == "cpu":
        kernels = sum(_is_operator(e) and not _is_operator(e.cpu_parent) for e in events)
    else:
        kernels = sum(e.device_type.name == "CUDA" for e in events)
    return counter.get_total_flops(), kernels


def _is_operator(event: Any) -> bool:
    return event is not None and event.name.startswith("aten::")


def _gemm_rate(task: Task, device: str) -> float:
    """FLOP/s of the step's typical product, tokens × feed-forward, at its best."""
    o = task.shape.model
    tokens = min(1 << 14, len(task.rows) * (task.model.shape.features + 6))
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    x, w = (torch.ones(n, o.d, device=device, dtype=dtype) for n in (tokens, o.ff))
    out = x.new_empty(tokens, o.ff)
    best = min(
        _race([lambda: _discard(torch.mm(x, w.T, out=out))], 1, device)[0] for _ in range(20)
    )
    return 2.0 * tokens * o.d * o.ff / best


def _peak_mb(contender: Contender, arguments: tuple[Any, ...]) -> float:
    """How far two steps raise the peak memory."""
    if arguments[1] != "cpu":
        return _measure_peak(contender, arguments, 0)
    # spawn: a fork would inherit this process's peak
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure_peak, (contender, arguments, torch.get_num_threads()))


def _measure_peak(contender: Contender, arguments: tuple[Any, ...], threads: int) -> float:
    if threads:
        torch.set_num_threads(threads)
    on_gpu = arguments[1] != "cpu"
    task = make_task(*arguments)
    with contender(task) as step:
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        before = 0.0 if on_gpu else _peak_resident_mb()
        step()
        step()
        after = torch.cuda.max_memory_allocated() / 2**20 if on_gpu else _peak_resident_mb()
    return round(after - before, 1)


def _peak_resident_mb() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    # systems without /proc count it in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _middle_sizes(features: int, shape: BenchShape) -> tuple[int, int]:
    ends = shape.masks.context_share, shape.masks.target_share
    m_ctx, m_trg = (max(1, int(features * (low + high) / 2)) for low, high in ends)
    return m_ctx, min(m_trg, features - m_ctx)


def _masks_at(masks: FeatureMasks, here: slice) -> FeatureMasks:
    return FeatureMasks(masks.context[here], None, masks.target[here], None)


def _cycle(sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    while True:
        yield from sizes


def _synchronise(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _discard(result: object) -> None:
    """Nobody looks at what a timed call returns."""
