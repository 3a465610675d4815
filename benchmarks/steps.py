"""Training steps and embedding on the seven shapes of Section 4.2 (Appendix D.6.2's table).

Feature counts are the paper's (numeric/categorical). Levels count MISSING too; Adult's are those of
its eight categorical columns, SIM's bins are ours since the paper does not number them. The imputer
is left out: Algorithm 1 has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from benchmarks.measures import (
    StepFunction,
    count_kernels,
    discard,
    gemm_rate,
    growth_mb,
    peak_mb,
    race,
)
from benchmarks.reference import ReferenceStep, draw_masks_plainly
from paper.predictors.training import tf32_products
from paper.settings import PAPER, first_version
from varjepa.environment import describe_environment
from varjepa.errors import InputError
from varjepa.models.inference import embed_in_blocks
from varjepa.models.masking import draw_mask_sizes
from varjepa.models.var_t_jepa import VarTJepa, draw_latent_noise
from varjepa.nn.layers import TableShape
from varjepa.settings import Architecture, MaskSettings, Objective, Training
from varjepa.tables.codec import EncodedTable
from varjepa.training.losses import VarTJepaLoss
from varjepa.training.step import Streams, draw_step, make_stepper
from varjepa.variational.elbo import ElboWeights, weighted_loss
from varjepa.variational.model import LatentNoise


@dataclass(frozen=True, slots=True)
class BenchShape:
    """One dataset's tensors and networks; rows themselves are random."""

    table: TableShape
    """features and levels"""
    model: Architecture
    """widths, depths and heads"""
    masks: MaskSettings
    """shares and K"""
    batch: int = 512
    """rows of a step"""


TABLES = {
    "adult": ("adult", TableShape(6, (9, 17, 8, 15, 7, 6, 3, 42))),
    "covertype": ("covertype", TableShape(54)),
    "electricity": ("electricity", TableShape(8)),
    "credit": ("credit_default", TableShape(23)),
    "bank": ("bank_marketing", TableShape(16)),
    "mnist": ("mnist", TableShape(784)),
    "sim": ("sim", TableShape(28, (4, 4, 4, 4))),
}


def _shape(dataset: str, table: TableShape) -> BenchShape:
    """A row of the paper's table of hyperparameters."""
    o = PAPER[dataset]
    sizes = ("d", "depth", "heads", "ff", "predictor_width", "predictor_heads", "predictor_ff")
    networks = {name: getattr(o, name) for name in sizes}
    model = first_version(Architecture, imputer_depth=0, **networks)
    masks = MaskSettings(o.context_share, o.target_share, o.targets)
    return BenchShape(table, model, masks, o.batch)


SHAPES: dict[str, BenchShape] = {name: _shape(*of) for name, of in TABLES.items()}


# --- The workload: a model with random weights, a batch of random rows, masks.

MaskSizes = Literal["middle", "drawn"]
"""middle: (M_ctx, M_trg) in the middle of their ranges, (2, 4) for Adult; drawn: as in training"""

MASK_SIZES: tuple[MaskSizes, ...] = get_args(MaskSizes)


@dataclass(frozen=True, slots=True)
class Workload:
    shape: BenchShape
    model: VarTJepa
    rows: EncodedTable  # one batch
    masks: MaskSettings
    """shares and K; a range of one size where sizes are not to vary"""
    seed: int


def make_workload(
    name: str,
    device: str = "cpu",
    mask_sizes: MaskSizes = "middle",
    seed: int = 0,
    batch: int | None = None,
) -> Workload:
    """One of the paper's shapes, its masks of one size unless they are to be drawn."""
    shape = SHAPES[name]
    masks = shape.masks if mask_sizes == "drawn" else middle_masks(shape)
    return random_workload(replace(shape, masks=masks, batch=batch or shape.batch), device, seed)


def random_workload(shape: BenchShape, device: str = "cpu", seed: int = 0) -> Workload:
    """A model with random weights and a batch of random, complete rows."""
    count = shape.batch
    generator = torch.Generator().manual_seed(seed)
    num = torch.rand(count, shape.table.numeric, generator=generator)
    levels = shape.table.levels
    cat = [torch.randint(1, n, (count,), generator=generator) for n in levels]
    codes = torch.stack(cat, 1) if cat else torch.empty(count, 0, dtype=torch.long)
    rows = EncodedTable(num.to(device), codes.to(device), None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = VarTJepa(shape.table, shape.model).to(device)
    return Workload(shape, model, rows, shape.masks, seed)


def plain_objective(masks: MaskSettings) -> Objective:
    """All five terms with weight 1, as Algorithm 1 has them."""
    weights = {f"alpha_{name}": 1.0 for name in ("rec", "gen", "kl_sx", "kl_z", "kl_sy")}
    return first_version(
        Objective,
        context_share=masks.context_share,
        target_share=masks.target_share,
        targets=masks.targets,
        **weights,
    )


def middle_masks(shape: BenchShape) -> MaskSettings:
    """Masks of one size each, in the middle of the shape's ranges."""
    features, masks = shape.table.features, shape.masks
    assert masks.target_share != "rest"
    m_ctx, m_trg = (
        max(1, int(features * (low + high) / 2))
        for low, high in (masks.context_share, masks.target_share)
    )
    context, target = ((m + 0.5) / features for m in (m_ctx, min(m_trg, features - m_ctx)))
    return MaskSettings((context, context), (target, target), masks.targets)


# --- Floating-point operations of a training step.

_CPU_ATTENTION = {  # which torch's counter does not know
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda grad, q, k, v, *_, **__: sdpa_backward_flop_count(grad, q, k, v)
    ),
}


def flops_by_operator(workload: Workload) -> dict[Any, float]:
    """Floating-point operations of our step's products, as the mathematics has them.

    Counted on two rows on a CPU, where no kernel of our own hides them, and scaled to the batch.
    """
    rows = 2
    small = random_workload(replace(workload.shape, masks=workload.masks, batch=rows))
    objective = VarTJepaLoss(small.model, plain_objective(small.masks))
    streams = Streams.of(workload.seed, small.rows.num.device)
    sizes = draw_mask_sizes(small.model.shape.features, workload.masks, streams.sizes)
    draw = draw_step(objective, rows, None, sizes, workload.masks.targets, streams.numbers)
    with FlopCounterMode(display=False, custom_mapping=_CPU_ATTENTION) as counter:
        losses = objective.losses(small.rows, draw, torch.ones(3))
        losses.descended.mean().backward()
    by_operator = counter.get_flop_counts()["Global"]
    return {name: count * len(workload.rows) / rows for name, count in by_operator.items()}


# --- Our step and the reference's in one run. Both see the same rows, masks and noise sizes and
# step in turn; medians are compared. Peak memory on a CPU is that of a fresh process each,
# because memory is seldom given back.

EPOCH = 16
"""Steps of an epoch in our trainer."""

Contender = Callable[[Workload], AbstractContextManager[StepFunction]]
"""Prepares to train the workload's model and yields the step; its exit frees what it holds."""


@contextmanager
def reference_step(workload: Workload) -> Iterator[StepFunction]:
    """Algorithm 1 as written, without dropout, which ours lacks; on a GPU in TF32."""
    model, rows, views = workload.model, workload.rows, workload.masks.targets
    reference = ReferenceStep(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator(rows.num.device).manual_seed(workload.seed)
    choose = torch.Generator().manual_seed(workload.seed)

    def step() -> None:
        sizes = draw_mask_sizes(model.shape.features, workload.masks, choose)
        masks = draw_masks_plainly(len(rows), model.shape.features, sizes, views, generator)
        shared = draw_latent_noise(model, len(rows), sizes[0], generator)
        of_views = (len(rows), views, *shared.s_y.shape[1:])
        s_y = torch.randn(of_views, generator=generator, device=generator.device)
        optimiser.zero_grad()
        with tf32_products(rows.num.device):
            terms = reference(rows, masks, LatentNoise(shared.s_x, shared.z, s_y))
            loss = weighted_loss(terms, ElboWeights()).mean()
            loss.backward()
        optimiser.step()

    yield step


@contextmanager
def trainer_step(workload: Workload) -> Iterator[StepFunction]:
    """Ours: what :func:`varjepa.training.loop.train` does between two validations."""
    batch = len(workload.rows)
    many = torch.arange(EPOCH * batch, device=workload.rows.num.device) % batch
    settings = first_version(Training, epochs=1000, batch_size=batch, anneal_share=(0, 0, 0))
    objective = VarTJepaLoss(workload.model, plain_objective(workload.masks))
    with make_stepper(objective, workload.rows.take(many), settings, workload.seed) as stepper:
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
    name: str,
    device: str = "cpu",
    repeats: int = 7,
    mask_sizes: MaskSizes = "middle",
    batch: int | None = None,
) -> dict[str, Any]:
    """The figures of one shape; ``batch`` replaces the paper's batch size."""
    if name not in SHAPES:
        raise InputError(f"--shapes {name!r} is not one of {', '.join(SHAPES)}")
    arguments = (name, device, mask_sizes, 0, batch)
    workload = partial(make_workload, *arguments)
    plain: Contender = reference_step
    ours: Contender = trainer_step
    ready_s = _seconds_to_get_ready(ours(workload()))
    peaks = [peak_mb(_step_growth, (kind, *arguments), device) for kind in (plain, ours)]
    kernels, reference_kernels = (count_kernels(kind(workload()), device) for kind in (ours, plain))
    flops = sum(flops_by_operator(workload()).values())
    o, rows = workload().shape, len(workload().rows)
    tokens = min(1 << 14, rows * (o.table.features + 6))
    rate = gemm_rate(tokens, o.model.d, o.model.ff, device)
    with ExitStack() as stack:
        steps = [stack.enter_context(kind(workload())) for kind in (plain, ours)]
        reference_s, ours_s = race(steps, repeats, device)
    embed_rows_per_s, reference_embed_rows_per_s = _race_embeddings(workload(), repeats, device)
    return {
        "shape": name,
        "device": device,
        "batch": rows,
        "mask_sizes": mask_sizes,
        "reference_precision": "float32" if device == "cpu" else "tf32",
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


def _race_embeddings(workload: Workload, repeats: int, device: str) -> tuple[float, float]:
    """Rows per second of both, on several batches' worth of rows."""
    wanted = (1 << 16 if device == "cpu" else 1 << 20) // workload.model.shape.features
    batches = max(1, min(wanted, 1 << 16) // len(workload.rows))
    many = torch.arange(batches * len(workload.rows), device=workload.rows.num.device)
    rows = workload.rows.take(many % len(workload.rows))
    model = workload.model.eval()
    plain = ReferenceStep(model).eval()  # which lets torch take its own fast path

    def embed_plainly() -> None:
        for part in rows.split(len(workload.rows)):
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


def _step_growth(contender: Contender, name: str, device: str, *others: Any) -> float:
    return growth_mb(contender(make_workload(name, device, *others)), device)
