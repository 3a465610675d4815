"""Our training step and embedding pass beside Algorithm 1 as written, in one run.

Both see the same rows, masks and noise sizes, step in turn, and are judged by their medians. Peak
memory on a CPU is that of a fresh process each, since memory once asked for is seldom given back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from varjepa.bench.measures import (
    StepFunction,
    count_kernels,
    discard,
    gemm_rate,
    growth_mb,
    peak_mb,
    race,
)
from varjepa.bench.reference import ReferenceStep, draw_masks_plainly
from varjepa.bench.shapes import SHAPES, BenchShape
from varjepa.environment import describe_environment
from varjepa.errors import InputError
from varjepa.masking import MaskSettings, draw_mask_sizes
from varjepa.models.rows import Rows, split_rows, take_rows
from varjepa.models.var_t_jepa.embedding import embed_in_blocks
from varjepa.models.var_t_jepa.model import VarTJepa, draw_latent_noise
from varjepa.training.capture import make_stepper
from varjepa.training.draws import Streams, draw_step
from varjepa.training.objectives import VarTJepaObjective
from varjepa.training.settings import TrainingSettings
from varjepa.variational.elbo import ElboWeights, weighted_loss
from varjepa.variational.model import LatentNoise

EPOCH = 16
"""Steps of the epochs that our trainer is given."""

_CPU_ATTENTION = {  # which torch's counter does not know
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda grad, q, k, v, *_, **__: sdpa_backward_flop_count(grad, q, k, v)
    ),
}

MaskSizes = Literal["middle", "drawn"]
"""middle: (M_ctx, M_trg) in the middle of their ranges, (2, 4) for Adult; drawn: as in training"""

MASK_SIZES: tuple[MaskSizes, ...] = get_args(MaskSizes)

ReferencePrecision = Literal["tf32", "bfloat16"]
"""of Algorithm 1 on a GPU; a CPU computes in float32"""

REFERENCE_PRECISIONS: tuple[ReferencePrecision, ...] = get_args(ReferencePrecision)


@dataclass(frozen=True, slots=True)
class Task:
    """What both train on."""

    shape: BenchShape
    model: VarTJepa
    rows: Rows  # one batch
    masks: MaskSettings
    """shares and K; a range of one size where sizes are not to vary"""
    seed: int


Contender = Callable[[Task], AbstractContextManager[StepFunction]]
"""Gets ready to train the task's model and gives the step; its exit gives back what it holds."""


@contextmanager
def reference_step(
    task: Task, with_dropout: bool = False, precision: ReferencePrecision = "tf32"
) -> Iterator[StepFunction]:
    """Algorithm 1 as written."""
    model, rows, views = task.model, task.rows, task.masks.targets
    drop = (task.shape.dropout, task.shape.predictor_dropout) if with_dropout else (0.0, 0.0)
    reference = ReferenceStep(model, *drop)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator(rows.num.device).manual_seed(task.seed)
    choose = torch.Generator().manual_seed(task.seed)

    def step() -> None:
        sizes = draw_mask_sizes(model.shape.features, task.masks, choose)
        masks = draw_masks_plainly(len(rows), model.shape.features, sizes, views, generator)
        shared = draw_latent_noise(model, len(rows), sizes[0], generator)
        shape = (len(rows), views, *shared.s_y.shape[1:])
        s_y = torch.randn(shape, generator=generator, device=generator.device)
        optimiser.zero_grad()
        with computing_in(precision, rows.num.device):
            terms = reference(rows, masks, LatentNoise(shared.s_x, shared.z, s_y))
            loss = weighted_loss(terms, ElboWeights()).mean()
            loss.backward()
        optimiser.step()

    yield step


@contextmanager
def computing_in(precision: ReferencePrecision, device: torch.device) -> Iterator[None]:
    """Products in TF32 or, by autocast, in bfloat16 on a GPU; a CPU computes in float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast(
            device.type, torch.bfloat16, enabled=precision == "bfloat16" and device.type != "cpu"
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def trainer_step(task: Task) -> Iterator[StepFunction]:
    """Ours: what :func:`varjepa.training.trainer.train` does between two looks."""
    many = torch.arange(EPOCH * len(task.rows), device=task.rows.num.device) % len(task.rows)
    settings = TrainingSettings(
        epochs=1000,
        batch=len(task.rows),
        masks=task.masks,
        anneal_epochs=(0, 0, 0),
    )
    objective = VarTJepaObjective(task.model, ElboWeights())
    with make_stepper(objective, take_rows(task.rows, many), settings, task.seed) as stepper:
        stepper.begin_epoch()

        def step() -> None:
            if stepper.place == stepper.steps_per_epoch:
                stepper.begin_epoch()
            stepper.step()

        if stepper.device.type == "cuda":  # a training records its steps once
            for _ in range(EPOCH):
                step()
            torch.cuda.synchronize()
        yield step


def bench_steps(
    shapes: Sequence[str] = tuple(SHAPES),
    device: str = "cpu",
    repeats: int = 7,
    mask_sizes: MaskSizes = "middle",
    ours: Contender = trainer_step,
    with_dropout: bool = False,
    seed: int = 0,
    batch: int | None = None,
    reference_precision: ReferencePrecision = "tf32",
) -> list[dict[str, Any]]:
    """One row of figures per shape.

    ``with_dropout`` gives the reference the paper's dropout, which ours does not have; ``batch``
    replaces the paper's batch size.
    """
    for name in shapes:
        if name not in SHAPES:
            raise InputError(f"--shapes {name!r} is not one of {', '.join(SHAPES)}")
    return [
        _bench_shape(
            name, device, repeats, mask_sizes, ours, with_dropout, seed, batch, reference_precision
        )
        for name in shapes
    ]


def make_task(
    name: str,
    device: str = "cpu",
    mask_sizes: MaskSizes = "middle",
    seed: int = 0,
    batch: int | None = None,
) -> Task:
    """One of the paper's shapes, its masks of one size unless they are to be drawn."""
    shape = SHAPES[name]
    masks = shape.masks if mask_sizes == "drawn" else middle_masks(shape)
    return random_task(replace(shape, masks=masks, batch=batch or shape.batch), device, seed)


def random_task(shape: BenchShape, device: str = "cpu", seed: int = 0) -> Task:
    """A model with random weights and a batch of random, complete rows."""
    count = shape.batch
    generator = torch.Generator().manual_seed(seed)
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
    return Task(shape, model, rows, shape.masks, seed)


def _bench_shape(
    name: str,
    device: str,
    repeats: int,
    mask_sizes: MaskSizes,
    ours: Contender,
    with_dropout: bool,
    seed: int,
    batch: int | None,
    reference_precision: ReferencePrecision,
) -> dict[str, Any]:
    def task() -> Task:
        return make_task(name, device, mask_sizes, seed, batch)

    plain: Contender = partial(
        reference_step, with_dropout=with_dropout, precision=reference_precision
    )
    ready_s = _seconds_to_get_ready(ours(task()))
    arguments = (name, device, mask_sizes, seed, batch)
    peaks = [peak_mb(_step_growth, (kind, *arguments), device) for kind in (plain, ours)]
    kernels, reference_kernels = (count_kernels(kind(task()), device) for kind in (ours, plain))
    flops = sum(flops_by_operator(task()).values())
    o, rows = task().shape, len(task().rows)
    tokens = min(1 << 14, rows * (o.table.features + 6))
    rate = gemm_rate(tokens, o.model.d, o.model.ff, device)
    with ExitStack() as stack:
        steps = [stack.enter_context(kind(task())) for kind in (plain, ours)]
        reference_s, ours_s = race(steps, repeats, device)
    embed_rows_per_s, reference_embed_rows_per_s = _race_embeddings(task(), repeats, device)
    return {
        "shape": name,
        "device": device,
        "batch": rows,
        "mask_sizes": mask_sizes,
        "reference_dropout": with_dropout,
        "reference_precision": "float32" if device == "cpu" else reference_precision,
        "precision": "float32" if device == "cpu" else "bfloat16",
        "repeats": repeats,
        "ready_s": ready_s,
        "reference_ms": round(reference_s * 1e3, 2),
        "ours_ms": round(ours_s * 1e3, 2),
        "ratio": round(reference_s / ours_s, 2),
        "rows_per_s": round(rows / ours_s, 1),
        "peak_mb": peaks[1],
        "reference_peak_mb": peaks[0],
        "kernels": kernels,
        "reference_kernels": reference_kernels,
        "gflop": round(flops / 1e9, 2),
        "gemm_gflop_per_s": round(rate / 1e9, 1),
        "limit_ms": round(flops / rate * 1e3, 2),
        "share_of_limit": round(flops / rate / ours_s, 3),
        "embed_rows_per_s": round(embed_rows_per_s, 1),
        "reference_embed_rows_per_s": round(reference_embed_rows_per_s, 1),
        "embed_ratio": round(embed_rows_per_s / reference_embed_rows_per_s, 2),
        "environment": describe_environment(device),
    }


def flops_by_operator(task: Task) -> dict[Any, float]:
    """Floating-point operations of our step's products, as the mathematics has them.

    Counted on two rows on a CPU, where no kernel of our own hides them, and scaled to the batch.
    """
    rows = 2
    small = random_task(replace(task.shape, masks=task.masks, batch=rows))
    objective = VarTJepaObjective(small.model, ElboWeights())
    streams = Streams.of(task.seed, small.rows.num.device)
    sizes = draw_mask_sizes(small.model.shape.features, task.masks, streams.sizes)
    draw = draw_step(objective, rows, None, sizes, task.masks.targets, streams.numbers)
    with FlopCounterMode(display=False, custom_mapping=_CPU_ATTENTION) as counter:
        losses = objective.losses(small.rows, draw.masks, draw.noise, torch.ones(3))
        losses.descended.mean().backward()
    by_operator = counter.get_flop_counts()["Global"]
    return {name: count * len(task.rows) / rows for name, count in by_operator.items()}


def _race_embeddings(task: Task, repeats: int, device: str) -> tuple[float, float]:
    """Rows per second of both, on several batches' worth of rows."""
    wanted = (1 << 16 if device == "cpu" else 1 << 20) // task.model.shape.features
    batches = max(1, min(wanted, 1 << 16) // len(task.rows))
    many = torch.arange(batches * len(task.rows), device=task.rows.num.device)
    rows = take_rows(task.rows, many % len(task.rows))
    model = task.model.eval()
    plain = ReferenceStep(model).eval()  # which lets torch take its own fast path

    def embed_plainly() -> None:
        for part in split_rows(rows, len(task.rows)):
            discard(plain.embed(part))

    reference_s, ours_s = race(
        [embed_plainly, lambda: discard(embed_in_blocks(model, rows))], repeats, device
    )
    return len(rows) / ours_s, len(rows) / reference_s


def _seconds_to_get_ready(contender: AbstractContextManager[StepFunction]) -> float:
    """Compiling, recording and the first steps; less once kernels are in the disk's cache."""
    start = time.perf_counter()
    with contender:
        return round(time.perf_counter() - start, 1)


def _step_growth(
    contender: Contender,
    name: str,
    device: str,
    mask_sizes: MaskSizes,
    seed: int,
    batch: int | None,
) -> float:
    return growth_mb(contender(make_task(name, device, mask_sizes, seed, batch)), device)


def middle_masks(shape: BenchShape) -> MaskSettings:
    """Masks of one size each, in the middle of the shape's ranges."""
    features, masks = shape.table.features, shape.masks
    m_ctx, m_trg = (
        max(1, int(features * (low + high) / 2))
        for low, high in (masks.context_share, masks.target_share)
    )
    context, target = ((m + 0.5) / features for m in (m_ctx, min(m_trg, features - m_ctx)))
    return MaskSettings((context, context), (target, target), masks.targets)
