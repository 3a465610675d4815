"""Claims about a codec that is fitted a block at a time.

1. It is the codec of the whole table, to the last digit of its JSON, however the rows are cut, for
   every kind of column and scaling, and with limits to spare.
2. What a column is follows from all its cells: text that is a number until the last block, whole
   numbers that become fractions, integers beyond 64 bits, dates of several precisions.
3. Memory is bounded: of a category with more levels than there is limits for, every level that is
   frequent is kept, with its exact count; numbers beyond the limits give quantiles within the error
   of a sample, between exact ends.
4. What cannot be read is refused as in one piece, and infinite numbers are counted over all blocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from varjepa.errors import InputError
from varjepa.tables import SCALINGS, Kind, Scaling, TableCodec
from varjepa.tables.columns import LevelSummary, MemoryLimits

ROWS = 400


def mixed() -> pa.Table:
    rng = np.random.default_rng(0)
    missing = rng.random(ROWS) < 0.1
    words = pa.array(["red", "green", "", "blue"]).take(pa.array(rng.integers(0, 4, ROWS)))
    return pa.table(
        {
            "float": pa.array(rng.normal(size=ROWS), mask=missing),
            "int": pa.array(rng.integers(-5, 5, ROWS), mask=missing),
            "uint": pa.array(rng.integers(0, 2**64 - 1, ROWS, dtype=np.uint64)),
            "integer floats": pa.array(rng.integers(0, 9, ROWS).astype(float), mask=missing),
            "constant": np.ones(ROWS),
            "nothing": pa.nulls(ROWS),
            "no numbers": pa.nulls(ROWS, pa.float32()),
            "word": words,
            "coded": words.dictionary_encode(),
            "flag": pa.array(rng.random(ROWS) < 0.5, mask=missing),
            "id": [f"id {i}" for i in rng.permutation(ROWS)],
            "digits": [str(n) for n in rng.integers(0, 99, ROWS)],
            "day": pa.array(rng.integers(0, 9000, ROWS), pa.int32()).cast(pa.date32()),
            "time": pa.array(rng.integers(0, 10**9, ROWS), pa.timestamp("ms", "UTC")),
            "span": pa.array(rng.integers(0, 10**6, ROWS), pa.duration("ms")),
            "price": [Decimal(int(n)) for n in rng.integers(0, 999, ROWS)],
        }
    )


class Cut:
    """The table's rows in blocks that begin at these places."""

    def __init__(self, table: pa.Table, *places: int) -> None:
        self.table, self.schema, self.rows = table, table.schema, table.num_rows
        self.ends = list(zip((0, *places), (*places, self.rows), strict=True))

    def blocks(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        for start, stop in self.ends:
            yield self.table.select(columns).slice(start, stop - start)


def fitted(source: Cut, limits: MemoryLimits | None = None, **options: Any) -> Any:
    return TableCodec.fit(source, limits=limits, **options).to_json()


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("places", [(), (1,), (200, 200, 399), tuple(range(37, ROWS, 37))])
@pytest.mark.parametrize("limits", [None, MemoryLimits()])
def test_the_codec_of_the_whole_table(
    scaling: Scaling, places: tuple[int, ...], limits: MemoryLimits | None
) -> None:
    table = mixed()
    whole = TableCodec.fit(table, scaling=scaling, max_levels=50).to_json()
    assert fitted(Cut(table, *places), limits, scaling=scaling, max_levels=50) == whole


@pytest.mark.parametrize(
    ("cells", "override", "expects"),
    [
        (["1", "2", "3", "x"], None, ("categorical", False)),
        (["1", "2", "3", "4"], None, ("numeric", True)),
        (["1", "2", "3", "4.5"], None, ("numeric", False)),
        (["1", "2", "3", "4.0"], None, ("numeric", True)),
        (["NA", "", "3.5", "4"], None, ("numeric", False)),
        (["NULL", "", "3", "4"], None, ("categorical", False)),  # codes, and a word for none
        ([None, "", "3", "4"], None, ("numeric", True)),
        (["NA", "", "NA", ""], None, ("categorical", False)),
        (["1", "2", "3", str(2**64 - 1)], None, ("numeric", True)),
        (["-1", "2", "3", str(2**64 - 1)], None, ("numeric", False)),
        (["1", "2", "3", "9" * 25], None, ("numeric", False)),
        ([str(2**60), "2", "3", "4.0"], None, ("numeric", False)),
        ([1.0, 2.0, 3.0, 4.5], None, ("numeric", False)),
        ([1.0, 2.0, None, 4.0], None, ("numeric", True)),
        ([Decimal(1), Decimal(2), Decimal(3), Decimal(10**30)], None, ("numeric", False)),
        (["2020-01-01", "2020-01-02", None, "2020-01-03"], "datetime", ("datetime", False)),
        (["2020-01-01", "2020-01-02", None, "2020-01-03 10:00:00.5"], "datetime", ("datetime", 0)),
        (["1", "2", "3", "4"], "categorical", ("categorical", False)),
        ([1, 2, 3, 4], "categorical", ("categorical", False)),
    ],
)
def test_what_a_column_is_follows_from_all_its_cells(
    cells: list[Any], override: Kind | None, expects: tuple[str, bool]
) -> None:
    table = pa.table({"c": cells})
    kinds = None if override is None else {"c": override}
    whole = TableCodec.fit(table, kinds)
    column = whole.schema.columns[0]
    assert (column.kind, column.is_integer) == expects
    for places in ((1, 2, 3), (2,), (3,)):
        assert fitted(Cut(table, *places), overrides=kinds) == whole.to_json(), places


def test_dates_that_no_type_reads_together() -> None:
    table = pa.table({"c": ["2020-01-01T00:00:00", "2020-01-01T00:00:00Z"]})
    for source in (Cut(table), Cut(table, 1)):
        with pytest.raises(InputError, match="column 'c' holds text that is not ISO 8601"):
            fitted(source, overrides={"c": "datetime"})


def test_more_levels_than_the_limits_allow() -> None:
    """Frequent levels among a hundred times as many rare ones than are held."""
    rng = np.random.default_rng(0)
    rows, frequent = 60_000, 40
    shares = np.repeat([0.01, 0.6], [frequent, 1]).cumsum()
    which = np.searchsorted(shares, rng.random(rows))
    cells = [f"often {w}" if w < frequent else f"once {i}" for i, w in enumerate(which)]
    table = pa.table({"c": pa.array(cells), "d": pa.array(which % 3).cast(pa.string())})
    source = Cut(table, *range(1000, rows, 1000))
    kinds: dict[str, Kind] = {"d": "categorical"}
    whole = TableCodec.fit(table, kinds, max_levels=frequent).to_json()
    limits = MemoryLimits(level_bytes=40_000)
    assert fitted(source, limits, overrides=kinds, max_levels=frequent) == whole

    found = LevelSummary(limits.level_bytes // 2)
    largest = 0
    for block in source.blocks(["c"]):
        found.add(block["c"])
        largest = max(largest, found.counts().num_rows)
    assert 0 < found.lost < rows * 0.01  # the frequent ones cannot have gone
    assert largest < 1000


def test_a_category_of_nothing_but_rare_levels_stays_bounded() -> None:
    rows = 20_000
    table = pa.table({"id": [f"id {i}" for i in range(rows)], "n": np.arange(rows)})
    source = Cut(table, *range(500, rows, 500))
    codec = TableCodec.fit(source, max_levels=100, limits=MemoryLimits(level_bytes=20_000))
    assert len(codec.categorical[0].levels) <= 100
    assert set(codec.categorical[0].levels.counts) <= {1}
    assert TableCodec.from_json(codec.to_json()).to_json() == codec.to_json()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_quantiles_beyond_the_limits_are_those_of_a_sample(scaling: Scaling) -> None:
    rng = np.random.default_rng(0)
    rows = 50_000
    table = pa.table({"a": rng.exponential(size=rows), "b": rng.integers(0, 2**40, rows)})
    limits = MemoryLimits(numbers=20_000)
    source = Cut(table, *range(999, rows, 999))
    few = TableCodec.fit(source, scaling=scaling, limits=limits)
    again = TableCodec.fit(Cut(table, 7), scaling=scaling, limits=limits)
    assert few.to_json() == again.to_json()  # blocks do not matter to the sample either
    whole = TableCodec.fit(table, scaling=scaling)
    for mine, exact in zip(few.numeric, whole.numeric, strict=True):
        assert (mine.scaler.low, mine.scaler.high) == (exact.scaler.low, exact.scaler.high)
        assert mine.marginal.missing_share == exact.marginal.missing_share
        # ranks: 10,000 of 50,000 rows, so a standard error of at most half a hundredth
        units = np.sort(mine.scaler.to_unit(table[mine.column].to_numpy()))
        ranks = np.searchsorted(units, mine.marginal.quantiles) / rows
        assert np.abs(ranks - np.linspace(0, 1, 101)).max() < 0.02
        ends = mine.marginal.quantiles[0], mine.marginal.quantiles[-1]
        assert ends == (units[0], units[-1])


def test_what_cannot_be_read_is_refused_in_any_block() -> None:
    table = pa.table({"c": ["1", "2", "x"]})
    with pytest.raises(InputError, match="column 'c' holds 'x', which is not a number"):
        fitted(Cut(table, 2), overrides={"c": "numeric"})
    with pytest.raises(InputError, match="no column 'd'"):
        fitted(Cut(table, 2), overrides={"d": "numeric"})
    with pytest.raises(InputError, match="the table has no rows"):
        fitted(table.slice(0, 0), Cut(table.slice(0, 0)))
    with pytest.raises(InputError, match="max_levels must be at least 1"):
        fitted(Cut(table), max_levels=0)


def test_infinite_numbers_are_counted_once() -> None:
    table = pa.table({"c": [1.0, np.inf, 2.0, -np.inf, 3.0]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted(Cut(table, 2, 4))
    assert [str(w.message) for w in caught] == ["treated as missing: infinite values, in 'c' (2)"]
