"""A small classifier on frozen representations, R of them at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from varjepa.networks.stacked import StackedMLP, take_rows


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """The simulation study's probe (Appendix D.6.5)."""

    epochs: int = 50
    """passes over the training rows"""
    batch: int = 512
    """rows per step"""
    learning_rate: float = 3e-3
    """AdamW"""
    weight_decay: float = 1e-4
    """AdamW"""
    hidden: int = 64
    """width of one hidden ReLU layer; 0 makes the probe linear"""


def fit_probe(
    features: Tensor,
    labels: Tensor,
    classes: int,
    settings: ProbeSettings,
    generators: Sequence[torch.Generator],
) -> StackedMLP:
    """Fit one probe per run.

    Shape: ``features (R, N, d)``, ``labels (R, N)``; the probe maps ``(R, B, d)`` to logits
    ``(R, B, classes)``.
    """
    probe = StackedMLP(
        generators,
        inputs=features.shape[-1],
        outputs=classes,
        hidden=settings.hidden,
        hidden_layers=1 if settings.hidden else 0,
        activation="relu",
    ).to(features.device, features.dtype)
    optimiser = torch.optim.AdamW(
        probe.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    rows = features.shape[1]
    for _ in range(settings.epochs):
        order = torch.stack([torch.randperm(rows, generator=g) for g in generators])
        order = order.to(features.device)
        for step in range(math.ceil(rows / settings.batch)):
            here = order[:, step * settings.batch : (step + 1) * settings.batch]
            logits = probe(take_rows(features, here))  # (R, B, classes)
            losses = nn.functional.cross_entropy(
                logits.transpose(1, 2), take_rows(labels, here), reduction="none"
            )
            optimiser.zero_grad()
            losses.mean(-1).sum().backward()  # a sum over runs: runs do not share a gradient
            optimiser.step()
    return probe


@torch.no_grad()
def probe_accuracy(probe: StackedMLP, features: Tensor, labels: Tensor) -> Tensor:
    """Share of rows whose most likely class is right, per run.  # (R,)"""
    return (probe(features).argmax(-1) == labels).to(features.device, features.dtype).mean(-1)
