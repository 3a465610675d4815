"""Claims: any frame of any mix of kinds is fit for the whole walk.

1. Fit, embed, save, load, embed: the same numbers to the last bit, all of them finite.
2. Impute leaves no missing cell but in columns that were empty, and says which; the rest stays.
3. One row, or a table without a single value, is refused.
4. Names may be any text, and the frame may come from pandas, polars or Arrow.

That the codec's inverse gives back categories and integers exactly, and other numbers within 1e-6
of their range, is in ``tests/tables/test_round_trip``, for the same tables.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.estimators.test_scikit_learn import SMALL
from tests.small import small
from tests.tables.test_round_trip import tables
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.tables import TableCodec, read_table

TINY = {**SMALL, "epochs": 1, "random_state": 0}
LIBRARIES: dict[str, Callable[[pa.Table], Any]] = {
    "arrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(date_as_object=False),
    "polars": pl.from_arrow,
}
# no colon: "when:month" is the name of a part of a datetime column
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=":"), min_size=1)
ONE = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@st.composite
def frames(draw: st.DrawFn) -> Any:
    table = draw(tables())
    named = NAMES.filter(lambda name: name.strip() != "")
    width = table.num_columns
    names = draw(st.lists(named, min_size=width, max_size=width, unique=True))
    return LIBRARIES[draw(st.sampled_from(sorted(LIBRARIES)))](table.rename_columns(names))


def walk(frame: Any, output: str) -> None:
    table = read_table(frame)
    missing = TableCodec.fit(table).missing_cells(table).values()
    if table.num_rows < 2 or all(cells.all() for cells in missing):
        with pytest.raises(InputError, match=r"one row|no cell of the table has a value"):
            small(VarTJEPA, **TINY, output=output).fit(frame)
        return
    with warnings.catch_warnings(record=True) as caught, tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("always")
        model = small(VarTJEPA, **TINY, output=output).fit(frame)
        before = model.embed(frame)
        model.save(f"{folder}/model")
        again = VarTJEPA.load(f"{folder}/model")
        after = again.embed(frame)
        np.testing.assert_array_equal(after.mean, before.mean)
        np.testing.assert_array_equal(after.std, before.std)
        np.testing.assert_array_equal(again.transform(frame), model.transform(frame))
        assert np.isfinite(before.mean).all()
        assert np.isfinite(before.std).all()
        assert again.codec_ == model.codec_
        assert list(again.get_feature_names_out()) == list(model.get_feature_names_out())
        filled = again.impute(frame)
    said = [str(warning.message) for warning in caught]
    assert_filled(read_table(filled), read_table(frame), model.codec_, said)


def assert_filled(filled: pa.Table, given: pa.Table, codec: TableCodec, said: list[str]) -> None:
    before, after = codec.missing_cells(given), codec.missing_cells(filled)
    empty = [name for name, missing in before.items() if missing.all()]
    for name, missing in before.items():
        if name in empty:
            assert any("left missing" in sentence for sentence in said)
            continue
        assert not after[name].any(), name
        kept = pa.array(~missing)
        assert filled[name].filter(kept).to_pylist() == given[name].filter(kept).to_pylist(), name


@settings(ONE, max_examples=20)
@given(frames(), st.sampled_from(["flat", "mean", "cls"]))
def test_any_frame(frame: Any, output: str) -> None:
    walk(frame, output)


@pytest.mark.soak
def test_several_hundred_frames(record_soak: Callable[[str, dict[str, Any]], None]) -> None:
    count, start = 0, time.perf_counter()

    @settings(ONE, max_examples=600)
    @given(frames(), st.sampled_from(["flat", "mean", "cls"]))
    def many(frame: Any, output: str) -> None:
        nonlocal count
        walk(frame, output)
        count += 1

    many()
    assert count >= 600
    record_soak(
        "any_frame", {"frames": count, "failures": 0, "seconds": time.perf_counter() - start}
    )
