"""MNIST with a known ambiguity (Appendix C.1.2).

u ~ U(0, 1)    r ~ U(0, 1)^784    α = clip(λ u, 0, 1)    x' = (1 − α) x + α r, x in [0, 1]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NOISE_SCALE = 0.75
"""λ"""


@dataclass(frozen=True, slots=True, eq=False)
class CorruptedImages:
    """Images that are the blurrier the larger their u."""

    pixels: NDArray[np.float32]  # (N, 784) in [0, 1]
    ambiguity: NDArray[np.float64]  # (N,) u


def corrupt_images(
    images: NDArray[np.uint8],  # (N, 784)
    u_seed: int,
    r_seed: int,
    noise_scale: float = NOISE_SCALE,
) -> CorruptedImages:
    """Draw u and r, and blend; everything of size N × 784 is float32."""
    # a stream each, so that the u of a row does not hang on how many pixels there are
    u = np.random.default_rng(u_seed).random(len(images))
    r = np.random.default_rng(r_seed).random(images.shape, dtype=np.float32)
    alpha = np.clip(noise_scale * u, 0, 1).astype(np.float32)[:, None]  # (N, 1)
    x = images.astype(np.float32) / np.float32(255)
    return CorruptedImages((1 - alpha) * x + alpha * r, u)
