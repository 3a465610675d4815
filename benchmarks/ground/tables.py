"""The tables of the proving ground, their two halves, their rows and their removed cells.

Names are sorted and taken in turn: first, third, fifth … are the *development* half, on which
choices are made; the others are the *reporting* half. Numeric and mixed anomaly sets are halved in
the same way, each kind by itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from varjepa.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]
Half = Literal["development", "reporting", "all"]
HALVES: tuple[Half, ...] = get_args(Half)

PAPER = ("adult", "bank_marketing", "covertype", "credit_default", "electricity")
"""the paper's own tables, in the data folder itself"""
REGRESSION = (
    "air_quality", "auto_mpg", "beijing_air", "bike_sharing_hourly", "house_prices",
    "melbourne_housing", "student_performance",
)  # fmt: skip
TABLES = tuple(sorted((
    *PAPER, *REGRESSION, "cardiovascular", "german_credit", "hotel_bookings", "hr_job_change",
    "letter_recognition", "mushroom", "nursery", "online_shoppers", "penguins", "phoneme",
    "telco_churn",
)))  # fmt: skip
NUMERIC_ANOMALIES = tuple(f"anomaly/{name}" for name in sorted((
    "InternetAds", "Ionosphere", "Lymphography", "Pima", "Waveform", "Wilt", "annthyroid",
    "campaign", "fault", "letter", "mammography", "mnist", "musk", "shuttle", "smtp", "thyroid",
    "wine", "yeast",
)))  # fmt: skip
MIXED_ANOMALIES = tuple(f"anomaly_mixed/{name}" for name in sorted((
    "bank", "census", "chess_krkopt", "covertype", "kdd99_probe", "kdd99_u2r",
)))  # fmt: skip
DIRTY = ("dirty/beers", "dirty/hospital")
"""tables with errors as they came, and their clean versions"""
EVERY = (*TABLES, *NUMERIC_ANOMALIES, *MIXED_ANOMALIES, *DIRTY)

ROWS = 10_000
"""rows of a table that are used"""
SHARE = 0.2
"""of the cells that are removed"""


def names_of(half: Half) -> tuple[str, ...]:
    """Tables and anomaly sets of a half.

    Examples:
        >>> names_of("development")[:2], names_of("reporting")[:2]
        (('adult', 'auto_mpg'), ('air_quality', 'bank_marketing'))
    """
    start = {"development": 0, "reporting": 1}
    kinds = (TABLES, NUMERIC_ANOMALIES, MIXED_ANOMALIES, DIRTY)
    if half == "all":
        return EVERY
    return tuple(name for kind in kinds for name in kind[start[half] :: 2])


# --- reading


@dataclass(frozen=True, slots=True)
class GroundTable:
    name: str
    features: pd.DataFrame
    target: pd.Series
    is_regression: bool = False


def data_folder() -> Path:
    """``VARJEPA_DATA``, or ../shared/data beside the repository."""
    told = os.environ.get("VARJEPA_DATA")
    folder = Path(told) if told else Path(__file__).parents[2].parent / "shared" / "data"
    if not (folder / "ground").is_dir():
        raise InputError(f"{folder} has no folder ground; VARJEPA_DATA says where the data is")
    return folder


def load(name: str, rows: int = ROWS) -> GroundTable:
    """At most ``rows`` rows, drawn with seed 0. Anomalies keep their share."""
    folder = data_folder()
    if name in TABLES:
        path = folder if name in PAPER else folder / "ground" / "tables"
        frame = pd.read_parquet(path / f"{name}.parquet")
        if len(frame) > rows:
            frame = frame.sample(rows, random_state=0)
        frame = frame.reset_index(drop=True)
        target = frame.pop("target")
        return GroundTable(name, frame, target, name in REGRESSION)
    if name in NUMERIC_ANOMALIES:
        with np.load(folder / "ground" / f"{name}.npz", allow_pickle=False) as arrays:
            x, y = arrays["X"], arrays["y"]
        frame = pd.DataFrame(x.astype(np.float64), columns=[f"x{j}" for j in range(x.shape[1])])
        frame["anomaly"] = y.astype(np.int64)
    elif name in MIXED_ANOMALIES:
        frame = pd.read_parquet(folder / "ground" / f"{name}.parquet")
    else:
        raise InputError(f"there is no table {name}; the tables are {', '.join(EVERY)}")
    frame = _keep_share(frame, rows).reset_index(drop=True)
    flags = frame.pop("anomaly")
    return GroundTable(name, frame, flags)


def load_dirty(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A table with errors, and the same without; empty cells are missing."""
    folder = data_folder() / "ground"
    both = [pd.read_parquet(folder / f"{name}_{side}.parquet") for side in ("dirty", "clean")]
    return both[0].replace({"": None}), both[1].replace({"": None})


def _keep_share(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    if len(frame) <= rows:
        return frame
    is_anomaly = frame["anomaly"] == 1
    anomalies = max(1, round(rows * float(is_anomaly.mean())))
    parts = [
        frame[is_anomaly].sample(anomalies, random_state=0),
        frame[~is_anomaly].sample(rows - anomalies, random_state=0),
    ]
    return pd.concat(parts).sample(frac=1.0, random_state=0)


def split_rows(rows: int, seed: int) -> tuple[Integers, Integers]:
    """Three quarters to fit on and a quarter that the fit does not see, both in table order."""
    order = np.random.default_rng(seed).permutation(rows)
    unseen = rows // 4
    return np.sort(order[unseen:]), np.sort(order[:unseen])


# --- cells


def removed_cells(frame: pd.DataFrame, seed: int) -> Bools:
    """Known cells that are removed completely at random.  # (n, columns)"""
    drawn = np.random.default_rng(3 + seed).random(frame.shape) < SHARE
    return drawn & frame.notna().to_numpy()


def numbers_as_floats(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers and booleans as floats; text and dates stay. Then a removed cell changes no type."""
    return frame.astype({
        name: np.float64 for name in frame.columns if pd.api.types.is_numeric_dtype(frame[name])
    })  # fmt: skip


def remove(frame: pd.DataFrame, removed: Bools) -> pd.DataFrame:
    columns = {name: frame[name].mask(removed[:, j]) for j, name in enumerate(frame.columns)}
    return pd.DataFrame(columns, index=frame.index)


@dataclass(frozen=True, slots=True)
class CodedTable:
    """A table as floats: categories as codes of their levels, dates as seconds, missing as NaN."""

    values: Floats  # (n, columns)
    levels: Sequence[Any]
    """a column's levels, text by code; None for a number"""

    @property
    def is_category(self) -> Bools:  # (columns,)
        return np.array([levels is not None for levels in self.levels])


class Coder:
    """Codes tables with the same columns in the same way."""

    def __init__(self, *frames: pd.DataFrame) -> None:
        """Levels are numbered as they appear. Only text columns are categories."""
        self.names = list(frames[0].columns)
        self.levels: list[Any] = []
        for name in self.names:
            texts = [_texts(frame[name]) for frame in frames if _is_text(frame[name])]
            levels = pd.Index(pd.concat(texts).dropna().unique()) if texts else None
            self.levels.append(levels)

    def __call__(self, frame: pd.DataFrame) -> CodedTable:
        """Code a table; a level that no frame had becomes −1."""
        columns = [
            _floats(frame[name]) if levels is None else _codes(frame[name], levels)
            for name, levels in zip(self.names, self.levels, strict=True)
        ]
        return CodedTable(np.column_stack(columns), self.levels)


def join(parts: Sequence[CodedTable]) -> CodedTable:
    return CodedTable(np.concatenate([part.values for part in parts]), parts[0].levels)


def _is_text(column: pd.Series) -> bool:
    is_number = pd.api.types.is_numeric_dtype(column)
    return not is_number and not pd.api.types.is_datetime64_any_dtype(column)


def _texts(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.notna(), None)


def _floats(column: pd.Series) -> Floats:
    if pd.api.types.is_datetime64_any_dtype(column):
        return (column - pd.Timestamp(0)).dt.total_seconds().to_numpy(np.float64)
    return pd.to_numeric(column).to_numpy(np.float64, na_value=np.nan)


def _codes(column: pd.Series, levels: pd.Index) -> Floats:
    codes = levels.get_indexer(_texts(column)).astype(np.float64)
    codes[column.isna().to_numpy()] = np.nan
    return codes
