"""The random numbers of a training step: mask sizes, masks and latent noise, drawn in one place.

They are drawn for the whole batch from generators that somebody passed in, so that a process which
holds only a slice of the batch can draw the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from varjepa.masking import FeatureMasks, MaskSettings, draw_mask_sizes, draw_masks
from varjepa.models.var_t_jepa.model import VarTJepa, draw_latent_noise
from varjepa.randomness import generator_for
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
    noise: LatentNoise


def draw_step(
    model: VarTJepa, rows: int, observed: Tensor | None, masks: MaskSettings, streams: Streams
) -> Draw:
    """Draw one step's masks and noise."""
    features = model.shape.features
    sizes = draw_mask_sizes(features, masks, streams.sizes)
    return Draw(
        masks=draw_masks(rows, features, observed, sizes, masks.targets, streams.numbers),
        noise=draw_latent_noise(model, rows, sizes[0], streams.numbers),
    )
