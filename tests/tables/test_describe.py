"""Claims:

1. A description names every column in the table's order, with its kind, its range or levels, and
   its share of missing values; the same for a table and for the codec fitted to it.
2. Noted are columns that are not modelled (empty, constant, identifiers, free text), integers that
   look like codes, numbers with text among them, and levels that are too many; nothing else is.
   Counts, two values and spikes do not look like codes. A saved codec notes the same.
3. It only reports: the codec is the same with and without it.
4. Its lines fit 80 columns, however long names, levels and numbers are, and are printable.
"""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from varjepa.tables import TableCodec
from varjepa.tables.describe import ColumnDescription, describe_codec, describe_table

ROWS = 60
RNG = np.random.default_rng(0)
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(days=30 * i) for i in range(ROWS)]


def mixed() -> pa.Table:
    return pa.table(
        {
            "when": DAYS,
            "income": RNG.normal(size=ROWS) * 1000,
            "age": [20 + (7 * i) % 50 for i in range(ROWS)],
            "town": pa.array(["Ulm", "Rom", None] * (ROWS // 3)),
            "customer_id": range(1000, 1000 + ROWS),
            "ZipCode": [10_000 + 37 * (i % 29) for i in range(ROWS)],
            "grade": [1 + i % 4 for i in range(ROWS)],
            "e-mail": [f"{i}@x.org" for i in range(ROWS)],
            "country": ["CH"] * ROWS,
            "year": [2024] * ROWS,
            "nothing": pa.nulls(ROWS, pa.float64()),
            "nobody": pa.nulls(ROWS, pa.string()),
            "birthday": [DAYS[0]] * ROWS,
            "flag": [i % 2 == 0 for i in range(ROWS)],
        }
    )


def test_both_ends_of_a_range_of_time_are_legible() -> None:
    hour = 3_600_000_000
    for zone in (None, "Europe/Berlin"):
        kind = pa.timestamp("us", zone)
        table = {"days": [0, 70, 1000], "hours": [1, 2, 3]}
        times = pa.table({n: pa.array([t * hour for t in ts], kind) for n, ts in table.items()})
        found = {column.name: column.values for column in describe_table(times).columns}
        assert found["days"].startswith("1970-01-01 to 1970-02-11")
        assert found["hours"].startswith("1970-01-01 0")


def test_every_column_is_described() -> None:
    description = describe_table(mixed())
    assert [column.name for column in description.columns] == mixed().column_names
    found = {column.name: column for column in description.columns}
    assert found["age"] == ColumnDescription("age", "numeric", "20 to 69, integers", 0.0)
    assert found["when"].values == "2020-01-01 to 2024-11-05, month, weekday"
    town = found["town"]
    assert (town.values, town.levels) == ("2 levels: Rom, Ulm", 2)
    assert town.missing == pytest.approx(1 / 3)
    assert description.rows == ROWS


def test_what_to_check_is_noted() -> None:
    description = describe_table(mixed())
    assert {note: description.noted(note) for note in ("empty", "constant", "identifier")} == {
        "empty": ["nothing", "nobody"],
        "constant": ["country", "year", "birthday"],
        "identifier": ["customer_id", "e-mail"],
    }
    assert description.noted("code") == ["ZipCode", "grade"]
    assert description.noted("rare levels") == []


def test_a_codec_says_the_same() -> None:
    table = mixed()
    codec = TableCodec.fit(table)
    before = codec.to_json()
    assert describe_codec(codec, table.num_rows) == describe_table(table)
    saved = describe_codec(TableCodec.from_json(before))
    assert saved.rows is None
    told = [(c.name, c.kind, c.values, c.missing, c.levels) for c in saved.columns]
    assert told == [
        (c.name, c.kind, c.values, c.missing, c.levels) for c in describe_table(table).columns
    ]
    for note in ("empty", "constant", "identifier", "code"):
        assert saved.noted(note) == describe_table(table).noted(note)
    assert codec.to_json() == before == TableCodec.fit(table).to_json()


def test_rare_levels_are_noted() -> None:
    table = pa.table({"c": [f"l{i % 30}" for i in range(ROWS)], "d": ["a", "b"] * 30})
    assert describe_codec(TableCodec.fit(table, max_levels=5)).noted("rare levels") == ["c"]
    assert describe_codec(TableCodec.fit(table, max_levels=30)).noted("rare levels") == []


@pytest.mark.parametrize("form", ["{:02}.03.2024", "3/{}/24", "{:02}-03-2024 12:30"])
def test_dates_in_another_form_are_noted(form: str) -> None:
    dates = [form.format(i % 9 + 1) for i in range(90)]
    description = describe_table({"day": dates, "score": [f"{i % 9}-1" for i in range(90)]})
    assert description.noted("date levels") == ["day"]
    assert "(ISO 8601), so each is a category of its own: 'day'." in str(description).replace(
        "\n  ", " "
    )
    assert describe_table({"day": [*dates, "soon"]}).noted("date levels") == []


@pytest.mark.parametrize("form", ["{}.5", "{}%", "1,{:03}", "-{},5"])
def test_numbers_among_text_are_noted(form: str) -> None:
    amounts = [form.format(i % 45 + 100) for i in range(90)]
    codes = [f"{i % 45:05}" for i in range(90)]
    few = [f"{i % 9}" for i in range(90)]
    description = describe_table(
        {"amount": [*amounts, "?"], "zip": [*codes, "?"], "children": [*few, "10+"]}
    )
    assert description.noted("number levels") == ["amount"]
    assert "so each is a category: 'amount'." in str(description).replace("\n  ", " ")


def test_what_looks_like_codes() -> None:
    few = RNG.integers(0, 12, 900)
    columns = {
        "month": 1 + few,
        "region": np.array([3, 7, 20, 21])[few % 4],
        "children": np.minimum(RNG.poisson(1.5, 900), 5),
        "flag": few % 2,
        "many": RNG.integers(0, 21, 900),
        "spiked": np.where(RNG.random(900) < 0.9, 0, RNG.integers(0, 5000, 900)),
        "code of many": RNG.integers(0, 9000, 900),
        "fractions": few / 4,
    }
    assert describe_table(columns).noted("code") == ["month", "region", "code of many"]


def test_kinds_can_be_said() -> None:
    description = describe_table(mixed(), {"grade": "categorical"})
    assert "grade" not in description.noted("code")
    assert next(c for c in description.columns if c.name == "grade").levels == 4


def test_lines_fit_80_columns() -> None:
    wild = {
        "x" * 300: ["y" * 300] * 30,
        "new\nline\x1b[31m": [f"a\tb{i}" for i in range(30)],
        "large": [1.7976931348623157e308 * (-1) ** i for i in range(30)],
        "wide": [10**18 + i for i in range(30)],
        **{f"column number {i}": [i, 0.5, 1.0] * 10 for i in range(100)},
    }
    for table in (mixed(), pa.table(wild)):
        lines = describe_table(table).lines()
        assert max(map(len, lines)) <= 80
        assert all(line.isprintable() for line in lines)
    assert "  … and 64 more columns" in lines
    assert lines[0] == "30 rows, 104 columns: 102 numeric, 2 categorical"


@pytest.mark.parametrize(
    "table",
    [
        {"s": pa.array([1, 2, None], pa.duration("s"))},
        {"t": pa.array([1, 2, None], pa.time32("s"))},
        {"d": pa.array([1, 2, None], pa.decimal128(5, 2))},
        {"z": pa.array([1, 2, None], pa.timestamp("us", "Europe/Zurich"))},
        {"b": pa.array([True, None, False]).dictionary_encode()},
        {"n": pa.nulls(3)},
        {"u": pa.array([0, 2**64 - 1, None], pa.uint64())},
        {"c": pa.array(["2020-01-01", None, "2021-01-01"]).dictionary_encode()},
    ],
)
def test_any_type_is_described(table: dict[str, pa.Array]) -> None:
    lines = describe_table(pa.table(table)).lines()
    assert len(lines) >= 2
    for kind in ("numeric", "categorical", "datetime"):
        try:
            codec = TableCodec.fit(pa.table(table), dict.fromkeys(table, kind))
        except ValueError:
            continue
        assert len(describe_codec(codec).lines()) >= 2
