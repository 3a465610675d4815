"""A table as tensors, which is all the models ever see of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class EncodedTable:
    """Rows w ready for a tokenizer; numeric features come first, then categorical ones.

    A missing cell holds 0 in ``num`` or ``cat``; real levels are 1..L.
    """

    num: Tensor  # (N, F_num) float32; float64 where it must decode exactly
    cat: Tensor  # (N, F_cat) int64
    observed: Tensor | None  # (N, F_num + F_cat) bool
    """None: no cell is missing"""

    def __post_init__(self) -> None:
        seen = self.observed
        cells = len(self.num), self.num.shape[1] + self.cat.shape[1]
        if len(self.cat) != len(self.num) or (seen is not None and tuple(seen.shape) != cells):
            raise ValueError(
                f"num {tuple(self.num.shape)}, cat {tuple(self.cat.shape)} and observed "
                f"{None if seen is None else tuple(seen.shape)} do not describe the same cells"
            )

    def __len__(self) -> int:
        return len(self.num)

    def take(self, index: Tensor | slice | list[int]) -> EncodedTable:
        """Some of the rows: a slice, a list or tensor of positions, or a boolean mask."""
        observed = None if self.observed is None else self.observed[index]
        return EncodedTable(self.num[index], self.cat[index], observed)

    def split(self, batch: int) -> Iterator[EncodedTable]:
        """Consecutive slices of at most ``batch`` rows."""
        for start in range(0, len(self), batch):
            yield self.take(slice(start, start + batch))

    def to(self, device: torch.device | str, **options: Any) -> EncodedTable:
        """The same rows on another device; options are those of ``Tensor.to``."""
        observed = None if self.observed is None else self.observed.to(device, **options)
        return EncodedTable(
            self.num.to(device, **options), self.cat.to(device, **options), observed
        )

    def drop_full_mask(self) -> EncodedTable:
        """The same rows, with ``observed`` None if no cell is missing."""
        if self.observed is None or not bool(self.observed.all()):
            return self
        return EncodedTable(self.num, self.cat, None)

    def write(self, start: int, part: EncodedTable) -> None:
        """Overwrite the rows from ``start`` on; a table without mask has no missing cell."""
        rows = slice(start, start + len(part))
        self.num.numpy()[rows] = part.num.numpy()
        self.cat.numpy()[rows] = part.cat.numpy()
        if self.observed is not None:
            self.observed.numpy()[rows] = True if part.observed is None else part.observed.numpy()

    @property
    def tensors(self) -> list[Tensor]:
        """The two or three tensors that there are."""
        return [self.num, self.cat, *([] if self.observed is None else [self.observed])]
