"""Claims: images are corrupted as Appendix C.1.2 says.

1. x' = (1 − α) x + α r with α = .75 u: the noise in blank and in full pixels has the mean and the
   variance that this gives, row by row; u = 0 leaves an image as it is.
2. Pixels stay in [0, 1] in float32; u is uniform; α is clipped at 1.
3. The two seeds decide u and r separately.
"""

from __future__ import annotations

import numpy as np

from paper.datasets.loading import corrupt_images

BLANK = np.zeros((2_000, 784), dtype=np.uint8)
FULL = np.full((2_000, 784), 255, dtype=np.uint8)


def test_blend() -> None:
    blank, full = corrupt_images(BLANK, 1, 2), corrupt_images(FULL, 1, 2)
    assert blank.pixels.dtype == np.float32
    assert blank.pixels.min() >= 0
    assert full.pixels.max() <= 1
    alpha = 0.75 * blank.ambiguity
    # of 784 draws of U(0, 1): the mean is within 5 standard errors of 1/2, the variance near 1/12
    error = 5 / np.sqrt(12 * 784)
    np.testing.assert_array_less(np.abs(blank.pixels.mean(axis=1) - alpha / 2), alpha * error)
    np.testing.assert_allclose(blank.pixels.std(axis=1), alpha / np.sqrt(12), rtol=0.15)
    # the same u and r over another image: the images differ by (1 − α)
    apart = full.pixels - blank.pixels
    np.testing.assert_allclose(apart, np.broadcast_to((1 - alpha)[:, None], apart.shape), atol=1e-6)


def test_no_scale_no_noise_and_a_large_one_is_only_noise() -> None:
    images = np.arange(256, dtype=np.uint8)[None].repeat(3, axis=0)
    clean = corrupt_images(images, 1, 2, noise_scale=0.0)
    np.testing.assert_allclose(clean.pixels, images / 255, atol=1e-7)
    noise = np.random.default_rng(2).random(images.shape, dtype=np.float32)
    np.testing.assert_array_equal(corrupt_images(images, 1, 2, noise_scale=1e6).pixels, noise)


def test_u_is_uniform_and_seeds_are_separate() -> None:
    first, other_u, other_r = (corrupt_images(BLANK, *s) for s in ((1, 2), (3, 2), (1, 4)))
    steps = np.arange(1, 2_001) / 2_000
    assert np.abs(np.sort(first.ambiguity) - steps).max() < 0.045  # Kolmogorov–Smirnov, p ≈ .001
    np.testing.assert_array_equal(first.ambiguity, other_r.ambiguity)
    assert (first.pixels != other_r.pixels).mean() > 0.99
    # r is the pixel of a blank image over α
    r, same_r = (c.pixels[:, :9] / (0.75 * c.ambiguity[:, None]) for c in (first, other_u))
    np.testing.assert_allclose(r, same_r, rtol=1e-4)
    assert (first.ambiguity != other_u.ambiguity).all()
