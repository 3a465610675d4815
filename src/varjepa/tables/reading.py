"""Anything a user calls a table as an Arrow table: frames, arrays, Python objects, files.

Inside the package a table is a ``pyarrow.Table`` with plain columns and distinct names. pandas and
polars belong to the user: their frames are read through narwhals, and neither is imported here.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.tables.columnar_files import read_arrow, read_parquet
from varjepa.tables.csv_files import CsvFile
from varjepa.tables.messages import quoted, refuse_bad_names, shortened
from varjepa.tables.table_files import explained, format_of, refuse_address
from varjepa.tables.values import as_text

# --- columns of Python objects, which have no type until every value has been read

_NUMBERS = (int, float, Decimal, np.integer, np.floating)
_SCALARS = (str, bool, np.bool_, *_NUMBERS)
_MISSING_TYPES = ("NoneType", "NAType", "NaTType")
"""By name, because two of them are pandas' own."""


def from_objects(values: NDArray[Any], name: str) -> pa.Array:
    """The type Arrow infers; else numbers too large for it; else text for mixed scalars."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    kinds = {kind for kind in set(map(type, values)) if kind.__name__ not in _MISSING_TYPES}
    for kind in kinds:
        if not issubclass(kind, _SCALARS):
            raise InputError(
                f"column {quoted(name)} holds {kind.__name__} values, which have no encoding"
            )
    if all(issubclass(kind, _NUMBERS) and kind is not bool for kind in kinds):
        return _large_numbers(values, name)
    try:
        return _mixed_text(values)
    except UnicodeEncodeError as error:
        raise InputError(f"column {quoted(name)} holds text that is not Unicode") from error


def _large_numbers(values: NDArray[Any], name: str) -> pa.Array:
    """Python integers beyond 64 bits signed, decimals of more digits than Arrow's."""
    if not any(isinstance(value, Decimal) for value in values):
        try:
            return pa.array(values, pa.uint64(), from_pandas=True)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass
    try:
        return pa.array([None if _is_missing(v) else float(v) for v in values], pa.float64())
    except OverflowError as error:
        raise InputError(f"column {quoted(name)} holds a number too large for a float") from error


def _mixed_text(values: NDArray[Any]) -> pa.Array:
    """Canonical text of each scalar, the same that a column of its own type would get."""
    texts: list[str | None] = [
        None if _is_missing(v) else str(v).lower() if isinstance(v, bool | np.bool_) else str(v)
        for v in values
    ]
    floats = [
        i
        for i, v in enumerate(values)
        if isinstance(v, float | np.floating | Decimal) and not _is_missing(v)
    ]
    numbers = pa.array([float(values[i]) for i in floats], pa.float64())
    canonical = as_text(pa.chunked_array([numbers]))
    for i, text in zip(floats, canonical.to_pylist(), strict=True):
        texts[i] = text
    return pa.array(texts, pa.large_string())


def _is_missing(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.is_nan()
    return type(value).__name__ in _MISSING_TYPES or (
        isinstance(value, float | np.floating) and bool(np.isnan(value))
    )


# --- any table in, one Arrow table out

_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What a conversion to Arrow raises when a column holds something it does not know."""


def read_table(source: Any) -> pa.Table:
    """Read a file, a data frame or an array.

    Accepts a path to .csv, .tsv (both also gzipped), .parquet, .arrow or .feather; a pandas or
    polars frame and whatever else narwhals knows, lazy frames included; a pyarrow Table or
    RecordBatch; a dict of arrays by name; a two-dimensional numpy array, whose columns are called
    x0, x1, …. Rows keep their order; a data frame's index is not a column and is ignored.

    Examples:
        >>> read_table(np.eye(2)).column_names
        ['x0', 'x1']
    """
    if isinstance(source, str | os.PathLike):
        refuse_address(os.fspath(source))
        return _tidy(_drop_index(_from_file(Path(source))))
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return _tidy(_drop_index(source))
    if isinstance(source, np.ndarray):
        return _tidy(_from_array(source))
    if isinstance(source, Mapping):
        return _tidy(_from_arrays(source))
    return _tidy(_from_frame(source))


def are_files(source: object) -> bool:
    """Whether a user means several files: a folder, or a pattern that is no file's name."""
    if not isinstance(source, str | os.PathLike):
        return False
    text = os.fspath(source)
    if not isinstance(text, str):
        return False
    path = Path(text)
    return path.is_dir() or (glob.has_magic(text) and not path.exists())


def _from_file(path: Path) -> pa.Table:
    kind = format_of(path)
    with explained(path):
        if kind == "CSV":
            return CsvFile.find(path).read()
        return read_parquet(path) if kind == "Parquet" else read_arrow(path)


def _from_frame(source: Any) -> pa.Table:
    source = nw.to_native(source, pass_through=True)
    if nw.dependencies.is_pandas_like_dataframe(source):
        if source.columns.nlevels > 1:
            raise InputError("the table has column names of several levels; join them into one")
        source = source.set_axis(_text_names(list(source.columns)), axis=1)
    try:
        frame = nw.from_native(source)
    except TypeError as error:
        raise InputError(
            f"cannot read a table from an object of type {type(source).__name__}; give a path, a "
            "data frame, an Arrow table or a two-dimensional array"
        ) from error
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    columns = {name: _from_series(frame[name], name) for name in frame.columns}
    return pa.table(columns)


def _from_series(series: nw.Series[Any], name: str) -> pa.Array:
    try:
        return series.alias("").to_arrow()  # polars panics at a name with a NUL in it
    except _REFUSALS:
        pass  # sparse columns and objects of several types, which numpy can hold
    try:
        values = series.to_numpy()
    except _REFUSALS as error:
        what = shortened(str(series.dtype))
        raise InputError(
            f"column {quoted(name)} holds {what} values, which cannot be read"
        ) from error
    return _from_vector(values, name)


def _from_array(array: NDArray[Any]) -> pa.Table:
    if array.ndim != 2:
        raise InputError(f"an array must have two dimensions to be a table, not {array.ndim}")
    return pa.table({f"x{j}": _from_vector(array[:, j], f"x{j}") for j in range(array.shape[1])})


def _from_arrays(arrays: Mapping[Any, Any]) -> pa.Table:
    names = _text_names(list(arrays))
    values = map(np.atleast_1d, map(np.asarray, arrays.values()))  # one value: one row
    columns = [_from_vector(vector, name) for name, vector in zip(names, values, strict=True)]
    if len({len(column) for column in columns}) > 1:
        raise InputError("the arrays of a table must all be of one length")
    return pa.table(columns, names=names)


def _from_vector(values: NDArray[Any], name: str) -> pa.Array:
    missing = None
    if isinstance(values, np.ma.MaskedArray):
        missing, values = np.ma.getmaskarray(values), np.asarray(values.data)
    if values.dtype.kind == "O":
        if missing is not None:
            values = values.copy()
            values[missing] = None
        return from_objects(values, name)
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # what only a long double holds is infinite to us
            values = values.astype(np.float64)
    try:
        return pa.array(np.ascontiguousarray(values), mask=missing, from_pandas=True)
    except _REFUSALS as error:
        raise InputError(
            f"column {quoted(name)} holds {values.dtype} values, which cannot be encoded"
        ) from error


def _text_names(names: Sequence[Any]) -> list[str]:
    """Integer names, which pandas gives by default, become text."""
    for name in names:
        if not isinstance(name, str | int | np.integer) or isinstance(name, bool):
            raise InputError(f"the column name {quoted(name)} is not text")
    texts = [str(name) for name in names]
    refuse_bad_names(texts)
    return texts


def _drop_index(table: pa.Table) -> pa.Table:
    """Leave out what pandas wrote as its index: in memory it is not a column either."""
    metadata = table.schema.metadata or {}
    try:
        described = json.loads(metadata.get(b"pandas", b"{}"))
        index = [name for name in described.get("index_columns", []) if isinstance(name, str)]
    except (ValueError, AttributeError):
        return table  # not pandas' own metadata; nothing to learn from it
    return table.drop_columns([name for name in index if table.column_names.count(name) == 1])


def _tidy(table: pa.Table) -> pa.Table:
    """Check names, unfold encodings that change nothing, and drop every library's metadata."""
    names = table.column_names
    refuse_bad_names(names)
    return pa.table([_plain(column) for column in table.columns], names=names)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_decode(column)
    if kind == pa.string_view():
        return column.cast(pa.large_string())
    if pa.types.is_dictionary(kind) and kind.value_type == pa.string_view():
        return column.cast(pa.dictionary(kind.index_type, pa.large_string(), kind.ordered))
    return column
