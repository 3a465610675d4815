"""How many floating-point operations a training step is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from varjepa.bench.tasks import Task, random_task
from varjepa.masking import draw_mask_sizes
from varjepa.training.draws import Streams, draw_step
from varjepa.training.objectives import VarTJepaObjective
from varjepa.variational.elbo import ElboWeights

_CPU_ATTENTION = {  # which torch's counter does not know
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda grad, q, k, v, *_, **__: sdpa_backward_flop_count(grad, q, k, v)
    ),
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
