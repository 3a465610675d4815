"""Claims: what encoded tensors hold, and what decoding gives back.

1. Features: numeric first, then categorical, in column order; a datetime column has elapsed time
   and the calendar parts that vary.
2. Missing cells are 0 and unobserved; code 0 is MISSING, levels are 1..L in sorted order.
3. Every input format gives identical tensors, and so does every column order.
4. Decoding (types: see test_types) restores missing cells: missing codes, NaN and unobserved cells.
5. Numbers are clipped to the training range by default; impossible codes and shapes are refused.
6. One row, one column, constant and all-missing columns work, and no row can be encoded.
7. Marginals describe the training rows; max_levels keeps the most frequent levels.
8. Rows can be sliced, masked and moved.
"""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.tables.examples import FORMS, arrow_table, assert_same, source
from varjepa.errors import InputError
from varjepa.tables import SCALINGS, EncodedTable, Scaling, TableCodec


def test_features_and_their_order() -> None:
    codec = TableCodec.fit(arrow_table())
    assert [(f.name, f.column, f.kind, f.levels) for f in codec.features] == [
        ("age", "age", "numeric", 0),
        ("height", "height", "numeric", 0),
        ("since:elapsed", "since", "numeric", 0),
        ("since:month", "since", "numeric", 0),
        ("since:weekday", "since", "numeric", 0),
        ("since:hour", "since", "numeric", 0),
        ("town", "town", "categorical", 3),
        ("member", "member", "categorical", 2),
    ]


def test_values_of_an_encoded_table() -> None:
    encoded = TableCodec.fit(arrow_table()).encode(arrow_table())
    assert encoded.num.dtype == torch.float32
    assert encoded.cat.dtype == torch.int64
    assert encoded.observed is not None
    assert encoded.observed.dtype == torch.bool
    age = [9 / 23, 1.0, 0.0, 0.0, 9 / 23]
    torch.testing.assert_close(encoded.num[:, 0], torch.tensor(age))
    assert encoded.observed[:, 0].tolist() == [True, True, False, True, True]
    assert encoded.cat[:, 0].tolist() == [3, 2, 3, 0, 1]  # Bäle < Rom < Ulm
    assert encoded.cat[:, 1].tolist() == [2, 1, 0, 2, 2]  # false < true
    assert encoded.observed[2].tolist() == [False, True, *[False] * 4, True, False]


def test_calendar_parts() -> None:
    when = [dt.datetime(2024, 2, 29, 4), dt.datetime(1969, 12, 31, 23), dt.datetime(2020, 6, 1)]
    unit = TableCodec.fit(pa.table({"t": when})).to_unit(pa.table({"t": when}))
    month = (np.array([2, 12, 6]) - 2) / 10
    weekday = (np.array([3, 2, 0])) / 3  # Thursday, Wednesday, Monday
    hour = np.array([4, 23, 0]) / 23
    np.testing.assert_allclose(unit.num[:, 1:], np.stack([month, weekday, hour], 1))
    assert unit.num[:, 0].argsort().tolist() == [1, 2, 0]


def test_calendar_parts_that_do_not_vary_are_left_out() -> None:
    dates = pa.table({"d": pa.array([0, 7, 14], pa.date32())})  # three Thursdays in January
    assert [f.name for f in TableCodec.fit(dates).features] == ["d:elapsed"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_encodes_alike(form: str, tmp_path: Path) -> None:
    reference, given = TableCodec.fit(arrow_table()), source(form, tmp_path)
    expected = reference.encode(arrow_table())
    assert_same(reference.encode(given), expected)
    assert_same(TableCodec.fit(given).encode(arrow_table()), expected)


def test_numpy_encodes_like_arrow() -> None:
    array = np.array([[1.0, 2.0], [np.nan, 5.0], [4.0, 2.5]])
    table = pa.table({"x1": array[:, 1], "x0": pa.array([1.0, None, 4.0])})
    codec = TableCodec.fit(array)
    assert_same(codec.encode(array), codec.encode(table))
    assert_same(codec.encode(array), codec.encode(array.astype(object)))


def test_column_and_row_order_do_not_matter() -> None:
    table = arrow_table()
    turned = table.select(table.column_names[::-1])
    codec = TableCodec.fit(table)
    assert_same(codec.encode(table), codec.encode(turned))
    shuffled = table.take([4, 2, 0, 1, 3])
    assert_same(TableCodec.fit(shuffled).encode(table), codec.encode(table))


def test_missing_cells_and_clipping_when_decoding() -> None:
    codec = TableCodec.fit(pa.table({"n": [10, 20], "c": ["a", "b"]}))
    numbers = [[-0.5], [0.26], [1.7], [np.nan], [0.5], [np.inf]]
    observed = np.ones((6, 2), dtype=bool)
    observed[4] = False
    decoded = codec.decode(numbers, [[0], [1], [2], [1], [2], [0]], observed)
    assert decoded["n"].to_pylist() == [10, 13, 20, None, None, None]
    assert decoded["c"].to_pylist() == [None, "a", "b", "a", None, None]
    unclipped = codec.decode(numbers[:3], [[0]] * 3, clip=False)
    assert unclipped["n"].to_pylist() == [5, 13, 29]  # atanh(.5) and atanh(.7) ranges outside


def test_impossible_codes_and_shapes() -> None:
    codec = TableCodec.fit(pa.table({"c": ["a", "b"]}))
    for code in (3, -1):
        with pytest.raises(ValueError, match="codes of 'c' are 0 to 2"):
            codec.decode(np.zeros((1, 0)), [[code]])
    with pytest.raises(ValueError, match="expected shapes"):
        codec.decode(np.zeros((1, 1)), [[1]])
    with pytest.raises(ValueError, match="do not describe the same cells"):
        EncodedTable(torch.zeros(2, 1), torch.zeros(2, 0).long(), torch.zeros(2, 2).bool())


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize(
    "data",
    [[3], [2.5], ["a"], [True], [None], [7, 7, None], [dt.date(2020, 1, 1)], [None, "x"]],
    ids=str,
)
def test_tiny_constant_and_empty_columns(data: list[Any], scaling: Scaling) -> None:
    table = pa.table({"c": data})
    codec = TableCodec.fit(table, scaling=scaling)
    encoded = codec.encode(table)
    assert torch.isfinite(encoded.num).all()
    assert codec.decode(encoded.num, encoded.cat, encoded.observed).equals(table)


def test_all_missing_text_is_kept() -> None:
    table = pa.table({"c": pa.array([None, None], pa.string()), "n": [1, 2]})
    codec = TableCodec.fit(table, {"c": "categorical"})
    assert codec.features[1].levels == 0
    assert codec.from_unit(codec.to_unit(table)).equals(table)


def test_no_rows_can_be_encoded() -> None:
    codec = TableCodec.fit(arrow_table())
    encoded = codec.encode(arrow_table().slice(0, 0))
    assert (len(encoded), encoded.num.shape[1], encoded.cat.shape[1]) == (0, 6, 2)
    assert codec.decode(encoded.num, encoded.cat).num_rows == 0


def test_marginals() -> None:
    table = pa.table({"n": [*range(0, 201, 2), None], "c": ["x"] * 75 + ["y"] * 25 + [None] * 2})
    numeric, categorical = TableCodec.fit(table, {"n": "numeric"}).marginals
    np.testing.assert_allclose(numeric.quantiles, np.linspace(0, 1, 101), atol=1e-12)
    assert numeric.missing_share == pytest.approx(1 / 102)
    assert categorical.counts == (75, 25)
    assert categorical.frequencies().tolist() == [0.75, 0.25]
    assert categorical.missing_share == pytest.approx(2 / 102)
    assert TableCodec.fit(pa.table({"n": pa.nulls(2)})).marginals[0].quantiles == ()


def test_max_levels_keeps_the_most_frequent() -> None:
    table = pa.table({"c": ["d", "b", "c", "a", "c", "a", "d", "d"]})
    codec = TableCodec.fit(table, max_levels=2)
    assert codec.categorical[0].levels.texts.to_pylist() == ["a", "d"]
    with pytest.warns(UserWarning, match=r"not seen .* 'c' \(3\)"):
        assert codec.encode(table).cat[:, 0].tolist() == [2, 0, 0, 1, 0, 1, 2, 2]
    with pytest.raises(InputError, match="max_levels must be at least 1"):
        TableCodec.fit(table, max_levels=0)


def test_rows_and_devices() -> None:
    encoded = TableCodec.fit(arrow_table()).encode(arrow_table())
    mask = torch.tensor([False, True, False, False, True])
    for index in (torch.tensor([1, 4]), mask, [1, 4], slice(1, 5, 3)):
        part = encoded.take(index)
        assert len(part) == 2
        assert torch.equal(part.cat, encoded.cat[[1, 4]])
        assert torch.equal(part.observed, encoded.observed[[1, 4]])
    assert encoded.to("meta").num.device.type == "meta"


def test_a_table_without_missing_cells_has_no_mask() -> None:
    codec = TableCodec.fit(arrow_table())
    complete = arrow_table().slice(0, 1)
    assert codec.encode(complete).observed is None
    assert codec.to_unit(complete).observed is None
    memory = codec.empty(6, has_missing=True)
    memory.write(0, codec.to_unit(arrow_table()))
    memory.write(5, codec.to_unit(complete))
    assert_same(memory.take(slice(0, 5)), codec.encode(arrow_table()))
    assert_same(memory.take(slice(5, 6)).drop_full_mask(), codec.encode(complete))


def test_colliding_names_are_refused() -> None:
    days = pa.array([0, 40], pa.date32())
    with pytest.raises(InputError, match="'d:month' has the name of a part"):
        TableCodec.fit(pa.table({"d": days, "d:month": [1, 2]}))


def test_codecs_are_immutable_equal_and_picklable() -> None:
    codec = TableCodec.fit(arrow_table())
    with pytest.raises(AttributeError):
        codec.scaling = "standard"  # type: ignore[misc]
    assert TableCodec.fit(arrow_table()) == codec != TableCodec.fit(arrow_table().slice(1))
    assert pickle.loads(pickle.dumps(codec)) == codec
