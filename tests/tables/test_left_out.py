"""Claims about columns that are not modelled.

1. Left out are empty and constant columns; of 50 values on, text of which more than .95 differ
   (free text, if it has three words and more; number text, if nearly all are amounts), and
   integers that all differ and leave few gaps, or have a name that says so. Dates and floats are
   not identifiers.
2. They have no feature. They may be absent, or of any type, when rows are encoded.
3. Decoded, a constant has its value, of the type it came with; the others are missing.
4. A kind that is given makes a column modelled. A table with no other columns keeps them all.
5. The same however the rows come in blocks; a sample of numbers and levels finds no others. It
   survives JSON; what cannot be is refused.
6. Cells with a level that training did not see are told from missing ones, and have the probability
   of Good and Turing.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.tables.test_fit_blocks import Cut
from varjepa.errors import InputError
from varjepa.tables import TableCodec
from varjepa.tables.columns import CategoricalFeature, Levels, MemoryLimits

ROWS = 200
RNG = np.random.default_rng(0)
ORDER = RNG.permutation(ROWS)
WORDS = [f"word{i % 7}" for i in range(ROWS)]

COLUMNS: dict[str, tuple[Any, str | None]] = {
    "number": (RNG.integers(0, 99, ROWS), None),
    "nothing": (pa.nulls(ROWS), "empty"),
    "no text": (pa.nulls(ROWS, pa.string()), "empty"),
    "no date": (pa.nulls(ROWS, pa.date32()), "empty"),
    "one": (np.ones(ROWS, dtype=np.int8), "constant"),
    "one and missing": (pa.array([None, 2.5] * (ROWS // 2)), "constant"),
    "word": (["a"] * ROWS, "constant"),
    "flag": (pa.array([True] * ROWS), "constant"),
    "day": ([dt.date(2020, 5, 1)] * ROWS, "constant"),
    "level": (pa.array(["a"] * ROWS).dictionary_encode(), "constant"),
    "decimal": ([Decimal("1.50")] * ROWS, "constant"),
    "span": (pa.array([90] * ROWS, pa.duration("s")), "constant"),
    "in order": (7 + 3 * np.arange(ROWS), "identifier"),
    "falling": (-np.arange(ROWS), "identifier"),
    "times of a log": (np.cumsum(RNG.integers(1, 99, ROWS)), None),
    "dense": (5000 + 10 * ORDER, "identifier"),
    "dense and missing": (pa.array(ORDER, mask=ORDER % 9 == 0), "identifier"),
    "customerId": (10**6 * ORDER + RNG.integers(0, 10**6, ROWS), "identifier"),
    "spread": (10**6 * ORDER + RNG.integers(0, 10**6, ROWS), None),
    "repeated": (ORDER // 2, None),
    "floats": (1.0 * np.arange(ROWS), None),
    "dates": (pa.array(ORDER, pa.int32()).cast(pa.date32()), None),
    "e-mail": ([f"{i}@x.org" for i in ORDER], "identifier"),
    "nearly": ([f"{max(i, 9)}@x.org" for i in ORDER], "identifier"),
    "three in four": ([f"{max(i, 50)}@x.org" for i in ORDER], None),
    "comment": ([f"there were {i} of them" for i in ORDER], "free text"),
    "German dates": ([f"{i % 28 + 1:02}.{i // 28 + 1:02}.2024" for i in ORDER], "date text"),
    "amounts": ([f"{i / 8}" for i in ORDER[:-1]] + ["?"], "number text"),
    "thousands": ([f"$ {i * 9:,}.50" for i in ORDER], "number text"),
    "account": ([f"{i:09}" for i in ORDER[:-1]] + ["?"], "identifier"),
    "addresses": ([f"10.1.{i}.{i}" for i in ORDER], "identifier"),
    "few comments": ([f"there were {i % 9} of them" for i in ORDER], None),
    "category": (WORDS, None),
}

TABLE = pa.table({name: values for name, (values, _) in COLUMNS.items()})
EXPECTED = {name: reason for name, (_, reason) in COLUMNS.items() if reason}


def reasons(codec: TableCodec) -> dict[str, str]:
    return {name: found.reason for name, found in codec.schema.left_out.items()}


def test_what_is_left_out() -> None:
    codec = TableCodec.fit(TABLE)
    assert reasons(codec) == EXPECTED
    modelled = [name for name in COLUMNS if name not in EXPECTED]
    assert [column.name for column in codec.schema.modelled] == modelled
    assert {feature.column for feature in codec.features} == set(modelled)
    assert codec.schema.names == tuple(COLUMNS)


def test_below_50_values_only_empty_and_constant_columns_are_left_out() -> None:
    expected = {n: r for n, r in EXPECTED.items() if r in ("empty", "constant")}
    assert reasons(TableCodec.fit(TABLE.slice(0, 49))) == expected
    assert "e-mail" in reasons(TableCodec.fit(TABLE.slice(0, 50)))


def test_columns_left_out_are_not_read() -> None:
    codec = TableCodec.fit(TABLE)
    encoded = codec.encode(TABLE)
    assert encoded.num.shape[1] + encoded.cat.shape[1] == len(codec.features)
    fewer = TABLE.drop_columns([*EXPECTED])
    assert codec.encode(fewer).num.equal(encoded.num)
    other = fewer.append_column("dense", pa.array([[i] for i in range(ROWS)]))
    assert codec.encode(other).num.equal(encoded.num)
    with pytest.raises(InputError, match="no column 'number'"):
        codec.encode(TABLE.drop_columns(["number"]))


def test_constants_are_decoded_and_others_missing() -> None:
    codec = TableCodec.fit(TABLE)
    decoded = codec.from_unit(codec.to_unit(TABLE))
    assert decoded.schema.equals(TABLE.schema)
    for name, reason in EXPECTED.items():
        found = set(decoded[name].to_pylist())
        known = set(TABLE[name].drop_null().to_pylist())
        assert found == (known if reason == "constant" else {None}), name


def test_a_kind_that_is_given_is_modelled() -> None:
    kinds: Any = {"e-mail": "categorical", "dense": "numeric", "one": "numeric", "no text": None}
    kinds["no text"] = "categorical"
    codec = TableCodec.fit(TABLE, kinds)
    assert reasons(codec) == {n: r for n, r in EXPECTED.items() if n not in kinds}
    assert kinds.keys() <= {feature.column for feature in codec.features}


def test_where_nothing_is_left_all_columns_are_kept() -> None:
    for names in (["e-mail"], ["dense", "one"], ["nothing"], [*EXPECTED]):
        codec = TableCodec.fit(TABLE.select(names))
        assert not codec.schema.left_out
        assert {feature.column for feature in codec.features} == set(names)


@pytest.mark.parametrize("places", [(1,), (100,), tuple(range(7, ROWS, 7))])
def test_blocks_do_not_matter(places: tuple[int, ...]) -> None:
    assert TableCodec.fit(Cut(TABLE, *places)).to_json() == TableCodec.fit(TABLE).to_json()


def test_a_sample_finds_identifiers_and_no_others() -> None:
    rows = 40_000
    table = pa.table(
        {
            "shuffled": RNG.permutation(rows),
            "drawn": RNG.integers(0, rows, rows),
            "in order": np.arange(rows),
            "text": [f"{i}@x.org" for i in range(rows)],
            "few": RNG.integers(0, 9, rows),
        }
    )
    left_out = {"shuffled": "identifier", "in order": "identifier", "text": "identifier"}
    for numbers, level_bytes in ((10**6, 1 << 26), (20_000, 50_000)):
        codec = TableCodec.fit(table, limits=MemoryLimits(numbers, level_bytes))
        assert reasons(codec) == left_out
    few = TableCodec.fit(table, limits=MemoryLimits(numbers=400))
    assert reasons(few) == {n: r for n, r in left_out.items() if n != "shuffled"}


def test_json() -> None:
    codec = TableCodec.fit(TABLE)
    again = TableCodec.from_json(json.loads(json.dumps(codec.to_json())))
    assert again == codec
    assert again.from_unit(again.to_unit(TABLE)).equals(codec.from_unit(codec.to_unit(TABLE)))


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("one", {"reason": "dull"}, "must be one of empty, constant, identifier, free text"),
        ("one", {"value": None}, "value belongs to constant columns"),
        ("one", {"value": "1"}, "must be text in categorical columns"),
        ("one", {"value": 2**70}, "integer of 64 bits"),
        ("word", {"value": 1}, "must be text in categorical columns"),
        ("day", {"value": 1.5}, "must be an integer in datetime columns"),
        ("dense", {"value": 3}, "value belongs to constant columns"),
        ("dense", {"values": -1}, "must be a count"),
        ("dense", {"missing_share": 2.0}, "must be between 0 and 1"),
        ("dense", {"more": 0}, "unknown keys"),
        ("number", {}, "codec.numeric does not fit codec.columns"),
    ],
)
def test_what_cannot_be_is_refused(name: str, change: dict[str, Any], says: str) -> None:
    plain = TableCodec.fit(TABLE).to_json()
    columns = {column["name"]: column for column in plain["columns"]}
    nothing = {"reason": "identifier", "missing_share": 0.0, "values": 9, "value": None}
    columns[name]["left_out"] = {**(columns[name]["left_out"] or nothing), **change}
    with pytest.raises(InputError, match=says):
        TableCodec.from_json(plain)


def test_levels_that_training_did_not_see() -> None:
    codec = TableCodec.fit({"c": ["a", "b", None, "a"], "n": [1, 2, 3, 4]})
    later = pa.table({"n": [1, 2, 3, 4], "c": ["b", "z", None, "a"]})
    assert {n: c.tolist() for n, c in codec.unseen_cells(later).items()} == {
        "c": [False, True, False, False]
    }


@pytest.mark.parametrize(
    ("counts", "rare", "expected"),
    [
        ((5, 1, 3, 1), 0, 2 / 10),
        ((5, 5), 0, 1 / 11),
        ((1, 1, 1), 0, 0.5),
        ((6,), 2, 2 / 8),
        ((), 0, 0.5),
    ],
)
def test_the_probability_of_a_new_level(
    counts: tuple[int, ...], rare: int, expected: float
) -> None:
    texts = pa.array([f"{i}" for i in range(len(counts))], pa.large_string())
    category = CategoricalFeature("c", Levels(texts, counts), 0.0, rare)
    assert category.unseen_probability == pytest.approx(expected)


def test_rows_of_levels_that_are_not_kept_count_as_new_ones() -> None:
    cells = ["a"] * 6 + ["b"] * 2 + ["c", None]
    (category,) = TableCodec.fit({"c": cells}, max_levels=1).categorical
    assert category.rare == 3
    assert category.unseen_probability == pytest.approx(3 / 9)
