"""One small table with every kind of column, as each input format would hold it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import torch

from varjepa.tables import EncodedTable, Kind, infer_schema

COLUMNS: dict[str, list[Any]] = {
    "age": [31, 45, None, 22, 31],
    "height": [1.5, 1.75, 1.625, None, 2.0],
    "town": ["Ulm", "Rom", "Ulm", None, "Bäle, old"],
    "member": [True, False, None, True, True],
    "since": [
        dt.datetime(2020, 1, 31, 23, 0, 1),
        dt.datetime(2021, 6, 1),
        None,
        dt.datetime(1999, 12, 31, 12),
        dt.datetime(2024, 2, 29, 4),
    ],
}


def arrow_table() -> pa.Table:
    return pa.table(COLUMNS)


def pandas_frame() -> pd.DataFrame:
    frame = pd.DataFrame(COLUMNS, index=[9, 8, 7, 6, 5])
    frame["since"] = pd.to_datetime(frame["since"])
    return frame


def polars_frame() -> pl.DataFrame:
    return pl.DataFrame(COLUMNS)


def source(form: str, folder: Path) -> Any:
    """The example table in one of the forms of FORMS."""
    table = arrow_table()
    match form:
        case "pandas":
            return pandas_frame()
        case "pandas nullable":
            return pandas_frame().convert_dtypes()
        case "pandas objects":
            return pandas_frame().astype(object)
        case "pandas categorical":
            return pandas_frame().astype({"town": "category"})
        case "polars":
            return polars_frame()
        case "polars lazy":
            return polars_frame().lazy()
        case "polars categorical":
            return polars_frame().with_columns(pl.col("town").cast(pl.Categorical))
        case "arrow":
            return table
        case "arrow batch":
            return table.to_batches()[0]
        case "arrow chunks":
            return pa.concat_tables([table.slice(0, 2), table.slice(2)])
        case "csv":
            table.to_pandas().to_csv(folder / "t.csv", index=False)
            return folder / "t.csv"
        case "tsv":
            table.to_pandas().to_csv(folder / "t.tsv", index=False, sep="\t")
            return str(folder / "t.tsv")
        case "parquet":
            pa.parquet.write_table(table, folder / "t.parquet")
            return folder / "t.parquet"
        case "pandas parquet":
            pandas_frame().to_parquet(folder / "p.parquet")
            return folder / "p.parquet"
        case "feather":
            pa.feather.write_feather(table, str(folder / "t.feather"), compression="lz4")
            return folder / "t.feather"
        case "arrow stream":
            with pa.ipc.new_stream(folder / "s.arrow", table.schema) as writer:
                writer.write_table(table)
            return folder / "s.arrow"
    raise AssertionError(form)


FORMS = (
    *("pandas", "pandas nullable", "pandas objects", "pandas categorical"),
    *("polars", "polars lazy", "polars categorical"),
    *("arrow", "arrow batch", "arrow chunks", "arrow stream"),
    *("csv", "tsv", "parquet", "pandas parquet", "feather"),
)


def assert_same(one: EncodedTable, other: EncodedTable) -> None:
    """Every tensor equal, bit for bit."""
    for first, second in zip(one.tensors, other.tensors, strict=True):
        assert first.dtype == second.dtype
        assert torch.equal(first, second)


def numbers(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A column as float64 with NaN for missing."""
    return column.cast(pa.float64()).to_numpy(zero_copy_only=False)


def all_kinds(table: pa.Table) -> dict[str, Kind]:
    """The kind of every column, so that each is modelled, whatever it holds."""
    return {column.name: column.kind for column in infer_schema(table).columns}
