"""Training rows that a model keeps, to say how far a row lies from its nearest ones.

The squared distance of two rows is the sum over their features of

    (a − b)² / σ²         for numbers, σ being the standard deviation of the training values
    1 / p_a + 1 / p_b     for categories that differ, p being the levels' shares of training rows

so a rare level is far from all others. Missing cells are filled with the model's best guess first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from varjepa.errors import InputError
from varjepa.models.inference import most_likely_cells, predict_latents
from varjepa.models.masking import masks_from_cells
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.tables.codec import EncodedTable
from varjepa.tables.codec_json import StrictObject, integer, list_of, number

MAX_ROWS, MAX_CELLS = 2048, 1 << 17
"""Rows that are kept, and their cells, at most: a model folder holds them as text."""

SCALE_ROWS = 512
"""Training rows that say how the score's parts are distributed."""

NEIGHBOUR = 20
"""Which nearest row counts: anomalies may come in groups, and are then near to each other."""

FLOOR = 0.01
"""Added to distances, so that their logarithm exists where rows repeat."""

WEIGHTS = {"distance": 1.0, "atypical": 0.25}
"""Of the outlier score's parts: distance to the nearest rows, surprise of a row's cells."""

Parts = dict[str, NDArray[np.float32]]
"""by name, (n,) each; no distance where no rows are kept"""


@dataclass(frozen=True, slots=True)
class Units:
    """Scale of numbers, and what it costs to differ in a level."""

    std: Tensor  # (F_num,)
    rarity: tuple[Tensor, ...]  # per category (levels + 1,): 1 / share; 0 for MISSING, which is 0

    def to(self, device: torch.device) -> Units:
        """The same on another device."""
        return Units(self.std.to(device), tuple(one.to(device) for one in self.rarity))


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Some training rows, and how the outlier score's parts are distributed in them."""

    num: NDArray[np.float32]  # (R, F_num) in standard deviations
    cat: NDArray[np.int64]  # (R, F_cat) level codes
    scale: Mapping[str, tuple[float, float]]
    """mean and standard deviation of each part"""

    @classmethod
    def keep(cls, cells: NDArray[np.float32], numeric: int) -> Neighbours:
        """Rows without missing cells, numbers first; with few digits, as a folder holds them."""
        short = [float(f"{value:.5g}") for value in cells[:, :numeric].ravel()]
        num = np.array(short, dtype=np.float32).reshape(len(cells), numeric)
        return cls(num, cells[:, numeric:].astype(np.int64), dict.fromkeys(WEIGHTS, (0.0, 1.0)))

    def __len__(self) -> int:
        return len(self.num)

    def without_rows(self) -> Neighbours:
        """Only how the parts are distributed."""
        return replace(self, num=self.num[:0], cat=self.cat[:0])

    def scaled_by(self, parts: Parts) -> Neighbours:
        """The same with the score's parts in units of those of some training rows."""
        exact = {name: part.astype(np.float64) for name, part in parts.items()}
        scale = {name: (float(v.mean()), float(v.std()) or 1.0) for name, v in exact.items()}
        return replace(self, scale=scale)

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
            WEIGHTS[name] * (part - self.scale[name][0]) / self.scale[name][1]
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


# --- as JSON

_LARGEST = 1e18
"""Of a mean, and of a standard deviation or its inverse: scores stay finite in float32."""


def neighbours_to_json(kept: Neighbours) -> dict[str, Any]:
    """Plain JSON values; the numbers have few digits and survive exactly."""
    return {
        "num": [[float(str(value)) for value in row] for row in kept.num],
        "cat": kept.cat.tolist(),
        "scale": {name: list(both) for name, both in kept.scale.items()},
    }


def neighbours_from_json(numeric: int, levels: tuple[int, ...]) -> Any:
    """A check of rows that are read from a file; ``levels`` counts those of each category."""

    def check(value: Any, where: str) -> Neighbours:
        found = StrictObject(value, where)
        lists = found.take("num", list_of(list_of(number)))
        num = _array(lists, (len(lists), numeric), np.float32, f"{where}.num")
        lists = found.take("cat", list_of(list_of(integer)))
        cat = _array(lists, (len(num), len(levels)), np.int64, f"{where}.cat")
        scale = StrictObject(found.take("scale", lambda scale, _: scale), f"{where}.scale")
        parts = scale.take_all(**dict.fromkeys(WEIGHTS, _mean_and_std))
        found.finish()
        most = rows_to_keep(numeric + len(levels))
        if len(num) > most:
            raise InputError(f"{where} must have at most {most} rows")
        if ((cat < 0) | (cat > np.array(levels, dtype=np.int64))).any():
            raise InputError(f"{where}.cat has levels that the codec does not have")
        return Neighbours(num, cat, parts)

    return check


def _mean_and_std(value: Any, where: str) -> tuple[float, float]:
    found = list_of(number)(value, where)
    if len(found) != 2 or max(map(abs, found)) > _LARGEST or not found[1] > 1.0 / _LARGEST:
        raise InputError(f"{where} must be a mean and a standard deviation")
    return found[0], found[1]


def _array(lists: Any, shape: tuple[int, int], dtype: Any, where: str) -> NDArray[Any]:
    if len(lists) != shape[0] or any(len(row) != shape[1] for row in lists):
        raise InputError(f"{where} must have the shape {list(shape)}")
    with np.errstate(over="ignore"):
        found = np.array(lists, dtype=dtype).reshape(shape)
    if not np.isfinite(found).all():
        raise InputError(f"{where} must be finite in float32")
    return found
