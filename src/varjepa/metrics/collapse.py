"""Whether embeddings have collapsed, and in which of three ways.

    scale      vectors shrink towards 0: information survives, predictors that expect a scale fail
    rank       vectors vary along few directions
    variance   vectors are nearly the same for every row: the constant part dominates

Trees depend neither on scale nor on a constant part. Where they do well and a linear model fails,
the information is there; where nothing varies, all predictors fail.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

SILENT = 1e-3
"""A feature is silent if its vectors vary less across rows than this share of their mean square."""


@dataclass(frozen=True, slots=True)
class CollapseDiagnosis:
    """What the embeddings of n rows look like."""

    scale: float
    """mean Euclidean norm of a feature's vector; √d if its entries are standard normal"""
    effective_rank: float
    """exp of the entropy of the covariance's normalised spectrum, all features' vectors side by
    side: between 1 and min(n − 1, D·d); 0 if nothing varies"""
    variance: NDArray[np.float64]  # (D,)
    """mean variance across rows of the entries of each feature's vector"""
    varying_share: float
    """share of the vectors' mean square that is variance across rows: 1 if they are centred; near 0
    a predictor that takes them as they are sees almost a constant"""
    silent_share: float
    """share of the features whose vector hardly depends on the row, relative to its own size;
    a column that is constant is silent, and rightly so"""


def diagnose_collapse(embedding: ArrayLike) -> CollapseDiagnosis:
    """Measure scale, rank and variance.

    The spectrum is that of a matrix as large as the smaller of n and D·d: give a sample of rows
    where both are beyond a few thousand.

    Shape: ``embedding (n, D, d)``, at least two rows.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> healthy = diagnose_collapse(rng.normal(size=(1000, 2, 3)))
        >>> round(healthy.effective_rank), healthy.silent_share
        (6, 0.0)
    """
    tokens = np.asarray(embedding, dtype=np.float64)
    if tokens.ndim != 3 or len(tokens) < 2:
        raise ValueError(f"expected (n, D, d) with at least two rows, not {tokens.shape}")
    variance = tokens.var(axis=0).mean(-1)  # (D,)
    square = np.square(tokens).mean((0, 2))  # (D,)
    return CollapseDiagnosis(
        scale=float(np.linalg.norm(tokens, axis=-1).mean()),
        effective_rank=effective_rank(tokens.reshape(len(tokens), -1)),
        variance=variance,
        varying_share=float(variance.sum() / square.sum()) if square.any() else 0.0,
        silent_share=float(np.mean(variance <= SILENT * square)),
    )


def effective_rank(vectors: ArrayLike) -> float:
    """e^H of the covariance's eigenvalues, normalised.  # (n, k) → between 1 and min(n − 1, k)

    It does not depend on scale; 0 where all vectors are equal, up to rounding.
    """
    values = np.asarray(vectors, dtype=np.float64)
    centred = values - values.mean(0)
    rounding = np.finfo(np.float64).eps * max(values.shape) * np.abs(values).max(initial=0.0)
    if np.abs(centred).max(initial=0.0) <= rounding:
        return 0.0
    centred /= np.abs(centred).max()  # squares of tiny numbers would vanish
    short = centred if values.shape[0] < values.shape[1] else centred.T
    spectrum = np.linalg.eigvalsh(short @ short.T).clip(0.0)
    share = spectrum / spectrum.sum()
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))
