"""The real datasets from OpenML, through scikit-learn's fetcher."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml

from varjepa.datasets.canonical import TARGET, as_type
from varjepa.datasets.catalogue import DatasetInfo, OpenmlTable
from varjepa.errors import InputError


def fetch_source(info: DatasetInfo, table: OpenmlTable, data_home: Path) -> pa.Table:
    """The table as our Parquet files have it: our names and types, the class last."""
    place = f"OpenML {table.data_id}"
    bunch = _fetch(info, table, data_home)
    values: NDArray[Any] = bunch.data  # (N, D) floats; a category is a place in its list of names
    if values.ndim != 2 or values.shape[1] != len(info.columns):
        found = f"a table of shape {values.shape}"
        raise InputError(f"{place} is {found}, not one of {len(info.columns)} columns")
    columns: dict[str, pa.Array] = {}
    # by position: OpenML's names are V1, x1 or pixel1; the checks that follow see any mix-up
    for j, (name, kind) in enumerate(info.columns.items()):
        column = pa.array(np.ascontiguousarray(values[:, j]), from_pandas=True)
        levels = bunch.categories.get(bunch.feature_names[j])
        if levels is not None:
            column = pa.array(levels, pa.string()).take(column.cast(pa.int64()))
        columns[name] = as_type(column, kind, f"column {name!r} of {place}")
    target = pa.array([str(value) for value in bunch.target])
    for theirs, ours in (table.classes or {}).items():
        target = pc.if_else(pc.equal(target, theirs), ours, target)
    return pa.table(columns | {TARGET: target})


def _fetch(info: DatasetInfo, table: OpenmlTable, data_home: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "retrying": what matters is how it ends
        try:
            # liac-arff is slow (a minute for MNIST, once) but needs no pandas
            return fetch_openml(
                data_id=table.data_id,
                data_home=str(data_home),
                as_frame=False,
                parser="liac-arff",
            )
        except (OSError, ValueError, KeyError) as error:  # no network; not what OpenML should send
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(
                f"{info.title} is not on this machine and OpenML {table.data_id} could not be "
                f"fetched ({reason}); set VARJEPA_DATA to a folder with {info.name}.parquet, or "
                "connect to the internet"
            ) from error
