"""The random numbers of a training step: mask sizes, masks and latent noise, drawn in one place.

They are drawn for the whole batch from generators that somebody passed in, so that a process which
holds only a slice of the batch can draw the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from varjepa.masking import FeatureMasks, draw_masks
from varjepa.randomness import generator_for
from varjepa.training.objectives import Objective
from varjepa.variational.model import LatentNoise


@dataclass(frozen=True, slots=True)
class Streams:
    """Generators of one training. Sizes decide shapes, so they are drawn on the CPU."""

    order: torch.Generator
    sizes: torch.Generator
    numbers: torch.Generator

    @classmethod
    def of(cls, seed: int, device: torch.device) -> Streams:
        """Independent streams of one seed; masks and noise are drawn where they are used."""
        numbers = torch.Generator(device)
        numbers.manual_seed(generator_for(seed, "masks and noise").initial_seed())
        return cls(generator_for(seed, "row order"), generator_for(seed, "mask sizes"), numbers)


@dataclass(frozen=True, slots=True)
class Draw:
    """Everything random about one step."""

    masks: FeatureMasks
    noise: LatentNoise | None

    def rows(self, here: slice) -> Draw:
        """What belongs to some of the batch's rows."""
        return Draw(
            FeatureMasks(*(_part(getattr(self.masks, f.name), here) for f in fields(FeatureMasks))),
            None
            if self.noise is None
            else LatentNoise(*(getattr(self.noise, f.name)[here] for f in fields(LatentNoise))),
        )


def draw_step(
    objective: Objective,
    rows: int,
    observed: Tensor | None,
    sizes: tuple[int, int] | tuple[Tensor, Tensor],
    targets: int,
    numbers: torch.Generator,
    room: tuple[int, int] | None = None,
) -> Draw:
    """Draw one step's masks and noise; for ``room`` see :func:`draw_masks`."""
    masks = draw_masks(rows, objective.shape.features, observed, sizes, targets, numbers, room)
    return Draw(masks, objective.draw_noise(rows, masks.context.shape[1], numbers))


def _part(index: Tensor | None, here: slice) -> Any:
    return None if index is None else index[here]
