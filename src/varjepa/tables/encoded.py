"""A table as tensors, which is all the models ever see of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True)
class UnitTable:
    """A table in network scale at full precision, the form that decodes exactly."""

    x_num: NDArray[np.float64]  # (N, F_num)
    x_cat: NDArray[np.int64]  # (N, F_cat)
    observed: NDArray[np.bool_]  # (N, F_num + F_cat)


@dataclass(frozen=True, slots=True)
class EncodedTable:
    """Rows ready for a tokenizer; numeric features come first, then categorical ones.

    An unobserved cell holds 0 in ``x_num`` or ``x_cat``; real levels are 1..L.
    """

    x_num: Tensor  # (N, F_num) float32
    x_cat: Tensor  # (N, F_cat) int64
    observed: Tensor  # (N, F_num + F_cat) bool

    def __post_init__(self) -> None:
        rows, width = len(self.observed), self.x_num.shape[1] + self.x_cat.shape[1]
        if len(self.x_num) != rows or len(self.x_cat) != rows or self.observed.shape[1] != width:
            raise ValueError(
                f"x_num {tuple(self.x_num.shape)}, x_cat {tuple(self.x_cat.shape)} and observed "
                f"{tuple(self.observed.shape)} do not describe the same cells"
            )

    @classmethod
    def from_unit(cls, unit: UnitTable) -> EncodedTable:
        return cls(
            torch.from_numpy(unit.x_num.astype(np.float32)),
            torch.from_numpy(unit.x_cat),
            torch.from_numpy(unit.observed),
        )

    def __len__(self) -> int:
        return len(self.observed)

    def rows(self, index: Tensor | slice | list[int]) -> EncodedTable:
        """Some of the rows: a slice, a list or tensor of positions, or a boolean mask."""
        return EncodedTable(self.x_num[index], self.x_cat[index], self.observed[index])

    def to(self, device: torch.device | str, **options: Any) -> EncodedTable:
        """The same rows on another device; options are those of ``Tensor.to``."""
        return EncodedTable(
            self.x_num.to(device, **options),
            self.x_cat.to(device, **options),
            self.observed.to(device, **options),
        )
