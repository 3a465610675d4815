"""A dataset of six rows in the catalogue's terms, and a look for the real ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from paper.datasets.catalogue import BYTE, CATEGORY, DOUBLE, INT, DatasetInfo, OpenmlTable

REPOSITORY = Path(__file__).parents[3]

SHA256 = "a94cf61ba72fcbabe567139a81e814e121099d007716b16cf674d1e4a2edfe7a"


def small_source() -> pa.Table:
    return pa.table(
        {
            "size": pa.array([-5, 300, 7, 7, 1, 0], pa.int32()),
            "colour": ["red", None, "blue", "blue", "red", "red"],
            "day": pa.array([2, 1, 10, 1, 2, 2], pa.int64()),
            "price": [0.5, -1.25, 3.0, 0.000001, 2.0, 0.0],
            "dot": pa.array([0, 255, 1, 1, 1, 0], pa.uint8()),
            "target": ["no", "yes", "no", "no", "yes", "no"],
        }
    )


def small_info(sha256: str = SHA256, classes: Mapping[str, str] | None = None) -> DatasetInfo:
    return DatasetInfo(
        name="small",
        short="SM",
        title="Small",
        rows=6,
        columns={"size": INT, "colour": CATEGORY, "day": CATEGORY, "price": DOUBLE, "dot": BYTE},
        classes={"no": "stays", "yes": "goes"},
        class_rows=(4, 2),
        sha256=sha256,
        source="made up",
        openml=OpenmlTable(99, "small", 1, classes),
    )


def real_folder(name: str) -> Path:
    """The folder that has a real dataset's file: VARJEPA_DATA, or what CI puts beside us."""
    given = os.environ.get("VARJEPA_DATA")
    folder = Path(given) if given else REPOSITORY.parent / "shared" / "data"
    if not (folder / f"{name}.parquet").is_file():
        pytest.skip(f"no {name}.parquet in {folder}; set VARJEPA_DATA")
    return folder
