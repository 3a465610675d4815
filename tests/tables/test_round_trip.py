"""Claims: any table survives fit → encode → decode, and any codec survives JSON.

1. Mixed frames: categories, booleans, dates and integers exactly through float64, other numbers
   within 1e-6 of their range even through float32, missing cells missing; for every scaling.
2. A codec read back from its JSON text equals the codec and encodes and decodes identically.
3. JSON with a key too many, a key too few, a wrong type or parts that do not fit is an InputError.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tables.examples import all_kinds, arrow_table, assert_same, numbers
from varjepa.errors import InputError
from varjepa.tables import SCALINGS, Scaling, TableCodec

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ELEMENTS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "integer": (pa.int64(), st.integers(-(2**44), 2**44 - 1)),
    "small": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "float": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "single": (pa.float32(), st.floats(allow_nan=False, allow_infinity=False, width=32)),
    "text": (pa.string(), TEXT.map(lambda text: "t" + text)),
    "flag": (pa.bool_(), st.booleans()),
    "level": (pa.dictionary(pa.int32(), pa.string()), TEXT),
    "day": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("s"), st.datetimes().map(lambda t: t.replace(microsecond=0))),
    "zoned": (pa.timestamp("ms", "Asia/Kathmandu"), st.integers(-(2**44), 2**44 - 1)),
    "offset": (pa.int64(), st.integers(2**62, 2**62 + 2**44)),
    "unsigned": (pa.uint64(), st.integers(2**64 - 2**44, 2**64 - 1)),
    "price": (pa.decimal128(9, 2), st.decimals(-(10**7) + 1, 10**7 - 1, places=2)),
    "span": (pa.duration("ms"), st.integers(-(2**40), 2**40)),
    "clock": (pa.time32("s"), st.integers(0, 86_399)),
    "nothing": (pa.null(), st.none()),
}
EXACT_IN_FLOAT32 = {"small", "text", "flag", "level", "day", "nothing"}
MEASURED = {"float", "single", "price", "span", "clock"}
"""Numbers that are not whole: within 1e-6 of their range."""


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 12))
    kinds = draw(st.lists(st.sampled_from(sorted(ELEMENTS)), min_size=1, max_size=5))
    columns = {}
    for position, kind in enumerate(kinds):
        arrow, element = ELEMENTS[kind]
        cells = draw(st.lists(st.none() | element, min_size=rows, max_size=rows))
        columns[f"{kind}{position}"] = pa.array(cells, arrow)
    return pa.table(columns)


def counted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Spans and instants as integers."""
    if pa.types.is_time32(column.type):
        column = column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_temporal(column.type) else column


def assert_close(decoded: pa.ChunkedArray, original: pa.ChunkedArray) -> None:
    decoded, original = counted(decoded), counted(original)
    assert decoded.is_null().equals(original.is_null())
    if pa.types.is_integer(original.type) and original.null_count < len(original):
        low = min(original.drop_null().to_pylist())  # floats would merge neighbours above 2^53
        decoded, original = (
            pa.chunked_array([[None if v is None else v - low for v in column.to_pylist()]])
            for column in (decoded, original)
        )
    one, other = numbers(decoded) / 2, numbers(original) / 2  # halves: ranges may overflow
    if not np.isnan(other).all():
        allowed = 1e-6 * (np.nanmax(other) - np.nanmin(other))
        assert np.nanmax(np.abs(one - other)) <= allowed


@settings(max_examples=300)
@given(tables(), st.sampled_from(SCALINGS))
def test_any_table_survives(table: pa.Table, scaling: Scaling) -> None:
    codec = TableCodec.fit(table, all_kinds(table), scaling=scaling)
    exact = codec.from_unit(codec.to_unit(table))
    encoded = codec.encode(table)
    rounded = codec.decode(encoded.num, encoded.cat, encoded.observed)
    for decoded in (exact, rounded):
        assert decoded.schema.equals(table.schema)
    for name in table.column_names:
        kind = name.rstrip("0123456789")
        original = table[name]
        if kind in MEASURED:
            assert_close(exact[name], original)
            assert_close(rounded[name], original)
            continue
        assert exact[name].to_pylist() == original.to_pylist(), name
        if kind in EXACT_IN_FLOAT32:
            assert rounded[name].to_pylist() == original.to_pylist(), name
        else:
            assert_close(rounded[name], original)


@settings(max_examples=100)
@given(tables(), st.sampled_from(SCALINGS))
def test_codecs_survive_json(table: pa.Table, scaling: Scaling) -> None:
    codec = TableCodec.fit(table, scaling=scaling)
    again = TableCodec.from_json(json.loads(json.dumps(codec.to_json(), allow_nan=False)))
    assert again == codec
    assert again.features == codec.features
    assert again.marginals == codec.marginals
    assert_same(again.encode(table), codec.encode(table))
    unit = codec.to_unit(table)
    assert again.from_unit(unit).equals(codec.from_unit(unit))


EXTREMES = pa.table(
    {
        "wide": [-(2**63), 2**63 - 1, 0],
        "unsigned": pa.array([2**64 - 1, 2**64 - 2, None], pa.uint64()),
        "huge": [1e300, -1e300, 1 / 3],
        "tiny": [1e-300, 5e-324, None],
        "nothing": pa.nulls(3),
        "moment": pa.array([0, 1, None], pa.timestamp("ns", "Asia/Kathmandu")),
        "quoted": ['"', "\\", "\u2028\x00é"],
    }
)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_extreme_codecs_survive_json(scaling: Scaling) -> None:
    codec = TableCodec.fit(EXTREMES, scaling=scaling)
    again = TableCodec.from_json(json.loads(json.dumps(codec.to_json(), allow_nan=False)))
    assert again == codec
    assert again.to_unit(EXTREMES).num.tolist() == codec.to_unit(EXTREMES).num.tolist()
    assert codec.to_unit(EXTREMES).num.isfinite().all()


def described() -> dict[str, Any]:
    return copy.deepcopy(TableCodec.fit(arrow_table(), scaling="quantile").to_json())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every object in a JSON value, by the keys that lead to it."""
    found = [path] if isinstance(value, dict) else []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list):
            found += places(item, (*path, key))
    return found


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@pytest.mark.parametrize("path", places(described()), ids=str)
def test_every_key_is_needed_and_no_other_is_taken(path: tuple[Any, ...]) -> None:
    spoilt = described()
    at(spoilt, path)["surprise"] = 1
    with pytest.raises(InputError, match="unknown keys: 'surprise'"):
        TableCodec.from_json(spoilt)
    for key in at(described(), path):
        spoilt = described()
        del at(spoilt, path)[key]
        with pytest.raises(InputError, match=f"lacks '{key}'"):
            TableCodec.from_json(spoilt)


@pytest.mark.parametrize("path", places(described()), ids=str)
@pytest.mark.parametrize("wrong", [{"a": 1}, [[]], object()], ids=["object", "list", "thing"])
def test_wrong_types_are_refused(path: tuple[Any, ...], wrong: Any) -> None:
    for key in at(described(), path):
        spoilt = described()
        at(spoilt, path)[key] = wrong
        with pytest.raises(InputError, match=rf"{key}"):
            TableCodec.from_json(spoilt)


@pytest.mark.parametrize(
    ("path", "wrong", "reason"),
    [
        (("version",), 1, "version is 1"),
        (("version",), True, "integer of 64 bits"),
        (("format",), "other", "format must be"),
        (("scaling",), "log", "scaling must be one of"),
        (("columns", 0, "kind"), "ordinal", "kind must be one of"),
        (("columns", 0, "type"), "list<item: int64>", "not a column type"),
        (("columns", 0, "unit"), "s", "unit belongs to datetime"),
        (("columns", 0, "is_integer"), 1, "is_integer must be true or false"),
        (("columns", 0, "name"), "height", "same name twice"),
        (("columns", 0, "name"), "other", "numeric does not fit"),
        (("numeric", 0, "low"), 99, "in order"),
        (("numeric", 0, "low"), 1.5, "of one type"),
        (("numeric", 0, "low"), None, "of one type"),
        (("numeric", 0, "low"), -(2**64), "64-bit"),
        (("numeric", 0, "scale"), 0.0, "scale must be above 0"),
        (("numeric", 0, "shift"), float("nan"), "finite number"),
        (("numeric", 0, "shift"), "0", "finite number"),
        (("numeric", 0, "knots"), [0.0, 1.0], "of one length"),
        (("numeric", 0, "quantiles"), [float("inf")], "finite number"),
        (("numeric", 0, "missing_share"), 1.5, "between 0 and 1"),
        (("numeric", 0, "part"), "hour", "numeric does not fit"),
        (("categorical", 0, "levels"), ["a", "b", "a"], "distinct and sorted"),
        (("categorical", 0, "levels"), ["a"], "one count"),
        (("categorical", 0, "counts"), [1, 1, -1], "one count, not negative"),
        (("categorical", 0, "column"), "member", "categorical does not fit"),
        (("numeric",), [], "numeric does not fit"),
    ],
)
def test_wrong_values_are_refused(path: tuple[Any, ...], wrong: Any, reason: str) -> None:
    spoilt = described()
    at(spoilt, path[:-1])[path[-1]] = wrong
    with pytest.raises(InputError, match=reason):
        TableCodec.from_json(spoilt)


def test_falling_knots_are_refused() -> None:
    spoilt = described()
    spoilt["numeric"][0]["knots"].reverse()
    with pytest.raises(InputError, match="knots must increase"):
        TableCodec.from_json(spoilt)


@pytest.mark.parametrize("value", [None, [], "codec", 3])
def test_other_json_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="codec must be a JSON object"):
        TableCodec.from_json(value)


def test_unknown_dates_are_decoded_within_the_training_range() -> None:
    table = pa.table({"d": [dt.date(2020, 1, 1), dt.date(2020, 3, 1)]})
    codec = TableCodec.fit(table)
    width = len(codec.features)
    decoded = codec.decode(np.array([[-3.0], [3.0]]).repeat(width, 1), np.zeros((2, 0)))
    assert decoded.equals(table)
