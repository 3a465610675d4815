"""Claims about the bins of a numeric feature.

1. A column of few distinct values has an atom for each.
2. In a column of many, a value that many rows have is an atom, with intervals around it that do not
   reach into the gap next to it; a repeated value that is alone in its interval is an atom too.
3. Bins are sorted and disjoint but for shared ends. Every training value finds the bin that holds
   it, also after rounding to float32; shares sum to 1, and means lie inside.
4. Of many rows, the outermost thousandth and half per cent have bins of their own.
5. A column without values has no bins, a constant one has one atom.
6. Bins of a codec are those of its training rows in float32, and survive JSON; bins that cannot be
   are refused by name.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from varjepa.errors import InputError
from varjepa.tables import TableCodec
from varjepa.tables.scaling import Bins

RNG = np.random.default_rng(0)


def atoms(bins: Bins) -> list[float]:
    return [low for low, high in zip(bins.low, bins.high, strict=True) if low == high]


def check(bins: Bins, values: Any) -> None:
    """Claim 3."""
    place = bins.index(values)
    low, high = np.array(bins.low), np.array(bins.high)
    assert ((low[place] <= values) & (values <= high[place])).all()
    np.testing.assert_allclose(np.bincount(place, minlength=len(bins)) / len(values), bins.share)
    assert min(bins.share) > 0
    assert sum(bins.share) == pytest.approx(1.0)
    assert all(a <= b <= c for a, b, c in zip(bins.low, bins.mean, bins.high, strict=True))
    assert all(h <= n for h, n in zip(bins.high, bins.low[1:], strict=False))
    assert all(a < b for a, b in pairwise(bins.upper))
    assert all(a < b for a, b in pairwise(bins.knots))
    assert len(bins.upper) == len(bins) - 1


def test_few_distinct_values_are_atoms() -> None:
    values = RNG.integers(0, 48, 1000) / 47
    bins = Bins.fit(values)
    assert atoms(bins) == np.unique(values).tolist()
    assert bins.mean == bins.low == bins.knots
    check(bins, values)


def test_a_spike_is_an_atom_between_intervals() -> None:
    values = np.concatenate([np.zeros(700), RNG.uniform(0.3, 1, 200), RNG.uniform(-1, -0.5, 100)])
    bins = Bins.fit(values)
    assert atoms(bins) == [0.0]
    at = bins.low.index(0.0)
    assert bins.share[at] == 0.7
    assert bins.low[at + 1] == values[values > 0].min()
    assert bins.high[at - 1] == values[values < 0].max()
    assert 10 < len(bins) <= 48
    check(bins, values)


def test_repeated_values_alone_in_an_interval_are_atoms() -> None:
    values = np.repeat(np.arange(60) / 59, 10)
    bins = Bins.fit(values)
    assert 30 < len(atoms(bins)) < 48
    check(bins, values)


def test_continuous_values_have_no_atoms_and_even_shares() -> None:
    values = np.exp(RNG.standard_normal(1900))
    bins = Bins.fit(values)
    assert not atoms(bins)
    assert len(bins) == 48
    assert len(bins.knots) == 49
    assert (bins.knots[0], bins.knots[-1]) == (values.min(), values.max())
    assert max(bins.share) < 1.1 / 48
    check(bins, values)


def test_tails_of_many_rows_are_cut() -> None:
    values = np.exp(RNG.standard_normal(5000))
    bins = Bins.fit(values)
    assert len(bins) == 52
    low, high = np.cumsum(bins.share)[:3], np.cumsum(bins.share[::-1])[:3]
    np.testing.assert_allclose(low, [0.001, 0.005, 1 / 48], atol=3e-4)
    np.testing.assert_allclose(high, [0.001, 0.005, 1 / 48], atol=3e-4)
    check(bins, values)


def test_no_values_and_one_value() -> None:
    assert Bins.fit(np.array([])) == Bins()
    assert len(Bins()) == len(Bins().knots) == 0
    bins = Bins.fit(np.full(9, 0.5))
    assert bins == Bins((0.5,), (0.5,), (), (1.0,), (0.5,))
    assert bins.index(np.array([-1.0, 0.5, 2.0])).tolist() == [0, 0, 0]


FLOATS = st.floats(-1e30, 1e30, allow_nan=False)
DUPLICATES = st.one_of(FLOATS, st.integers(-3, 3).map(float))


@given(hnp.arrays(np.float64, st.integers(1, 200), elements=DUPLICATES), st.integers(1, 60))
def test_any_values_find_their_bin(values: Any, most: int) -> None:
    bins = Bins.fit(values, most)
    check(bins, values)
    assert len(bins) <= 2 * most
    distinct = len(np.unique(values))
    if distinct <= most:
        assert len(bins) == len(atoms(bins)) == distinct


def columns() -> pa.Table:
    return pa.table(
        {
            "price": np.append(np.exp(3 * RNG.standard_normal(2000)), 1e9),
            "rooms": RNG.integers(1, 6, 2001),
            "none": pa.nulls(2001, pa.float64()),
            "day": pa.array(RNG.integers(0, 9000, 2001), pa.int32()).cast(pa.date32()),
        }
    )


def test_bins_of_a_codec_are_those_of_its_float32_rows() -> None:
    table = columns()
    codec = TableCodec.fit(table)
    encoded = codec.encode(table)
    for i, number in enumerate(codec.numeric):
        if number.column == "none":
            assert number.bins == Bins()
            continue
        check(number.bins, encoded.num[:, i].numpy().astype(np.float64))
        assert (np.diff(np.float32(number.bins.knots)) > 0).all()
    assert [len(n.bins) for n in codec.numeric if n.column == "rooms"] == [5]
    assert TableCodec.from_json(json.loads(json.dumps(codec.to_json()))) == codec


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"low": [0.0]}, "one low, high, share and mean for each"),
        ({"upper": []}, "upper must have one number between each two bins"),
        ({"upper": [0.375, 0.125, 0.6, 0.8]}, "must be sorted and disjoint"),
        ({"mean": [9.0, 0.25, 0.5, 0.75, 1.0]}, "mean must lie between low and high"),
        ({"share": [0.9] * 5}, "share must sum to 1"),
        ({"share": [-1.0] * 5}, "must be between 0 and 1"),
        ({"high": [1e39] * 5}, "must be a finite number in float32"),
        ({"low": [], "high": [], "upper": [], "share": [], "mean": []}, "columns with values"),
        ({"low": ["0"] * 5}, "must be a finite number"),
        ({"more": []}, "unknown keys"),
    ],
)
def test_bins_that_cannot_be_are_refused(change: dict[str, Any], sentence: str) -> None:
    plain = TableCodec.fit(columns()).to_json()
    plain["numeric"][1]["bins"].update(change)
    with pytest.raises(InputError, match=rf"codec\.numeric\[1\]\.bins.*{sentence}"):
        TableCodec.from_json(plain)


def test_ends_that_are_one_in_float32_are_refused() -> None:
    plain = TableCodec.fit(columns()).to_json()
    plain["numeric"][1]["bins"] = {
        "low": [0.5, 0.5 + 1e-12],
        "high": [0.5, 0.5 + 1e-12],
        "upper": [0.5],
        "share": [0.5, 0.5],
        "mean": [0.5, 0.5 + 1e-12],
    }
    with pytest.raises(InputError, match="ends that differ in float32"):
        TableCodec.from_json(plain)
