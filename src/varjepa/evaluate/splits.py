"""Row numbers to train, validate and test on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from varjepa.errors import InputError

Index = NDArray[np.int64]

TEST_SHARE = 0.2
"""Section 4.2's 70/10/20"""
VALIDATION_SHARE = 0.1
"""of all rows, not of what is left after the test rows"""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Row numbers that share no row."""

    train: Index
    validation: Index
    test: Index

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if not len(getattr(self, name)):
                raise InputError(f"the {name} part of the split has no rows.")


def split_rows(rows: int, seed: int) -> Split:
    """Sample the test rows first, then the validation rows, regardless of the classes.

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
