"""SIM, the paper's fully synthetic table: three clusters, some of whose rows lean to another one.

u ~ U(0, 1)    c, c' distinct classes    Δ = μ_c' − μ_c    m_j ~ Bernoulli(subset_share)
centre = μ_c + u^γ (blend + m · subset_blend) Δ
x = centre + spread ε + u^γ noise ε' on a few informative dimensions
c_k = quantile bin of one x_j, replaced by another level with probability flip_rate u^γ

The appendix gives the steps but no numbers; paper/LOG.md says where these come from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.errors import InputError


@dataclass(frozen=True, slots=True)
class SimSettings:
    """Sizes and γ are the paper's, separation and blend calibrated on raw features; all frozen."""

    rows: int = 10_000
    """rows of the table"""
    numeric: int = 28
    """numeric columns"""
    classes: int = 3
    """clusters, one per label"""
    gamma: float = 2.0
    """γ: u^γ is the ambiguity that acts, so that most rows stay easy"""
    separation: float = 7.0
    """distance between any two prototypes"""
    spread: float = 1.0
    """standard deviation of every cluster in every dimension"""
    blend: float = 0.275
    """share of the way to the other prototype that a row with u = 1 is moved, in all columns"""
    subset_share: float = 0.25
    """probability that a numeric column belongs to a row's random subset"""
    subset_blend: float = 0.3
    """share of the way that the subset is moved further at u = 1"""
    noisy: int = 6
    """how many dimensions, the most informative ones, get additional noise"""
    noise: float = 2.0
    """standard deviation of that noise at u = 1"""
    binned: int = 4
    """categorical columns, each binned from one of the next most informative dimensions"""
    levels: tuple[str, ...] = ("low", "mid", "high")
    """names of the quantile bins, from the lowest up"""
    flip_rate: float = 0.5
    """probability at u = 1 that a categorical value is replaced by another level"""

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise InputError("SimSettings.rows must be at least 1.")
        if not 2 <= self.classes <= self.numeric:
            raise InputError("SimSettings.classes must be at least 2 and at most numeric.")
        if min(self.noisy, self.binned) < 0 or self.noisy + self.binned > self.numeric:
            raise InputError("SimSettings.noisy and binned together must fit into numeric.")
        if len(set(self.levels)) != len(self.levels) or len(self.levels) < 2:
            raise InputError("SimSettings.levels must be at least two different names.")
        for name in ("subset_share", "flip_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"SimSettings.{name} is a probability, so it must be in [0, 1].")


@dataclass(frozen=True, slots=True, eq=False)
class SimTable:
    """What a model may see (numeric, categorical) with the truth behind it."""

    numeric: NDArray[np.float64]  # (N, numeric)
    categorical: NDArray[np.str_]  # (N, binned) level names
    label: NDArray[np.int64]  # (N,) c
    ambiguity: NDArray[np.float64]  # (N,) u
    alternative: NDArray[np.int64]  # (N,) c', never equal to c
    prototypes: NDArray[np.float64]  # (classes, numeric) μ
    centre: NDArray[np.float64]  # (N, numeric) the row without any noise
    flipped: NDArray[np.bool_]  # (N, binned) whether the level is not the bin's

    def columns(self) -> dict[str, NDArray[np.float64] | NDArray[np.str_]]:
        """The visible columns x0, x1, …, c0, c1, …; no label, no ambiguity."""
        named: dict[str, NDArray[np.float64] | NDArray[np.str_]] = {}
        named |= {f"x{j}": column for j, column in enumerate(self.numeric.T)}
        named |= {f"c{k}": column for k, column in enumerate(self.categorical.T)}
        return named

    def to_arrow(self) -> pa.Table:
        """The visible columns as an Arrow table of doubles and strings."""
        return pa.table({name: pa.array(column) for name, column in self.columns().items()})


def draw_sim(settings: SimSettings | None = None, seed: int = 0) -> SimTable:
    """Draw the table; the defaults are the frozen one.

    >>> draw_sim(SimSettings(rows=5)).to_arrow().shape
    (5, 32)
    """
    o = settings or SimSettings()
    # a stream per purpose: changing one part of the table leaves the randomness of the others
    for_prototypes, for_truth, for_noise, for_levels = (
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(4)
    )
    prototypes = _draw_prototypes(o, for_prototypes)  # (classes, numeric)
    informative = np.argsort(-prototypes.var(axis=0), kind="stable")  # (numeric,) most first
    noisy, binned = informative[: o.noisy], informative[o.noisy : o.noisy + o.binned]

    label = for_truth.integers(o.classes, size=o.rows)
    alternative = (label + for_truth.integers(1, o.classes, size=o.rows)) % o.classes
    ambiguity = for_truth.random(o.rows)
    in_subset = for_truth.random((o.rows, o.numeric)) < o.subset_share
    u_amb = (ambiguity**o.gamma)[:, None]  # (N, 1)

    # the centre is shifted, not x: (1 − α)x + αμ' would shrink the noise as well, and the most
    # ambiguous rows would look the calmest
    step = u_amb * (o.blend + o.subset_blend * in_subset)  # (N, numeric)
    centre = prototypes[label] + step * (prototypes[alternative] - prototypes[label])
    numeric = centre + o.spread * for_noise.standard_normal(centre.shape)
    numeric[:, noisy] += u_amb * o.noise * for_noise.standard_normal((o.rows, o.noisy))

    # the binned dimensions are not the noisy ones, so that a flip is all that parts a categorical
    # value from its numeric column
    bins = _quantile_bins(numeric[:, binned], len(o.levels))
    flipped = for_levels.random(bins.shape) < o.flip_rate * u_amb
    other = (bins + for_levels.integers(1, len(o.levels), size=bins.shape)) % len(o.levels)
    categorical = np.array(o.levels)[np.where(flipped, other, bins)]
    return SimTable(
        numeric, categorical, label, ambiguity, alternative, prototypes, centre, flipped
    )


def _draw_prototypes(o: SimSettings, rng: np.random.Generator) -> NDArray[np.float64]:
    """Random orthogonal directions: no pair of classes is closer than another, in any seed."""
    q, r = np.linalg.qr(rng.standard_normal((o.numeric, o.classes)))
    # LAPACKs differ in the signs; those of r make the answer unique
    return o.separation / np.sqrt(2) * (q * np.sign(np.diag(r))).T


def _quantile_bins(columns: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """The index of each value's bin, equally many values in each bin of a column."""
    # by ranks: a quantile can fall on a value, whose side then hangs on a last bit
    ranks = columns.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    return ranks * bins // len(columns)
