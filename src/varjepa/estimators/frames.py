"""What users pass in and get back: scikit-learn's conventions on one side, Arrow on the other."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from varjepa.errors import InputError
from varjepa.tables import TableCodec, TableFiles, read_table
from varjepa.tables.messages import listed, quoted, shortened, suggestion
from varjepa.tables.values import value_type


def to_arrow(estimator: BaseEstimator, X: Any, reset: bool) -> pa.Table:
    """Read X, keeping scikit-learn's books: ``n_features_in_``, ``feature_names_in_``.

    Frames are matched by column name, so their order does not matter. Arrays have no names and are
    matched by position, as are frames given to an estimator that was fitted on an array.
    """
    if not _has_names(X):
        array = _validated(estimator, X, reset)
        table = read_table(array)
        if reset:
            estimator.frame_ = "numpy"
        known = getattr(estimator, "feature_names_in_", None)
        return table if reset or known is None else table.rename_columns(list(known))
    table = read_table(X)
    if table.num_columns and not table.num_rows:
        what = X if isinstance(X, str | os.PathLike) else "the table"
        raise InputError(f"{what} has no rows")
    if reset:
        estimator.frame_ = frame_kind(X)
        estimator.n_features_in_ = table.num_columns
        estimator.feature_names_in_ = np.array(table.column_names, dtype=object)
    elif not hasattr(estimator, "feature_names_in_"):
        name = type(estimator).__name__
        if table.num_columns != estimator.n_features_in_:
            raise InputError(
                f"X has {table.num_columns} features, but {name} is expecting "
                f"{estimator.n_features_in_} features as input"
            )
        warnings.warn(
            f"X has feature names, but {name} was fitted without feature names", stacklevel=3
        )
        table = table.rename_columns([f"x{j}" for j in range(table.num_columns)])
    return table


def refuse_too_little(codec: TableCodec, rows: int) -> None:
    """Refuse to fit a model to one row, or to a table without a single value."""
    if rows < 2:
        raise InputError("a model cannot be fitted to one row (1 sample); give at least two")
    if all(number.scaler.is_empty for number in codec.numeric) and not any(
        len(category.levels) for category in codec.categorical
    ):
        raise InputError("no cell of the table has a value")


def frame_kind(X: Any) -> str:
    """Which library X belongs to: "numpy", "pyarrow", "pandas", "polars", …; Arrow where none."""
    if isinstance(X, str | os.PathLike | Mapping | pa.Table | pa.RecordBatch | TableFiles):
        return "pyarrow"
    if not _has_names(X):
        return "numpy"
    return str(nw.get_native_namespace(nw.to_native(X, pass_through=True)).__name__)


def like_input(table: pa.Table, X: Any, with_types: bool = True) -> Any:
    """A table as the kind of object X is: columns of X have its types, a pandas frame its index.

    Column names of a pandas frame that are no texts (0, 1, 2) are what they were.
    ``with_types`` False: the columns hold something else than those of X, and keep their types.
    """
    frame = as_kind(table, frame_kind(X))
    native = nw.to_native(X, pass_through=True)
    if nw.dependencies.is_pandas_dataframe(native):
        known = {str(name): kind for name, kind in native.dtypes.items()} if with_types else {}
        frame = frame.assign(**_typed_columns(frame, known, _pandas_cast))
        if len(native) == len(frame):
            frame.index = native.index
        if list(map(str, native.columns)) == list(frame.columns):
            frame.columns = native.columns
    elif nw.dependencies.is_polars_dataframe(native) or nw.dependencies.is_polars_lazyframe(native):
        known = dict(native.collect_schema()) if with_types else {}
        typed = _typed_columns(frame, known, lambda column, to: column.cast(to))
        frame = frame.with_columns(**typed)
    return frame


def with_known_cells(filled: Any, X: Any, missing: Mapping[str, NDArray[np.bool_]]) -> Any:
    """Known cells as they came, where Arrow made a text of them: 1 beside "a" in pandas objects."""
    native = nw.to_native(X, pass_through=True)
    if nw.dependencies.is_pandas_dataframe(native):
        for name, column in native.items():
            if column.dtype == np.dtype(object) and str(name) in missing:
                filled[name] = filled[name].where(missing[str(name)], column)
    return filled


def _typed_columns(
    frame: Any, known: Mapping[str, Any], cast: Callable[[Any, Any], Any]
) -> dict[str, Any]:
    """Columns whose type got lost on the way through Arrow: categories, nullable types, enums."""
    typed = {}
    for name in frame.columns:
        column, kind = frame[name], known.get(name)
        if kind is None or column.dtype == kind:
            continue
        with suppress(Exception):  # every library has its own; the values matter more than the type
            typed[name] = cast(column, _with_levels(kind, column))
    return typed


def _pandas_cast(column: Any, kind: Any) -> Any:
    """A pandas column of another type; one with missing cells is no numpy boolean.

    pandas would make them False. Other types that cannot hold them are refused by pandas.
    """
    return column if kind == np.dtype(bool) and column.hasnans else column.astype(kind)


def _with_levels(kind: Any, column: Any) -> Any:
    """A type with fixed levels that has the column's too; any other type as it is."""
    if type(kind).__name__ not in ("CategoricalDtype", "Enum"):
        return kind
    levels = list(kind.categories)
    new = [level for level in dict.fromkeys(column.to_list()) if level not in levels]
    new = [level for level in new if level is not None and level == level]
    ordered = {"ordered": kind.ordered} if hasattr(kind, "ordered") else {}
    return type(kind)([*levels, *new], **ordered) if new else kind


def as_kind(table: pa.Table, kind: str) -> Any:
    """A table as an object of the library ``kind``; Arrow where that library is not installed."""
    if kind == "pyarrow":
        return table
    if kind == "numpy":
        columns = [table[name].to_numpy() for name in table.column_names]
        return np.column_stack(columns) if columns else np.empty((table.num_rows, 0))
    backend: Any = kind
    try:
        return nw.from_arrow(table, backend=backend).to_native()
    except ModuleNotFoundError:
        return table


def fill_missing(table: pa.Table, values: pa.Table, codec: TableCodec) -> pa.Table:
    """The table with its missing cells taken from ``values``; every other cell is untouched.

    Columns that were empty in training, identifiers and free text have no values to take and stay
    missing, with a warning; none where an identifier is missing in all rows, as in rows to draw.
    """
    filled = {name: table[name] for name in table.column_names}
    empty, not_modelled, left_out = [], [], codec.schema.left_out
    for name, missing in codec.missing_cells(table).items():
        if not missing.any():
            continue
        if name in left_out and left_out[name].reason not in ("empty", "constant"):
            not_modelled += [] if missing.all() else [name]
            continue
        column, other = _one_type(table[name], values[name], name)
        plain = pc.if_else(pa.array(missing), other, column)
        filled[name] = as_dictionary(plain, table[name], values[name])
        if values[name].null_count:
            empty.append(name)
    for names, why in (
        (empty, "columns that had no value when the model was fitted"),
        (not_modelled, "identifiers and free text, which are not modelled"),
    ):
        if names:
            warnings.warn(f"left missing: {why}, {listed(names)}", stacklevel=3)
    return pa.table(filled)


def as_dictionary(
    filled: pa.ChunkedArray, like: pa.ChunkedArray, values: pa.ChunkedArray
) -> pa.ChunkedArray:
    """A dictionary again where the column was one, unless there are too many values for it.

    Its levels keep their order, and new ones come last. A column that has none, as of rows to draw,
    gets the levels of ``values``, which are sorted: it is not ordered.
    """
    kind = like.type
    if not pa.types.is_dictionary(kind):
        return filled
    with suppress(pa.ArrowException):
        own = _levels(like)
        known = own if len(own) else _levels(values)
        new = filled.filter(pc.invert(pc.is_in(filled, value_set=known))).drop_null().unique()
        levels = pa.concat_arrays([known, new])
        codes = pc.index_in(filled, value_set=levels).combine_chunks().cast(kind.index_type)
        is_ordered = kind.ordered and len(own) > 0
        return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, levels, ordered=is_ordered)])
    return filled


def _levels(column: pa.ChunkedArray) -> pa.Array:
    """The levels of a dictionary in their order; of any other column none."""
    if not pa.types.is_dictionary(column.type) or not column.num_chunks:
        return pa.array([], value_type(column.type))
    return column.unify_dictionaries().chunk(0).dictionary.drop_null()


def in_own_types(values: pa.Table, codec: TableCodec) -> pa.Table:
    """Plain Python values, which have no types of their own, in those of the model's columns."""
    types = {column.name: column.type for column in codec.schema.columns}
    for place, name in enumerate(values.column_names):
        kind = types.get(name, pa.null())
        with suppress(pa.ArrowException):  # what is no such value is refused where it is encoded
            column = values[name].cast(value_type(kind))
            column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column
            values = values.set_column(place, name, column)
    return values


def with_all_columns(given: pa.Table, codec: TableCodec) -> pa.Table:
    """A table of some columns as one of all columns, the others missing."""
    known = {column.name: column for column in codec.schema.columns}
    unknown = [name for name in given.column_names if name not in known]
    if unknown:
        close = suggestion(unknown[0], known) if len(unknown) == 1 else ""
        raise InputError(f"the model knows no column {listed(unknown)}{close}")
    return pa.table(
        {
            name: given[name]
            if name in given.column_names
            else pa.nulls(given.num_rows, column.type)
            for name, column in known.items()
        }
    )


def _has_names(X: Any) -> bool:
    """Paths and frames; also what is no table at all, which reading it will say."""
    if isinstance(X, str | os.PathLike | pa.Table | pa.RecordBatch):
        return True
    if nw.dependencies.is_into_dataframe(X):
        return not isinstance(X, np.ndarray)
    return not (isinstance(X, list | tuple) or hasattr(X, "__array__") or issparse(X))


def _validated(estimator: BaseEstimator, X: Any, reset: bool) -> NDArray[Any]:
    """What scikit-learn asks of an array, its complaints on one line."""
    try:
        return validate_data(
            estimator, X, dtype=None, ensure_all_finite=False, reset=reset, accept_sparse=False
        )
    except (TypeError, ValueError) as error:
        raise InputError(shortened(" ".join(str(error).split()), 450)) from error


def _one_type(
    column: pa.ChunkedArray, other: pa.ChunkedArray, name: str
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Both columns in the column's own type, or in the values' where the column has none."""
    if pa.types.is_null(column.type):
        return column.cast(other.type), other
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type), other.cast(column.type.value_type)
    try:
        return column, other.cast(column.type, safe=False)
    except pa.ArrowException as error:
        raise InputError(
            f"column {quoted(name)} holds {column.type} values, but was fitted on {other.type}"
        ) from error
