"""Claims: each column gets the kind its values have, unless the user says otherwise by name.

1. Every supported Arrow type has its kind; text is numeric exactly if all of it is numbers.
2. Whole numbers are known as such, also in float and text columns; spans of time are not.
3. Overrides decide, and those that are unknown, misspelt or impossible are refused by name.
4. Nested, binary and extension columns are refused by name; so are tables without rows or columns.
5. Type names survive JSON.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from varjepa.errors import InputError
from varjepa.tables import Column, infer_schema, read_table
from varjepa.tables.values import parse_type

CASES: list[tuple[pa.Array, str, bool]] = [
    (pa.array([1, None], pa.int8()), "numeric", True),
    (pa.array([2**64 - 1], pa.uint64()), "numeric", True),
    (pa.array([1.5]), "numeric", False),
    (pa.array([1.5], pa.float16()), "numeric", False),
    (pa.array([1.0, None, 3.0]), "numeric", True),
    (pa.array([1e300]), "numeric", False),
    (pa.array([float("nan")]), "numeric", False),
    (pa.array([Decimal("1.50")]), "numeric", False),
    (pa.array([Decimal("3")], pa.decimal256(50, 0)), "numeric", True),
    (pa.nulls(2), "numeric", False),
    (pa.array([1], pa.time32("s")), "numeric", False),
    (pa.array([1], pa.duration("ns")), "numeric", False),
    (pa.array([True]), "categorical", False),
    (pa.array(["a", "1"]), "categorical", False),
    (pa.array(["1", " 2.5 ", None, "-1e3", "NA", ""]), "numeric", False),
    (pa.array(["1", "+2"], pa.large_string()), "numeric", True),
    (pa.array(["", "NA"]), "categorical", False),
    (pa.array([None], pa.string()), "categorical", False),
    (pa.array(["1,000"]), "categorical", False),
    (pa.array(["1"] * 2000 + ["x"]), "categorical", False),
    (pa.array(["1", "2"]).dictionary_encode(), "categorical", False),
    (pa.array([1, 2]).dictionary_encode(), "categorical", False),
    (pa.array([0], pa.date32()), "datetime", False),
    (pa.array([0], pa.date64()), "datetime", False),
    (pa.array([0], pa.timestamp("ns")), "datetime", False),
    (pa.array([0], pa.timestamp("ms", "Europe/Berlin")), "datetime", False),
]


def only_column(data: Any, override: Any = None) -> Column:
    table = read_table(pa.table({"c": data}))
    return infer_schema(table, None if override is None else {"c": override}).columns[0]


@pytest.mark.parametrize(("data", "kind", "is_integer"), CASES, ids=lambda c: str(c)[:0])
def test_kinds(data: pa.Array, kind: str, is_integer: bool) -> None:
    column = only_column(data)
    assert (column.kind, column.is_integer) == (kind, is_integer)
    assert column.type == data.type
    assert parse_type(str(column.type)) == data.type


def test_views_and_runs_are_unfolded() -> None:
    assert only_column(pa.array(["a"], pa.string_view())).type == pa.large_string()
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["p", "q"])
    assert read_table(pa.table({"c": runs}))["c"].to_pylist() == ["p", "p", "q"]


@pytest.mark.parametrize(
    ("data", "override"),
    [
        (pa.array([1, 2]), "categorical"),
        (pa.array([0], pa.date32()), "categorical"),
        (pa.array(["1", "2"]), "categorical"),
        (pa.array([True, False]), "numeric"),
        (pa.array(["1", "2"]).dictionary_encode(), "numeric"),
        (pa.array(["2020-01-01", None]), "datetime"),
        (pa.array(["2020-01-01T10:00:00Z"]), "datetime"),
    ],
)
def test_overrides(data: pa.Array, override: str) -> None:
    assert only_column(data).kind != override
    assert only_column(data, override).kind == override


@pytest.mark.parametrize(
    ("data", "override", "reason"),
    [
        (pa.array(["1", "x"]), "numeric", "'c' holds 'x', which is not a number"),
        (pa.array([0], pa.date32()), "numeric", "'c' holds date32"),
        (pa.array([1, 2]), "datetime", "'c' holds int64"),
        (pa.array(["2020-01-01", "soon"]), "datetime", "'c' holds text .* 'soon'"),
        (pa.array([1]), "ordinal", "'c' must be one of numeric, categorical, datetime"),
        (pa.array([[1]]), "categorical", "'c' holds list"),
    ],
)
def test_impossible_overrides(data: pa.Array, override: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        only_column(data, override)


def test_override_of_an_unknown_column() -> None:
    with pytest.raises(InputError, match="no column 'd' to treat as numeric"):
        infer_schema(pa.table({"c": [1]}), {"d": "numeric"})


@pytest.mark.parametrize(
    "data",
    [
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([b"x"]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    ],
)
def test_nested_and_binary_columns_are_refused(data: pa.Array) -> None:
    with pytest.raises(InputError, match=r"'c' holds .* cannot be encoded"):
        only_column(data)


def test_periods_and_intervals_are_refused() -> None:
    for values in (pd.period_range("2020-01", periods=2, freq="M"), pd.interval_range(0, 2)):
        with pytest.raises(InputError, match=r"'c' holds .* cannot be encoded"):
            infer_schema(read_table(pd.DataFrame({"c": values})))


def test_empty_tables_are_refused() -> None:
    with pytest.raises(InputError, match="no rows"):
        infer_schema(pa.table({"c": pa.array([], pa.int64())}))
    with pytest.raises(InputError, match="no columns"):
        infer_schema(pa.table({}))


@pytest.mark.parametrize("name", ["list<item: int64>", "binary", "nonsense", "decimal128(99, 1)"])
def test_unknown_type_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="not a column type"):
        parse_type(name)
