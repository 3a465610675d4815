"""One form for a table wherever it comes from, and the SHA-256 that says that it is the one.

Files of the same data differ in types, row order and compression, so not the file is hashed but its
content, written like this:

- a line of JSON, UTF-8, without spaces: the columns as [name, type, levels], the class values, and
  the number of rows. Levels are a categorical column's values, sorted; null for numbers;
- then every row as big-endian integers without gaps, in column order, the class last. uint8, int16
  and int32 columns as they are; doubles as int64 of round(10⁶ x), since six decimals are what
  Electricity's file has and what SIM promises on every machine; a category as int8, 0 if missing,
  else 1 + its place among the levels; the class as uint8;
- rows sorted as byte strings. The same order is the *canonical order* that subsets are drawn from,
  so that the order of a file (OpenML has Adult's test rows first) changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from varjepa.datasets.catalogue import BYTE, CATEGORY, DOUBLE, INT, SHORT, DatasetInfo
from varjepa.errors import InputError

TARGET = "target"
"""the class column of a source"""

_WIRE = {BYTE: "u1", SHORT: ">i2", INT: ">i4", DOUBLE: ">i8", CATEGORY: "i1"}


@dataclass(frozen=True, slots=True, eq=False)
class CanonicalTable:
    """A source in canonical types, still in its own row order."""

    table: pa.Table
    """the features"""
    label: NDArray[np.int64]  # (N,)
    order: NDArray[np.int64]  # (N,) row numbers in canonical order
    sha256: str


def canonical_table(info: DatasetInfo, source: pa.Table, place: str) -> CanonicalTable:
    """Bring a source into canonical form, or say what about it is not what ``info`` describes."""
    _check_names(info, source, place)
    columns = {
        name: as_type(source[name], kind, f"column {name!r} of {place}")
        for name, kind in info.columns.items()
    }
    if source.num_rows != info.source_rows:
        raise InputError(f"{place} has {source.num_rows:,} rows instead of {info.source_rows:,}")
    label = _labels(info, source[TARGET], place)
    records = _records(columns, label)
    order = np.argsort(records.view(f"S{records.itemsize}"), kind="stable")
    digest = hashlib.sha256(_header(info, columns))
    digest.update(records[order].tobytes())
    if digest.hexdigest() != info.sha256:
        raise InputError(
            f"{place} has the rows, columns and classes of {info.title} but other values: the "
            f"SHA-256 of its content is {digest.hexdigest()} instead of {info.sha256}"
        )
    return CanonicalTable(pa.table(columns), label, order, digest.hexdigest())


def as_type(column: pa.ChunkedArray, kind: pa.DataType, place: str) -> pa.Array:
    """A column in its canonical type: exact, or an InputError."""
    try:
        if kind == CATEGORY:
            return _categories(column)
        numbers = _one_chunk(column).cast(kind)
    except pa.ArrowInvalid as error:
        raise InputError(f"{place} holds values that are not {kind}") from error
    except pa.ArrowNotImplementedError as error:
        raise InputError(f"{place} holds {column.type} values instead of {kind}") from error
    if numbers.null_count or (kind == DOUBLE and not pc.all(pc.is_finite(numbers)).as_py()):
        raise InputError(f"{place} has missing or infinite numbers; the original has none")
    return numbers


def _categories(column: pa.ChunkedArray) -> pa.DictionaryArray:
    text = _text(column)
    text = pc.if_else(pc.equal(text, "?"), None, text)
    levels = text.unique().drop_null().sort()
    return pa.DictionaryArray.from_arrays(pc.index_in(text, levels).cast(pa.int8()), levels)


def _text(column: pa.ChunkedArray) -> pa.Array:
    array = _one_chunk(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_floating(array.type):  # 2.0 and 2 are the same code
        array = array.cast(pa.int64())
    return pc.utf8_trim_whitespace(array.cast(pa.string()))


def _labels(info: DatasetInfo, column: pa.ChunkedArray, place: str) -> NDArray[np.int64]:
    try:
        text = _text(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"column {TARGET!r} of {place} holds no classes") from error
    values = list(info.classes)
    label = pc.index_in(text, pa.array(values))
    if label.null_count:
        odd = text.filter(pc.is_null(label))[0].as_py()
        raise InputError(f"{place} has the class {odd!r}, which is none of {', '.join(values)}")
    numbers = label.to_numpy().astype(np.int64)
    found = np.bincount(numbers, minlength=len(values)).tolist()
    for value, rows, expected in zip(values, found, info.class_rows, strict=True):
        if rows != expected:
            raise InputError(
                f"{place} has {rows:,} rows of class {value!r} instead of {expected:,}"
            )
    return numbers


def _check_names(info: DatasetInfo, source: pa.Table, place: str) -> None:
    wanted = [*info.columns, TARGET]
    for name in wanted:
        if source.column_names.count(name) != 1:
            raise InputError(f"{place} does not have exactly one column {name!r}")
    for name in source.column_names:
        if name not in wanted:
            raise InputError(f"{place} has a column {name!r}, which {info.title} does not have")


def _header(info: DatasetInfo, columns: dict[str, pa.Array]) -> bytes:
    described = [
        [name, "category" if kind == CATEGORY else str(kind), _levels(columns[name])]
        for name, kind in info.columns.items()
    ]
    value = {"columns": described, "classes": list(info.classes), "rows": info.source_rows}
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"{text}\n".encode()


def _levels(column: pa.Array) -> list[str] | None:
    return column.dictionary.to_pylist() if pa.types.is_dictionary(column.type) else None


def _records(columns: dict[str, pa.Array], label: NDArray[np.int64]) -> NDArray[Any]:
    """The rows as fixed-width bytes, in the source's order."""
    fields = [(name, _WIRE[column.type]) for name, column in columns.items()] + [(TARGET, "u1")]
    records = np.empty(len(label), dtype=fields)
    for name, column in columns.items():
        records[name] = _integers(column)
    records[TARGET] = label
    return records


def _integers(column: pa.Array) -> NDArray[Any]:
    if column.type == CATEGORY:
        return pc.fill_null(column.indices, -1).to_numpy() + 1
    values: NDArray[Any] = column.to_numpy()
    return np.rint(values * 1e6) if column.type == DOUBLE else values


def _one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
