"""What changes over training: KL weights (Appendix D.3.2) and the learning rate.

The paper writes annealing in steps in its equation and in epochs in its table. Settings are in
epochs here and are converted once, when a schedule is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from varjepa.variational.elbo import ElboWeights


@dataclass(frozen=True, slots=True)
class AnnealedWeights:
    """α^KL(t) = min(t / T, 1) · α^KL_final, with a duration T per latent.

    t counts the current step, so that no step has a weight of exactly 0: an objective of KL terms
    alone has a gradient from the start.
    """

    final: ElboWeights
    """weights at the end"""
    steps_sx: float
    """T of s_x, in optimiser steps; 0: full weight from the start"""
    steps_z: float
    """T of z"""
    steps_sy: float
    """T of s_y"""

    def at(self, step: int) -> ElboWeights:
        """The weights after ``step`` = 0, 1, … finished steps."""
        return replace(
            self.final,
            kl_sx=_ramp(step, self.steps_sx) * self.final.kl_sx,
            kl_z=_ramp(step, self.steps_z) * self.final.kl_z,
            kl_sy=_ramp(step, self.steps_sy) * self.final.kl_sy,
        )


def warm_up_cosine(step: int, warm_up: float, total: int) -> float:
    """Factor on the learning rate: linear to 1 over the warm-up, then a half cosine to 0."""
    if step < warm_up:
        return (step + 1) / (warm_up + 1)
    done = (step - warm_up) / max(1.0, total - warm_up)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


def _ramp(step: int, duration: float) -> float:
    return 1.0 if duration <= 0 else min((step + 1) / duration, 1.0)
