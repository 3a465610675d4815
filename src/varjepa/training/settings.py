"""Settings of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from varjepa.models.masking import MaskSettings

Precision = Literal["auto", "float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Appendix D.6.2's optimisation columns, and what the paper leaves open."""

    epochs: int = 40
    """most epochs to train"""
    max_steps: int | None = None
    """most optimiser steps; the epoch in which they are used up ends there"""
    batch: int = 512
    """rows per step; the last step of an epoch takes what is left"""
    learning_rate: float = 1e-3
    """AdamW's peak rate"""
    warm_up_epochs: float = 2
    """linear warm-up; then a cosine to 0"""
    weight_decay: float = 0.0
    """AdamW; never on vectors (biases, norms)"""
    anneal_epochs: tuple[float, float, float] = (5, 5, 5)
    """epochs over which the KL weights of s_x, z and s_y grow to their final value"""
    masks: MaskSettings = field(default_factory=MaskSettings)
    """context and target shares, K"""
    check_every: int = 2
    """C: epochs between two looks at the validation rows"""
    patience: int = 5
    """P: looks without improvement before training stops"""
    max_bad_steps: int = 20
    """steps in a row with a loss or gradient that is not finite before training gives up"""
    precision: Precision = "auto"
    """of the networks: bfloat16 on a GPU, float32 elsewhere; latents and losses are float32"""
    capture: bool = True
    """whether a GPU replays recorded steps"""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "check_every", "patience", "max_bad_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, not {self.max_steps}")
