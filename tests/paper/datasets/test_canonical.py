"""Claims: the same data has one form and one hash, and other data is refused by what differs.

1. The hash is what the file's docstring describes: written out by hand here, byte by byte.
2. Row order, wider integers, floats for whole numbers, dictionaries and blanks change nothing.
3. Categories become dictionary columns with sorted levels, missing ones null; labels are numbers.
4. A wrong row count, column, type, class, class share or value is an InputError that names it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from paper.datasets.catalogue import CATEGORY
from paper.datasets.loading import canonical_table
from tests.paper.datasets.small import SHA256, small_info, small_source
from varjepa.errors import InputError

Change = Callable[[pa.Table], pa.Table]


def replace(table: pa.Table, name: str, values: object) -> pa.Table:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return table.set_column(table.column_names.index(name), name, array)


def test_the_hash_by_hand() -> None:
    header = (
        '{"columns":[["size","int32",null],["colour","category",["blue","red"]],'
        '["day","category",["1","10","2"]],["price","double",null],["dot","uint8",null]],'
        '"classes":["no","yes"],"rows":6}\n'
    )
    colour, day, label = {None: 0, "blue": 1, "red": 2}, {1: 1, 10: 2, 2: 3}, {"no": 0, "yes": 1}
    rows = [
        struct.pack(
            ">ibbqBB",
            row["size"],
            colour[row["colour"]],
            day[row["day"]],
            round(row["price"] * 1_000_000),
            row["dot"],
            label[row["target"]],
        )
        for row in small_source().to_pylist()
    ]
    by_hand = hashlib.sha256(header.encode() + b"".join(sorted(rows))).hexdigest()
    assert by_hand == SHA256
    canonical = canonical_table(small_info(), small_source(), "here")
    assert canonical.sha256 == by_hand
    assert [rows[i] for i in canonical.order] == sorted(rows)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.take([3, 1, 5, 0, 2, 4]),
        lambda t: replace(t, "size", t["size"].combine_chunks().cast(pa.int64())),
        lambda t: replace(t, "size", t["size"].combine_chunks().cast(pa.float64())),
        lambda t: replace(t, "day", t["day"].combine_chunks().cast(pa.float64())),
        lambda t: replace(t, "day", t["day"].combine_chunks().cast(pa.string())),
        lambda t: replace(t, "colour", t["colour"].combine_chunks().dictionary_encode()),
        lambda t: replace(t, "colour", [" red", "?", "blue ", "blue", "red", "red"]),
        lambda t: t.select(["target", "dot", "price", "day", "colour", "size"]),
        lambda t: pa.concat_tables([t.slice(0, 2), t.slice(2)]),
        lambda t: replace(t, "price", [0.5, -1.25, 3.0, 0.000001 + 1e-12, 2.0, -0.0]),
    ],
)
def test_the_same_data_in_other_clothes(change: Change) -> None:
    canonical = canonical_table(small_info(), change(small_source()), "here")
    assert canonical.sha256 == SHA256
    expected = canonical_table(small_info(), small_source(), "here")
    first, second = canonical.table.take(canonical.order), expected.table.take(expected.order)
    assert first.drop_columns(["price"]).equals(second.drop_columns(["price"]))
    np.testing.assert_array_equal(canonical.label[canonical.order], expected.label[expected.order])


def test_types_of_the_result() -> None:
    canonical = canonical_table(small_info(), small_source(), "here")
    assert canonical.table.schema.types == list(small_info().columns.values())
    assert canonical.table["colour"].type == CATEGORY
    assert canonical.table["colour"].to_pylist() == ["red", None, "blue", "blue", "red", "red"]
    assert canonical.table["day"].chunk(0).dictionary.to_pylist() == ["1", "10", "2"]
    assert canonical.label.tolist() == [0, 1, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.slice(1), "here has 5 rows instead of 6"),
        (lambda t: t.drop_columns(["day"]), "here does not have exactly one column 'day'"),
        (lambda t: t.drop_columns(["target"]), "exactly one column 'target'"),
        (lambda t: t.append_column("id", t["size"]), "column 'id', which Small does not have"),
        (
            lambda t: replace(t, "size", list("abcdef")),
            "column 'size' of here holds values that are not int32",
        ),
        (
            lambda t: replace(t, "dot", [0, 256, 1, 1, 1, 0]),
            "column 'dot' of here holds values that are not uint8",
        ),
        (
            lambda t: replace(t, "size", [0.5, 300, 7, 7, 1, 0]),
            "column 'size' of here holds values that are not int32",
        ),
        (
            lambda t: replace(t, "price", [[1.0]] * 6),
            "column 'price' of here holds list<.*> values instead of double",
        ),
        (lambda t: replace(t, "price", [None, *[1.0] * 5]), "'price' of here has missing"),
        (lambda t: replace(t, "price", [float("nan"), *[1.0] * 5]), "'price' of here has missing"),
        (lambda t: replace(t, "day", [1.5, *[1.0] * 5]), "column 'day' of here holds values"),
        (lambda t: replace(t, "target", [*["no"] * 5, "maybe"]), "class 'maybe', which is none"),
        (lambda t: replace(t, "target", [*["no"] * 5, None]), "class None, which is none"),
        (lambda t: replace(t, "target", ["no"] * 6), "6 rows of class 'no' instead of 4"),
        (lambda t: replace(t, "price", [1.0] * 6), "but other values: the SHA-256"),
        (lambda t: replace(t, "colour", ["red"] * 6), "but other values: the SHA-256"),
        (
            lambda t: replace(t, "target", ["yes", "no", "no", "no", "yes", "no"]),
            "but other values: the SHA-256",
        ),
    ],
)
def test_other_data_is_refused_by_what_differs(change: Change, message: str) -> None:
    with pytest.raises(InputError, match=message):
        canonical_table(small_info(), change(small_source()), "here")
