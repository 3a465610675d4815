"""Our training step and embedding pass beside Algorithm 1 as written, in one run.

Both see the same rows, masks and noise sizes, step in turn, and are judged by their medians. Peak
memory on a CPU is that of a fresh process each, since memory once asked for is seldom given back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, get_args

import torch

from varjepa.bench.arithmetic import flops_by_operator
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
from varjepa.bench.shapes import SHAPES
from varjepa.bench.tasks import MaskSizes, Task, make_task
from varjepa.environment import describe_environment
from varjepa.errors import InputError
from varjepa.masking import draw_mask_sizes
from varjepa.models.rows import split_rows, take_rows
from varjepa.models.var_t_jepa.embedding import embed_in_blocks
from varjepa.models.var_t_jepa.model import draw_latent_noise
from varjepa.networks.products import tf32_products
from varjepa.training.capture import make_stepper
from varjepa.training.objectives import VarTJepaObjective
from varjepa.training.settings import TrainingSettings
from varjepa.variational.elbo import ElboWeights, weighted_loss
from varjepa.variational.model import LatentNoise

EPOCH = 16
"""Steps of the epochs that our trainer is given."""

ReferencePrecision = Literal["tf32", "bfloat16"]
"""of Algorithm 1 on a GPU; a CPU computes in float32"""

REFERENCE_PRECISIONS: tuple[ReferencePrecision, ...] = get_args(ReferencePrecision)


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
    reduced = precision == "bfloat16" and device.type != "cpu"
    with tf32_products(device), torch.autocast(device.type, torch.bfloat16, enabled=reduced):
        yield


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
