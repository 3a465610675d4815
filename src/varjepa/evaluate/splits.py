"""A table with its labels, and the row numbers to train, choose and test on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.errors import InputError

Rows = NDArray[np.int64]

TEST_SHARE = 0.2
"""Section 4.2's 70/10/20"""
VALIDATION_SHARE = 0.1
"""of all rows, not of what is left after the test rows"""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Row numbers, ascending, that share no row and together are all rows."""

    train: Rows
    validation: Rows
    test: Rows


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """One dataset of Section 4.2, ready to use and checked."""

    name: str
    """what commands call it, e.g. ``credit_default``"""
    title: str
    """what people call it"""
    table: pa.Table
    """the features, nothing else; categories are dictionary columns, missing cells null"""
    label: NDArray[np.int64]  # (N,)
    """class numbers, 0 to len(class_names) − 1"""
    class_names: tuple[str, ...]
    ambiguity: NDArray[np.float64] | None  # (N,)
    """the true u of every row where the data was made with one (MNIST, SIM), else None"""
    sha256: str
    """of the source's canonical content (``canonical``): which data a result was computed on"""
    origin: str
    """where it was read from: a file, OpenML, or the generator"""

    def split(self, seed: int) -> Split:
        """70 % to train, 10 % to validate, 20 % to test; the same seed gives the same rows."""
        return split_rows(self.table.num_rows, seed)


def split_rows(rows: int, seed: int) -> Split:
    """Draw the test rows first, then the validation rows; classes play no part in it.

    Examples:
        >>> split = split_rows(100, seed=0)
        >>> len(split.train), len(split.validation), len(split.test)
        (70, 10, 20)
    """
    test, validation = round(TEST_SHARE * rows), round(VALIDATION_SHARE * rows)
    if min(test, validation, rows - test - validation) < 1:
        raise InputError(f"{rows} rows are too few to train, validate and test on")
    order = np.random.default_rng(seed).permutation(rows)
    parts = np.split(order, [test, test + validation])
    for_test, for_validation, for_training = (np.sort(part) for part in parts)
    return Split(for_training, for_validation, for_test)
