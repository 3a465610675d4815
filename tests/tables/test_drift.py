"""Claims: later tables may differ from the training table, within reason and never silently.

1. Numbers may arrive as other number types, booleans or text; dates in other units or as text.
2. Categories match by canonical text: 1, 1.0, "1" and "1.0"; True, "true", 1; dictionaries or not.
3. Absent columns, text in a numeric column and numbers in a datetime column are refused by name.
4. Unknown levels, infinite numbers and extra columns cost one warning each per call, which names
   the columns and counts the cells; a table without them costs none.
"""

from __future__ import annotations

import datetime as dt
import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.tables.examples import arrow_table, assert_same
from varjepa.errors import InputError
from varjepa.tables import Kind, TableCodec


@pytest.mark.parametrize("fitted", ["int64", "uint8", "float32", "double", "string"])
@pytest.mark.parametrize("given", ["int8", "uint64", "float16", "double", "string", "large_string"])
def test_number_types_may_change(fitted: str, given: str) -> None:
    training = pa.table({"n": pa.array([0, 7, 10, None]).cast(pa.type_for_alias(fitted))})
    later = pa.table({"n": pa.array([3, None, 10]).cast(pa.type_for_alias(given))})
    unit = TableCodec.fit(training).to_unit(later)
    assert unit.num[:, 0].tolist() == [0.3, 0.0, 1.0]
    assert unit.observed[:, 0].tolist() == [True, False, True]


@pytest.mark.parametrize(
    "later",
    [
        pa.array([Decimal("3.0"), None]),
        pa.array([" 3 ", "NA"]),
        pa.array(["3.00", ""]).dictionary_encode(),
        pa.array([3.0, float("nan")]),
    ],
)
def test_other_numbers(later: pa.Array) -> None:
    unit = TableCodec.fit(pa.table({"n": [0, 10]})).to_unit(pa.table({"n": later}))
    assert unit.num[:, 0].tolist() == [0.3, 0.0]
    assert unit.observed[:, 0].tolist() == [True, False]


def test_booleans_given_for_numbers() -> None:
    unit = TableCodec.fit(pa.table({"n": [0, 2]})).to_unit(pa.table({"n": [True, False]}))
    assert unit.num[:, 0].tolist() == [0.5, 0.0]


def test_durations_are_seconds() -> None:
    codec = TableCodec.fit(pa.table({"s": pa.array([0, 10_000], pa.duration("ms"))}))
    for later in (pa.array([5], pa.duration("s")), pa.array([5.0]), pa.array([5])):
        assert codec.to_unit(pa.table({"s": later})).num.tolist() == [[0.5]]


@pytest.mark.parametrize(
    "later",
    [
        pa.array([dt.datetime(2020, 1, 6)], pa.timestamp("ns")),
        pa.array([dt.datetime(2020, 1, 6)], pa.timestamp("s", "Asia/Tokyo")),
        pa.array([dt.date(2020, 1, 6)]),
        pa.array(["2020-01-06"]),
        pa.array(["2020-01-06T00:00:00Z"]),
        pa.array(["2020-01-06 00:00"]).dictionary_encode(),
    ],
)
@pytest.mark.parametrize("unit", ["date32[day]", "timestamp[ms]", "timestamp[ns]"])
def test_date_units_may_change(later: pa.Array, unit: str) -> None:
    days = pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 11)]).cast(pa.type_for_alias(unit))
    encoded = TableCodec.fit(pa.table({"d": days})).to_unit(pa.table({"d": later}))
    assert encoded.num[0, 0] == 0.5


def test_dates_beyond_nanoseconds() -> None:
    days = pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 11)]).cast(pa.timestamp("ns"))
    far = pa.array([dt.datetime(9999, 1, 1), dt.datetime(1, 1, 1)], pa.timestamp("us"))
    encoded = TableCodec.fit(pa.table({"d": days})).to_unit(pa.table({"d": far}))
    assert encoded.num[:, 0].tolist() == [2.0, -1.0]


@pytest.mark.parametrize(
    ("fitted", "override"),
    [
        (pa.array(["1", "2", "a"]), None),
        (pa.array([1, 2, 3]), "categorical"),
        (pa.array([1.0, 2.0, 2.5]), "categorical"),
        (pa.array([1, 2, 3]).dictionary_encode(), None),
        (pa.array(["1", "2", "a"]).dictionary_encode(), None),
    ],
)
@pytest.mark.parametrize(
    "later",
    [
        pa.array(["2", "1", None]),
        pa.array([2, 1, None]),
        pa.array([2.0, 1.0, float("nan")]),
        pa.array([Decimal("2.00"), Decimal("1.00"), None]),
        pa.array(["2", "1", None]).dictionary_encode(),
        pa.array([2, 1, None]).dictionary_encode(),
    ],
)
def test_categories_match_by_canonical_text(
    fitted: pa.Array, override: Kind | None, later: pa.Array
) -> None:
    codec = TableCodec.fit(pa.table({"c": fitted}), {"c": override} if override else None)
    assert codec.encode(pa.table({"c": later})).cat[:, 0].tolist() == [2, 1, 0]


def test_number_text_matches_numeric_levels() -> None:
    codec = TableCodec.fit(pa.table({"c": [1, 20]}), {"c": "categorical"})
    later = pa.table({"c": [" 1.0", "20", "20.00"]})
    assert codec.encode(later).cat[:, 0].tolist() == [1, 2, 2]


def test_text_levels_are_not_merged() -> None:
    codec = TableCodec.fit(pa.table({"c": ["1", "1.0", "x"]}))
    assert codec.encode(pa.table({"c": ["1.0", "1", "x"]})).cat[:, 0].tolist() == [2, 1, 3]


@pytest.mark.parametrize(
    "later",
    [
        ["True", "FALSE", None],
        [" true", "false", ""],
        ["1", "0", None],
        [1, 0, None],
        [1.0, 0, None],
    ],
)
def test_booleans_match_their_spellings(later: list[Any]) -> None:
    codec = TableCodec.fit(pa.table({"b": [True, False]}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the empty text is not a spelling of anything
        assert codec.encode(pa.table({"b": later})).cat[:, 0].tolist() == [2, 1, 0]


@pytest.mark.parametrize(("no", "yes"), [("False", "True"), ("false", "true"), ("FALSE", "TRUE")])
def test_booleans_given_for_text(no: str, yes: str) -> None:
    codec = TableCodec.fit(pa.table({"b": [yes, no, "perhaps"]}))
    codes = codec.encode(pa.table({"b": [True, False, None]})).cat[:, 0].tolist()
    assert [codec.categorical[0].levels.texts[code - 1].as_py() for code in codes[:2]] == [yes, no]
    assert codes[2] == 0


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        ({"town": ["a"]}, "no column 'age'"),
        ({}, "no column 'age', 'town'"),
        ({"Age": [1], "town": ["a"]}, "no column 'age'"),
        ({"age": ["old"], "town": ["a"]}, "'age' holds 'old', which is not a number"),
        ({"age": [dt.date(2020, 1, 1)], "town": ["a"]}, "'age' holds date32"),
        ({"age": [[1]], "town": ["a"]}, "'age' holds list"),
        ({"age": [1], "town": [[1]]}, "'town' holds list"),
        ({"age": [1], "town": [b"a"]}, "'town' holds binary"),
    ],
)
def test_tables_that_do_not_fit(later: dict[str, list[Any]], reason: str) -> None:
    codec = TableCodec.fit(pa.table({"age": [1, 2], "town": ["a", "b"]}))
    with pytest.raises(InputError, match=reason):
        codec.encode(pa.table(later))


@pytest.mark.parametrize(
    ("later", "reason"), [([5], "'d' holds int64"), (["soon"], "'d' holds text .* 'soon'")]
)
def test_values_that_are_not_dates(later: list[Any], reason: str) -> None:
    codec = TableCodec.fit(pa.table({"d": pa.array([0, 9], pa.date32())}))
    with pytest.raises(InputError, match=reason):
        codec.encode(pa.table({"d": later}))


def warned(codec: TableCodec, table: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        codec.encode(table)
    assert all(one.category is UserWarning for one in caught)
    assert all(one.filename == __file__ for one in caught), "a warning points at its caller"
    return [str(one.message) for one in caught]


def test_one_warning_for_all_unknown_levels() -> None:
    codec = TableCodec.fit(pa.table({"c": ["a", "b"], "d": ["p", "q"], "e": [True, False]}))
    later = pa.table({"c": ["a", "z", "z"], "d": ["p", None, "y"], "e": [True, True, None]})
    assert warned(codec, later) == [
        "treated as missing: values that were not seen when the model was fitted, "
        "in 'c' (2), 'd' (1)"
    ]
    with pytest.warns(UserWarning, match="not seen"):
        encoded = codec.encode(later)
    assert encoded.cat[:, 0].tolist() == [1, 0, 0]
    assert encoded.observed[:, 0].tolist() == [True, False, False]
    assert warned(codec, later.slice(0, 1)) == []


def test_one_warning_for_all_infinite_numbers() -> None:
    inf = float("inf")
    training = pa.table({"m": [0.0, 4.0], "n": [0.0, 8.0], "o": [1.0, 2.0]})
    codec = TableCodec.fit(training)
    later = pa.table({"m": [inf, -inf, 1.0], "n": ["inf", "2", None], "o": [1.0, 1.0, 2.0]})
    assert warned(codec, later) == ["treated as missing: infinite values, in 'm' (2), 'n' (1)"]
    with pytest.warns(UserWarning, match="infinite"):
        unit = codec.to_unit(later)
    assert unit.num[:, :2].tolist() == [[0.0, 0.0], [0.0, 0.25], [0.25, 0.0]]
    assert unit.observed[:, 0].tolist() == [False, False, True]
    with pytest.warns(UserWarning, match=r"infinite values, in 'm' \(2\), 'n' \(1\)$"):
        refitted = TableCodec.fit(later)
    assert refitted.schema.left_out["m"].value == 1.0


def test_values_in_a_column_that_was_empty() -> None:
    codec = TableCodec.fit(pa.table({"n": pa.nulls(2), "m": [1, 2]}))
    later = pa.table({"n": [5, None], "m": [1, 2]})
    with pytest.warns(UserWarning, match=r"not seen .* 'n' \(1\)"):
        assert codec.encode(later).num.tolist() == [[0.0], [1.0]]
    chosen = TableCodec.fit(pa.table({"n": pa.nulls(2), "m": [1, 2]}), {"n": "numeric"})
    with pytest.warns(UserWarning, match=r"not seen .* 'n' \(1\)"):
        assert chosen.encode(later).observed[:, 0].tolist() == [False, False]


def test_one_warning_for_extra_columns() -> None:
    codec = TableCodec.fit(arrow_table())
    extra = arrow_table().append_column("p", pa.nulls(5)).append_column("q", pa.array([[1]] * 5))
    assert warned(codec, extra) == ["ignored columns that the model does not use: 'p', 'q'"]
    with pytest.warns(UserWarning, match="ignored"):
        assert_same(codec.encode(extra), codec.encode(arrow_table()))


def test_pandas_integers_with_missing_values_stay_integers() -> None:
    codec = TableCodec.fit(pd.DataFrame({"n": [1, None, 4]}))
    assert codec.decode([[0.4]], np.zeros((1, 0)))["n"].to_pylist() == [2.0]
