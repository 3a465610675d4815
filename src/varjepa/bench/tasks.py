"""What is timed: a model with random weights, a batch of random rows, masks of a size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch

from varjepa.bench.shapes import SHAPES, BenchShape
from varjepa.masking import MaskSettings
from varjepa.models.rows import Rows
from varjepa.models.var_t_jepa.model import VarTJepa

MaskSizes = Literal["middle", "drawn"]
"""middle: (M_ctx, M_trg) in the middle of their ranges, (2, 4) for Adult; drawn: as in training"""

MASK_SIZES: tuple[MaskSizes, ...] = get_args(MaskSizes)


@dataclass(frozen=True, slots=True)
class Task:
    """What both train on."""

    shape: BenchShape
    model: VarTJepa
    rows: Rows  # one batch
    masks: MaskSettings
    """shares and K; a range of one size where sizes are not to vary"""
    seed: int


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


def middle_masks(shape: BenchShape) -> MaskSettings:
    """Masks of one size each, in the middle of the shape's ranges."""
    features, masks = shape.table.features, shape.masks
    m_ctx, m_trg = (
        max(1, int(features * (low + high) / 2))
        for low, high in (masks.context_share, masks.target_share)
    )
    context, target = ((m + 0.5) / features for m in (m_ctx, min(m_trg, features - m_ctx)))
    return MaskSettings((context, context), (target, target), masks.targets)
