"""Claims: a column comes back with the Arrow type it had, holding the values it held.

1. Every supported type, under every scaling; wide decimals and floats to within rounding.
2. Any type can be treated as categories, text as dates, booleans as numbers, and still comes back.
3. Values outside the training range, on request, stay within what the type can hold.
4. Cells are shown to people in their own zone, without empty parts.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from varjepa.tables import SCALINGS, Scaling, TableCodec
from varjepa.tables.values import shown_text

TYPED = {
    "i8": pa.array([-3, None, 120], pa.int8()),
    "u64": pa.array([2**64 - 1, 2**64 - 3, None], pa.uint64()),
    "f16": pa.array(np.array([0.5, 1.5, 2.0], np.float16)),
    "f32": pa.array([0.1, None, 7.3], pa.float32()),
    "dec": pa.array([Decimal("0.07"), Decimal("99.99"), None], pa.decimal128(4, 2)),
    "dec0": pa.array([Decimal(10) ** 17 + 1, Decimal(10) ** 17, None], pa.decimal128(18, 0)),
    "dec38": pa.array([Decimal("9" * 38), Decimal(0), None], pa.decimal128(38, 0)),
    "dec19": pa.array([Decimal("9" * 17 + ".99"), Decimal(0), None], pa.decimal128(19, 2)),
    "dec32": pa.array([Decimal("1.5"), Decimal("2.5"), None], pa.decimal32(5, 1)),
    "dec256": pa.array([Decimal(10) ** 60, Decimal(0), None], pa.decimal256(76, 2)),
    "time": pa.array([dt.time(0, 0, 1), None, dt.time(23, 59, 59)], pa.time32("ms")),
    "time64": pa.array([dt.time(0, 0, 1, 5), None, dt.time(23, 59, 59)], pa.time64("ns")),
    "span": pa.array([1, None, 10**12 + 1], pa.duration("us")),
    "null": pa.nulls(3),
    "bool": pa.array([True, None, False]),
    "text": pa.array(["b", "", None]),
    "digits": pa.array(["1.5", None, "2.25"]),
    "whole": pa.array(["7", "+9", None], pa.large_string()),
    "cat": pa.array(["y", "x", None]).dictionary_encode().cast(pa.dictionary(pa.int8(), "string")),
    "ordered": pa.DictionaryArray.from_arrays([1, 0, None], ["lo", "hi"], ordered=True),
    "codes": pa.array([30, 4, None]).dictionary_encode(),
    "day": pa.array([dt.date(2020, 2, 29), None, dt.date(1950, 1, 1)]),
    "date64": pa.array([dt.date(2020, 2, 29), None, dt.date(1950, 1, 1)], pa.date64()),
    "ns": pa.array([1, None, 10**15 + 3], pa.timestamp("ns")),
    "zone": pa.array([0, None, 10**14 + 1], pa.timestamp("us", "Europe/Berlin")),
}


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("name", TYPED)
def test_types_come_back(name: str, scaling: Scaling) -> None:
    table = pa.table({"first": [1, 2, 3], name: TYPED[name], "last": ["p", "q", "r"]})
    codec = TableCodec.fit(table, scaling=scaling)
    back = codec.from_unit(codec.to_unit(table))
    assert back.schema.equals(table.schema)
    wanted = ["7", "9", None] if name == "whole" else table[name].to_pylist()
    if name in ("f32", "dec19", "dec38", "dec256"):
        for one, other in zip(back[name].to_pylist(), wanted, strict=True):
            assert (one is None) == (other is None)
            assert one is None or float(one) == pytest.approx(float(other), rel=1e-6, abs=1e-6)
    else:
        assert back[name].to_pylist() == wanted


@pytest.mark.parametrize(
    "name", ["i8", "f16", "f32", "dec", "bool", "codes", "day", "zone", "ns", "time64", "span"]
)
def test_any_column_can_be_categorical(name: str) -> None:
    table = pa.table({name: TYPED[name]})
    codec = TableCodec.fit(table, {name: "categorical"})
    assert codec.features[0].levels == len(TYPED[name].drop_null())
    encoded = codec.encode(table)
    assert codec.decode(encoded.num, encoded.cat).equals(table)


def test_text_dates_come_back_as_text() -> None:
    for values in (["2020-01-31", "2021-02-01", None], ["2020-01-31 10:00:00", None]):
        table = pa.table({"d": values})
        codec = TableCodec.fit(table, {"d": "datetime"})
        assert codec.from_unit(codec.to_unit(table)).to_pydict() == {"d": values}


def test_booleans_as_numbers() -> None:
    table = pa.table({"b": [True, False, None]})
    codec = TableCodec.fit(table, {"b": "numeric"})
    assert codec.from_unit(codec.to_unit(table)).equals(table)
    assert codec.decode([[0.3], [9.0]], np.zeros((2, 0)), clip=False)["b"].to_pylist() == [
        False,
        True,
    ]


@pytest.mark.parametrize("name", ["i8", "u64", "f16", "dec", "dec0", "time", "span", "day", "zone"])
def test_unclipped_values_stay_within_their_type(name: str) -> None:
    codec = TableCodec.fit(pa.table({name: TYPED[name]}))
    width = len(codec.numeric)
    decoded = codec.decode(np.array([[2.0], [-1.0]]).repeat(width, 1), np.zeros((2, 0)), clip=False)
    assert decoded[name].null_count == 0
    assert decoded[name].type == TYPED[name].type


def test_cells_are_shown_without_empty_parts() -> None:
    def shown(values: list[int | None], kind: pa.DataType) -> list[str | None]:
        texts: list[str | None] = shown_text(pa.chunked_array([pa.array(values, kind)])).to_pylist()
        return texts

    day, second = 86_400_000_000, 1_000_000
    assert shown([0, None, day], pa.timestamp("us")) == ["1970-01-01", None, "1970-01-02"]
    assert shown([second, 1], pa.timestamp("us")) == [
        "1970-01-01 00:00:01",
        "1970-01-01 00:00:00.000001",
    ]
    assert shown([0], pa.timestamp("us", "Asia/Tokyo")) == ["1970-01-01 09:00:00+0900"]
    assert shown([0], pa.timestamp("us", "Nowhere/At_all")) == ["1970-01-01"]
    assert shown([8 * 3600], pa.time32("s")) == ["08:00:00"]
    assert shown([90 * second, None], pa.duration("us")) == ["0:01:30", None]
    assert shown([1, None], pa.int64()) == ["1", None]
