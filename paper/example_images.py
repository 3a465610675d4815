"""A few corrupted digits of MNIST, small enough to be part of a result row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from paper.results import Row

LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.99)
"""of u, from clean to almost noise"""


def example_images(
    table: pa.Table,
    ambiguity: NDArray[np.float64],  # (N,)
    rows: NDArray[np.int64],
    per_level: int = 3,
) -> list[Row]:
    """Digits near each of six levels of u, as bytes 0 to 255, for the figure of the corruption."""
    chosen: list[Row] = []
    for level in LEVELS:
        nearest = rows[np.argsort(np.abs(ambiguity[rows] - level), kind="stable")[:per_level]]
        for row in nearest:
            pixels = [255 * value for value in table.slice(int(row), 1).to_pylist()[0].values()]
            chosen.append(
                {
                    "level": level,
                    "u": round(float(ambiguity[row]), 6),
                    "pixels": np.rint(pixels).astype(int).tolist(),
                }
            )
    return chosen
