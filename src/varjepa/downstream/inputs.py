"""What a predictor is given: raw columns, embeddings, or both, for the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from varjepa.errors import InputError
from varjepa.tables.encoded import EncodedTable

Index = NDArray[np.int64]

BLOCK = 512
"""rows converted to float32 at a time where all rows are walked through"""


def token_blocks(tokens: Tensor, rows: Tensor) -> Iterator[Tensor]:
    """Some rows of tokens that may be large, half precise or on a GPU.  # (B, D, d) float32"""
    for block in rows.split(BLOCK):
        yield tokens[block.to(tokens.device)].to("cpu", torch.float32)


@dataclass(frozen=True, slots=True)
class RawFeatures:
    """Columns as they come, before any scaling."""

    numeric: NDArray[Any]  # (n, F_num) floats, NaN where missing
    categorical: NDArray[np.int64]  # (n, F_cat) levels 1..L, 0 where missing

    def __post_init__(self) -> None:
        if self.numeric.ndim != 2 or self.categorical.ndim != 2:
            raise ValueError("numeric and categorical must be matrices")
        if len(self.numeric) != len(self.categorical):
            raise ValueError(
                f"{len(self.numeric)} numeric and {len(self.categorical)} categorical rows"
            )

    @classmethod
    def from_numeric(cls, values: ArrayLike) -> RawFeatures:
        """A plain matrix of numbers, without categories."""
        numeric = np.asarray(values, dtype=np.float64)
        return cls(numeric, np.empty((len(numeric), 0), dtype=np.int64))

    @classmethod
    def from_table(cls, table: EncodedTable) -> RawFeatures:
        """The columns of an encoded table; its unobserved cells are the missing ones."""
        numeric = table.x_num.numpy().astype(np.float64)
        numeric[~table.observed[:, : numeric.shape[1]].numpy()] = np.nan
        return cls(numeric, table.x_cat.numpy())

    def __len__(self) -> int:
        return len(self.numeric)

    def rows(self, index: Index) -> RawFeatures:
        return RawFeatures(self.numeric[index], self.categorical[index])


@dataclass(frozen=True, slots=True)
class Tokens:
    """Embeddings, d numbers for each of D features.

    They stay where and how they are stored (half precision, a memory map, either device); only
    batches of them are converted.
    """

    values: Tensor  # (n, D, d) any floating type
    standardise: bool = False
    """centre and scale every coordinate with the training rows' moments"""

    def __post_init__(self) -> None:
        if self.values.ndim != 3 or not self.values.is_floating_point():
            raise ValueError(f"expected floats (n, D, d), not {tuple(self.values.shape)}")

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Raw features, tokens or both; both are concatenated in the predictor."""

    raw: RawFeatures | None = None
    tokens: Tokens | None = None

    def __post_init__(self) -> None:
        parts = [len(part) for part in (self.raw, self.tokens) if part is not None]
        if not parts or min(parts) != max(parts):
            raise ValueError(f"inputs need parts of one length, not {parts}")

    def __len__(self) -> int:
        part = self.tokens if self.raw is None else self.raw
        assert part is not None
        return len(part)


def as_inputs(value: Inputs | RawFeatures | Tokens | ArrayLike) -> Inputs:
    """Any of the forms above, or a plain matrix of numbers."""
    if isinstance(value, Inputs):
        return value
    if isinstance(value, RawFeatures):
        return Inputs(raw=value)
    if isinstance(value, Tokens):
        return Inputs(tokens=value)
    return Inputs(raw=RawFeatures.from_numeric(value))


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers for training, for early stopping and for the reported figures."""

    train: Index
    validation: Index
    test: Index

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if not len(getattr(self, name)):
                raise InputError(f"the {name} part of the split has no rows.")

    @classmethod
    def of(cls, train: Sequence[int], validation: Sequence[int], test: Sequence[int]) -> Split:
        """From any sequences of row numbers."""
        return cls(*(np.asarray(part, dtype=np.int64) for part in (train, validation, test)))
