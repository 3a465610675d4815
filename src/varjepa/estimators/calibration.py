"""What a fit learns from its trained networks, of training and validation rows.

Intervals, clusters of embeddings, the scale of what makes a row doubtful, rows to compare with.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from varjepa.errors import InputError
from varjepa.models.inference import (
    Aggregate,
    FeatureScores,
    LatentKind,
    Question,
    most_likely_cells,
    predict_latents,
)
from varjepa.models.masking import masks_from_cells
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.tables.codec import EncodedTable
from varjepa.tables.codec_json import StrictObject, integer, list_of, number, share
from varjepa.variational.gaussian import DiagonalGaussian

Array = NDArray[np.float64]

# --- intervals, calibrated on held-out values (split conformal prediction)

COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Coverages that levels are calibrated for; others are interpolated."""

PRIOR_VALUES = 30
"""A column's level is averaged with that of all columns as if those had so many values."""

CAUTION = 0.015
"""How much more than the coverage a level below it may cover: see :func:`calibrate_levels`."""


def calibrate_levels(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """For every column and coverage, the level whose intervals cover that share of new values.

    ``scores`` are the smallest levels whose intervals hold the values, NaN for no value. A level is
    the (1 + 1/n) · coverage quantile of n scores. Where that is below the coverage itself, the
    model's own intervals are wide enough, and they are narrowed a little less: a column of few
    different values would else lose the rarer ones everywhere.

    Columns with few values lean on all columns together, and those on the level that a perfect
    model would have: the coverage itself.

    Shape: ``scores (N, F)`` → ``(F, len(COVERAGES))``.

    Examples:
        >>> uniform = (np.arange(1000).reshape(-1, 1) + 0.5) / 1000
        >>> calibrate_levels(uniform).round(2).tolist()
        [[0.5, 0.8, 0.9, 0.95, 0.99]]
    """
    nominal = np.array(COVERAGES)
    columns = [column[~np.isnan(column)] for column in scores.T]
    together = _leaning(np.concatenate([*columns, np.empty(0)]), nominal)
    return np.array([_leaning(column, together) for column in columns]).reshape(-1, len(nominal))


def level_for(levels: NDArray[np.float64], coverage: float) -> NDArray[np.float64]:
    """Each column's level for any coverage.  # (F, len(COVERAGES)) → (F,)"""
    at = (0.0, *COVERAGES, 1.0)
    return np.array([np.interp(coverage, at, (0.0, *one, 1.0)) for one in levels])


def _leaning(scores: NDArray[np.float64], prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles of n scores, averaged with a prior that counts as much as a few scores."""
    n = len(scores)
    if not n:
        return prior
    nominal = np.array(COVERAGES)
    least, most = (
        np.quantile(scores, np.minimum(1.0, (1.0 + 1.0 / n) * share), method="inverted_cdf")
        for share in (nominal, nominal + CAUTION)
    )
    levels = np.maximum(least, np.minimum(most, nominal))
    return (n * levels + PRIOR_VALUES * prior) / (n + PRIOR_VALUES)


def levels_from_json(features: int) -> Any:
    """A check of calibrated levels that are read from a file: ascending shares of each feature."""

    def check(value: Any, where: str) -> NDArray[np.float64]:
        rows = list_of(list_of(share))(value, where)
        if len(rows) != features or any(len(one) != len(COVERAGES) for one in rows):
            raise InputError(f"{where} must have {len(COVERAGES)} levels for each number")
        levels = _array(rows, (features, len(COVERAGES)), where)
        if (np.diff(levels, axis=1) < 0.0).any():
            raise InputError(f"{where} must have ascending levels")
        return levels

    return check


# --- clusters of the embeddings: Gaussian mixtures in their principal components. They say whether
# a row lies inside a cluster or between several. Several mixtures, from coarse to fine, because no
# number of clusters is the right one.

COUNTS = (5, 8, 12, 20)
"""Clusters of each mixture; fewer where there are few rows."""

ROWS_PER_CLUSTER = 20
"""Fewer rows than this for every cluster, and a mixture is left out."""

COMPONENTS = 12
"""Principal components that clusters are looked for in."""

_DIGITS = 7
"""Significant digits of every number: a model folder holds thousands of them as text."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Σ_k weight_k N(mean_k, (L_k L_kᵀ)⁻¹), with L_k triangular."""

    log_weight: Array  # (K,)
    mean: Array  # (K, P)
    precision: Array  # (K, P, P): L_k

    def memberships(self, points: Tensor) -> Tensor:
        """Probability of every cluster.  # (B, P) → (B, K)"""
        log_weight, mean, precision = (
            torch.as_tensor(part, device=points.device)
            for part in (self.log_weight, self.mean, self.precision)
        )
        off = torch.einsum("bkp,kpq->bkq", points.unsqueeze(1) - mean, precision)
        scale = precision.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return (log_weight + scale - 0.5 * off.square().sum(-1)).softmax(-1)


@dataclass(frozen=True, slots=True)
class Clusters:
    """Mixtures over a linear map of the mean embedding."""

    centre: Array  # (d,)
    components: Array  # (d, P)
    mixtures: tuple[Mixture, ...]

    def score(self, posterior: DiagonalGaussian) -> FeatureScores:
        """One score a row, of its posterior means."""
        values = self.ambiguity(posterior.mean)[:, None, None]
        return FeatureScores(values, torch.ones_like(values[..., 0], dtype=torch.bool), 0)

    def ambiguity(self, tokens: Tensor) -> Tensor:
        """Entropy of the memberships of each row, 0 to 1, the mean over mixtures.

        Shape: ``tokens (B, D, d)`` → ``(B,)``; 0 where there were too few rows for any mixture.
        """
        points = tokens.mean(1).double() - torch.as_tensor(self.centre, device=tokens.device)
        points = points @ torch.as_tensor(self.components, device=tokens.device)
        total = points.new_zeros(len(points))
        for mixture in self.mixtures:
            p = mixture.memberships(points)
            total = total - torch.xlogy(p, p).sum(-1) / np.log(p.shape[1])
        return (total / max(1, len(self.mixtures))).float()


def fit_clusters(tokens: NDArray[np.float32], seed: int) -> Clusters:
    """Learn them from embeddings of training rows.  # (n, d), means over a row's features"""
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    centre, spread = tokens.mean(0, dtype=np.float64), tokens.std(0, dtype=np.float64)
    scale = np.where(spread > 1e-6, 1.0 / np.maximum(spread, 1e-6), 0.0)
    standard = (tokens - centre) * scale
    _, _, directions = np.linalg.svd(standard, full_matrices=False)
    components = _short(scale[:, None] * directions[:COMPONENTS].T)  # (d, P)
    centre = _short(centre)
    points = (tokens.astype(np.float64) - centre) @ components
    mixtures = []
    for count in (count for count in COUNTS if count * ROWS_PER_CLUSTER <= len(points)):
        mixture = GaussianMixture(count, reg_covar=1e-3, max_iter=60, random_state=seed)
        # one thread: BLAS would wait for the others thousands of times, for tiny matrices
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # 60 steps are enough, and rows may be all alike
            mixture.fit(points)
        log_weight = np.log(np.maximum(mixture.weights_, 1e-12))
        parts = (log_weight, mixture.means_, mixture.precisions_cholesky_)
        mixtures.append(Mixture(*map(_short, parts)))
    return Clusters(centre, components, tuple(mixtures))


def _short(values: NDArray[np.floating[Any]], digits: int = _DIGITS) -> Array:
    short = [float(f"{value:.{digits}g}") for value in values.ravel()]
    return np.array(short, dtype=np.float64).reshape(values.shape)


def clusters_to_json(clusters: Clusters) -> dict[str, Any]:
    """Plain JSON values; floats survive exactly."""
    return {
        "centre": clusters.centre.tolist(),
        "components": clusters.components.tolist(),
        "mixtures": [
            {name: getattr(one, name).tolist() for name in Mixture.__dataclass_fields__}
            for one in clusters.mixtures
        ],
    }


def clusters_from_json(width: int) -> Any:
    """A check of clusters that are read from a file, of embeddings of this width."""

    def check(value: Any, where: str) -> Clusters:
        fields = StrictObject(value, where)
        lists = fields.take_all(
            centre=list_of(number), components=MATRIX, mixtures=list_of(_mixture)
        )
        rows, mixtures = lists["components"], lists["mixtures"]
        size = len(rows[0]) if rows else 0
        if not 1 <= size <= COMPONENTS:
            raise InputError(f"{where}.components must be 1 to {COMPONENTS}")
        centre = _array(lists["centre"], (width,), f"{where}.centre")
        components = _array(rows, (width, size), f"{where}.components")
        if len(mixtures) > len(COUNTS) or any(one.mean.shape[1] != size for one in mixtures):
            raise InputError(
                f"{where}.mixtures must be at most {len(COUNTS)}, of {size} components"
            )
        return Clusters(centre, components, mixtures)

    return check


def _mixture(value: Any, where: str) -> Mixture:
    lists = StrictObject(value, where).take_all(
        log_weight=list_of(number), mean=MATRIX, precision=list_of(MATRIX)
    )
    count = len(lists["log_weight"])
    if count not in COUNTS:
        raise InputError(f"{where}.log_weight must be of {', '.join(map(str, COUNTS))} clusters")
    size = len(lists["mean"][0]) if lists["mean"] else 0
    shapes = {"log_weight": (count,), "mean": (count, size), "precision": (count, size, size)}
    parts = {name: _array(lists[name], of, f"{where}.{name}") for name, of in shapes.items()}
    if not (parts["precision"].diagonal(axis1=1, axis2=2) > 0.0).all():
        raise InputError(f"{where}.precision must have a diagonal above 0")
    return Mixture(**parts)


MATRIX = list_of(list_of(number))


def _array(lists: Any, shape: tuple[int, ...], where: str, dtype: Any = np.float64) -> NDArray[Any]:
    """Nested lists of checked numbers as an array; refused where they have another shape."""
    try:
        with np.errstate(over="ignore"):
            array = np.array(lists, dtype=dtype)
    except (OverflowError, ValueError):  # too large an integer; lists of different lengths
        array = np.empty(0)
    if not array.size and 0 in shape and len(lists) == shape[0]:  # no column, or no row
        array = array.reshape(shape)
    if array.shape != shape:
        raise InputError(f"{where} must have the shape {list(shape)}")
    return array


# --- how doubtful a row is: the sum of two scores, each in standard deviations of those of some
# training rows. The first misses rare rows whose columns agree, the second common values in company
# that they do not belong to.

DOUBTS: Mapping[LatentKind | Question, Aggregate] = {"inconsistent": "q75", "nll": "mean"}

DOUBT_SPLITS = 8
"""Splits of the columns for the likelihood."""

# --- training rows that a model keeps, to say how far a row lies from its nearest ones. The squared
# distance of two rows is the sum over their features of
#
#     (a − b)² / σ²         for numbers, σ being the standard deviation of the training values
#     1 / p_a + 1 / p_b     for categories that differ, p being the levels' shares of training rows
#
# so a rare level is far from all others. Missing cells first get the model's best guess.

MAX_ROWS, MAX_CELLS = 2048, 1 << 17
"""Rows that are kept, and their cells, at most: a model folder holds them as text."""

SCALE_ROWS = 512
"""Training rows that say how the score's parts are distributed."""

NEIGHBOUR = 20
"""Which nearest row counts: anomalies may come in groups, and are then near to each other."""

FLOOR = 0.01
"""Added to distances, so that their logarithm exists where rows repeat."""

PART_WEIGHTS = {"distance": 1.0, "atypical": 0.25}
"""Of the outlier score's parts: distance to the nearest rows, how atypical the cells are."""

Parts = dict[str, NDArray[np.float32]]
"""by name, (n,) each; no distance where no rows are kept"""

Scales = Mapping[str, tuple[float, float]]
"""mean and standard deviation of each part over some training rows"""


def scales_of(parts: Parts) -> dict[str, tuple[float, float]]:
    """Of parts that do not vary the standard deviation is 1."""
    exact = {name: part.astype(np.float64) for name, part in parts.items()}
    return {name: (float(v.mean()), float(v.std()) or 1.0) for name, v in exact.items()}


@dataclass(frozen=True, slots=True)
class Units:
    """Scale of numbers, and what it costs to differ in a level."""

    std: Tensor  # (F_num,)
    rarity: tuple[Tensor, ...]  # per category (levels + 1,): 1 / share; MISSING, code 0, has 0

    def to(self, device: torch.device) -> Units:
        return Units(self.std.to(device), tuple(one.to(device) for one in self.rarity))


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Some training rows, and how the outlier score's parts are distributed in them."""

    num: NDArray[np.float32]  # (R, F_num) in standard deviations
    cat: NDArray[np.int64]  # (R, F_cat) level codes
    scale: Scales

    @classmethod
    def keep(cls, cells: NDArray[np.float32], numeric: int) -> Neighbours:
        """Rows without missing cells, numbers first; with few digits, as a folder holds them."""
        num = _short(cells[:, :numeric], digits=5).astype(np.float32)
        cat = cells[:, numeric:].astype(np.int64)
        return cls(num, cat, dict.fromkeys(PART_WEIGHTS, (0.0, 1.0)))

    def __len__(self) -> int:
        return len(self.num)

    def without_rows(self) -> Neighbours:
        """Only how the parts are distributed."""
        return replace(self, num=self.num[:0], cat=self.cat[:0])

    def scaled_by(self, parts: Parts) -> Neighbours:
        """The same with the score's parts in units of those of some training rows."""
        return replace(self, scale=scales_of(parts))

    def log_distance(self, rows: EncodedTable, units: Units) -> Tensor:
        """log(0.01 + distance to the 20th nearest row), of rows without missing cells.  # (B,)"""
        device = rows.num.device
        num, cat = (torch.from_numpy(kept).to(device) for kept in (self.num, self.cat))
        # the fast way, by matrix products, loses the digits of small distances
        exact = "donot_use_mm_for_euclid_dist"
        squared = torch.cdist(rows.num / units.std, num, compute_mode=exact).square()  # (B, R)
        for j, rarity in enumerate(units.rarity):
            here, there = rows.cat[:, j, None], cat[:, j]
            squared = squared + (here != there) * (rarity[here] + rarity[there])
        kth = squared.kthvalue(min(NEIGHBOUR, len(num)), dim=1).values
        return (kth.sqrt() + FLOOR).log()

    def combine(self, parts: Parts) -> NDArray[np.float32]:
        """The outlier score: the sum of its parts in their units, with their weights.  # (n,)"""
        weighted = [
            PART_WEIGHTS[name] * (part - self.scale[name][0]) / self.scale[name][1]
            for name, part in parts.items()
        ]
        return np.sum(weighted, axis=0, dtype=np.float32)


def rows_to_keep(features: int) -> int:
    """How many rows of so many features may be kept."""
    return min(MAX_ROWS, max(1, MAX_CELLS // max(1, features)))


@torch.no_grad()
def fill_rows(model: VarTJepa, rows: EncodedTable) -> EncodedTable:
    """Missing cells replaced by the model's best guess given the others."""
    if rows.observed is None or bool(rows.observed.all()):
        return rows
    masks = masks_from_cells(rows.observed, ~rows.observed)
    guess = most_likely_cells(model, predict_latents(model, rows, masks))
    known, numeric = rows.observed, rows.num.shape[1]
    num = torch.where(known[:, :numeric], rows.num, guess.num)
    cat = torch.where(known[:, numeric:], rows.cat, guess.cat)
    return EncodedTable(num, cat, None)


_LARGEST = 1e18
"""Of a mean, and of a standard deviation or its inverse: scores stay finite in float32."""


def neighbours_to_json(kept: Neighbours) -> dict[str, Any]:
    """Plain JSON values; the numbers have few digits and survive exactly."""
    return {
        "num": [[float(str(value)) for value in row] for row in kept.num],
        "cat": kept.cat.tolist(),
        "scale": scales_to_json(kept.scale),
    }


def scales_to_json(scales: Scales) -> dict[str, list[float]]:
    return {name: list(both) for name, both in scales.items()}


def neighbours_from_json(numeric: int, levels: tuple[int, ...]) -> Any:
    """A check of rows that are read from a file; ``levels`` counts those of each category."""

    def check(value: Any, where: str) -> Neighbours:
        kept = StrictObject(value, where).take_all(
            num=MATRIX, cat=list_of(list_of(integer)), scale=scales_from_json(PART_WEIGHTS)
        )
        num = _array(kept["num"], (len(kept["num"]), numeric), f"{where}.num", np.float32)
        cat = _array(kept["cat"], (len(num), len(levels)), f"{where}.cat", np.int64)
        if not np.isfinite(num).all():
            raise InputError(f"{where}.num must be finite in float32")
        most = rows_to_keep(numeric + len(levels))
        if len(num) > most:
            raise InputError(f"{where} must have at most {most} rows")
        if ((cat < 0) | (cat > np.array(levels, dtype=np.int64))).any():
            raise InputError(f"{where}.cat has levels that the codec does not have")
        return Neighbours(num, cat, kept["scale"])

    return check


def scales_from_json(names: Iterable[str]) -> Any:
    """A check of the parts' scales that are read from a file."""

    def check(value: Any, where: str) -> dict[str, tuple[float, float]]:
        return StrictObject(value, where).take_all(**dict.fromkeys(names, _mean_and_std))

    return check


def _mean_and_std(value: Any, where: str) -> tuple[float, float]:
    both = list_of(number)(value, where)
    if len(both) != 2 or max(map(abs, both)) > _LARGEST or not both[1] > 1.0 / _LARGEST:
        raise InputError(f"{where} must be a mean and a standard deviation")
    return both[0], both[1]
