"""How many seeds are worth training as one stack."""

from __future__ import annotations

from typing import Any

import torch

from varjepa.downstream.batches import EncodedRows
from varjepa.downstream.noise import DropoutNoise
from varjepa.downstream.training import SeedStack

CPU_BUDGET = 128 * 2**20
"""Bytes a stack may take on a CPU: one that outgrows the caches is no faster than a loop."""
GPU_SHARE = 0.5
"""Share of the free memory a stack may take on a GPU."""
COPIES = 5
"""Of the weights: themselves, gradients, two moments, the best so far."""


def seeds_at_once(one: SeedStack, rows: EncodedRows, index: torch.Tensor, batch: int) -> int:
    """From what a stack of one seed keeps for the backward pass of one row; at least 1.

    A seed's result does not depend on its neighbours, so this changes time and memory alone.
    """
    device = index.device
    budget = float(CPU_BUDGET)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        budget = GPU_SHARE * (free + cached)
    weights = sum(p.nbytes for p in one.parameters())
    return max(1, int(budget // (COPIES * weights + 2 * batch * kept_per_row(one, rows, index))))


def kept_per_row(one: SeedStack, rows: EncodedRows, index: torch.Tensor) -> int:
    """Bytes that autograd keeps of one row, weights not counted."""
    known = {p.untyped_storage().data_ptr() for p in [*one.parameters(), *one.buffers()]}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    batch = rows.take(index[None, :1])
    counter = DropoutNoise(None)
    one.eval()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        outputs = one(batch, counter)
    del outputs
    return sum(kept.values()) + 5 * counter.used  # a number and a mask bit for every dropout
