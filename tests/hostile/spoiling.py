"""One healthy table, and the ways in which a table can be spoilt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

ROWS = 60
TARGET = "label"


@dataclass(frozen=True, slots=True)
class HostileTable:
    """One table, and the words of each refusal."""

    name: str

    build: Callable[[Path], Any]
    """the table or its path, given an empty folder"""

    fit: str | None = None
    """words of the sentence when a model is fitted on it; None: it is accepted, and the model then
    accepts the table too"""

    known: str | None = None
    """words when a model of the healthy table embeds, imputes or scores it"""

    evaluate: str | None = None
    """words when it is evaluated with the label as target"""

    fill: str | None = None
    """words when a model of the healthy table imputes it, where it embeds and scores it"""


def healthy() -> pd.DataFrame:
    """Numbers with missing values, integers, text, dates and a label."""
    rng, rows = np.random.default_rng(0), ROWS
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=rows),
            "count": rng.integers(0, 9, rows),
            "colour": rng.choice(["red", "green", "blue"], rows),
            "when": pd.date_range("2024-01-01", periods=rows, freq="7h"),
            TARGET: rng.choice(["yes", "no"], rows),
        }
    )
    frame.loc[[3, 5], "size"] = np.nan
    return frame


def changed(**columns: Any) -> Callable[[Path], pd.DataFrame]:
    """The healthy table with other columns; a function gets the old column."""

    def build(_: Path) -> pd.DataFrame:
        frame = healthy()
        for name, values in columns.items():
            frame[name] = values(frame[name]) if callable(values) else values
        return frame

    return build


def objects(*values: Any) -> pd.Series[Any]:
    """A column of these objects, again and again."""
    column = np.empty(ROWS, dtype=object)
    for i in range(ROWS):
        column[i] = values[i % len(values)]
    return pd.Series(column, dtype=object)


def some(*values: Any) -> Callable[[pd.Series[Any]], pd.Series[Any]]:
    """The old column with its first cells replaced."""

    def replace(old: pd.Series[Any]) -> pd.Series[Any]:
        column = old.astype(object)
        column.iloc[: len(values)] = list(values)
        return column.infer_objects()

    return replace


def arrow(**columns: Any) -> Callable[[Path], pa.Table]:
    """The healthy table in Arrow, with other columns."""

    def build(_: Path) -> pa.Table:
        table = pa.Table.from_pandas(healthy(), preserve_index=False)
        for name, values in columns.items():
            table = table.set_column(table.column_names.index(name), name, values)
        return table

    return build


def named(*names: Any) -> Callable[[Path], pd.DataFrame]:
    """The healthy table with other names for its first columns."""

    def build(_: Path) -> pd.DataFrame:
        frame = healthy()
        frame.columns = pd.Index([*names, *frame.columns[len(names) :]], dtype=object)
        return frame

    return build


def text_file(name: str, change: Callable[[str], bytes]) -> Callable[[Path], Path]:
    """The healthy table as CSV, its bytes changed."""

    def build(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(change(healthy().to_csv(index=False)))
        return path

    return build


def cut_file(name: str, keep: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    """The healthy table as Parquet or Feather, part of its bytes."""

    def build(folder: Path) -> Path:
        path = folder / name
        table = pa.Table.from_pandas(healthy(), preserve_index=False)
        if path.suffix == ".parquet":
            pa.parquet.write_table(table, path)
        else:
            pa.feather.write_feather(table, str(path), compression="zstd")
        path.write_bytes(keep(path.read_bytes()))
        return path

    return build


def expanding_parquet(folder: Path) -> Path:
    """About 2 MB on disk, 20 GB of text when read: one dictionary entry, pointed at by each row."""
    path = folder / "expanding.parquet"
    rows, letters = 10_000, 2 * 10**6
    cell = np.random.default_rng(0).integers(97, 123, letters, dtype=np.uint8).tobytes().decode()
    colour = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), [cell])
    label = pa.array(["yes", "no"] * (rows // 2))
    pa.parquet.write_table(
        pa.table({"colour": colour, TARGET: label}), path, store_schema=False, compression="none"
    )
    return path


def million_levels(_: Path) -> pd.DataFrame:
    """A category with a million levels, of which a few are there."""
    frame = healthy()
    levels = pd.Index([f"user-{i}" for i in range(10**6)])
    frame["colour"] = pd.Categorical.from_codes(np.arange(ROWS) * 16_000, levels)
    return frame


def multi_index_columns(_: Path) -> pd.DataFrame:
    frame = healthy()
    frame.columns = pd.MultiIndex.from_product([["part"], frame.columns])
    return frame


def multi_index_rows(_: Path) -> pd.DataFrame:
    frame = healthy()
    frame.index = pd.MultiIndex.from_product([range(ROWS // 2), ["a", "b"]], names=["x", "size"])
    return frame


def nothing_known(_: Path) -> pd.DataFrame:
    return healthy().astype(object).map(lambda _: None)


def polars_frame(**columns: Any) -> Callable[[Path], pl.DataFrame]:
    return lambda _: pl.from_pandas(healthy()).with_columns(**columns)
