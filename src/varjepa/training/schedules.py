"""What changes over training: KL weights (Appendix D.3.2) and the learning rate.

The paper writes annealing in steps in its equation and in epochs in its table. Settings are in
epochs here and are converted once, when a schedule is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from varjepa.variational.elbo import ElboTerms


@dataclass(frozen=True, slots=True)
class KlAnnealing:
    """α^KL(t) = min(t / T, 1) · α^KL_final, with a duration T per latent; this is the factor.

    t counts the current step, so that no step has a weight of exactly 0: an objective of KL terms
    alone has a gradient from the start.
    """

    steps_sx: float
    """T of s_x, in optimiser steps; 0: full weight from the start"""
    steps_z: float
    """T of z"""
    steps_sy: float
    """T of s_y"""

    def at(self, step: int) -> tuple[float, float, float]:
        """Factors of kl_sx, kl_z and kl_sy after ``step`` = 0, 1, … finished steps."""
        return _ramp(step, self.steps_sx), _ramp(step, self.steps_z), _ramp(step, self.steps_sy)


def annealed(terms: ElboTerms, factors: Tensor) -> ElboTerms:
    """The KL terms times their factors (3,); the likelihoods as they are."""
    sx, z, sy = factors
    return replace(terms, kl_sx=sx * terms.kl_sx, kl_z=z * terms.kl_z, kl_sy=sy * terms.kl_sy)


def warm_up_cosine(step: int, warm_up: float, total: int) -> float:
    """Factor on the learning rate: linear to 1 over the warm-up, then a half cosine to 0."""
    if step < warm_up:
        return (step + 1) / (warm_up + 1)
    done = (step - warm_up) / max(1.0, total - warm_up)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


def _ramp(step: int, duration: float) -> float:
    return 1.0 if duration <= 0 else min((step + 1) / duration, 1.0)
