"""Which steps not to take: a loss or gradient that is not finite, or out of all proportion.

Adam squares gradients and remembers them for thousands of steps. One batch of absurd values with a
gradient of 10¹¹ would leave every later step too small to learn anything, without a single NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

OUT_OF_PROPORTION = 1000.0
"""A gradient is refused if its norm is this many times the usual one. Trainings on heavy-tailed
tables stayed below 25."""

LARGEST = 1e15
"""No norm above this is usual: its square is far from overflowing in Adam's second moment."""

FIRST = 1000.0
"""Taken as usual before the first step; far more than any first norm seen, 1 to 200."""


class StepGuard:
    """Knows the usual norm of a gradient; everything stays on the device, for recordings."""

    def __init__(self, device: torch.device) -> None:
        self.usual = torch.full((), FIRST, device=device)

    def refuses(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Whether not to take a step; every large gradient refused doubles what is usual.

        So a training whose gradients have grown for good goes on after a few steps.
        """
        finite = (loss + norm).isfinite()
        large = norm > (OUT_OF_PROPORTION * self.usual).clamp_max(LARGEST)
        raised = torch.where(finite, 2.0 * self.usual, self.usual)
        bad = ~finite | large
        self.usual.copy_(torch.where(bad, raised, self.usual.lerp(norm, 0.1)).clamp_max(LARGEST))
        return bad
