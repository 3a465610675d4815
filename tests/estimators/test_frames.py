"""Claims: what users pass in is refused in one sentence where it cannot be meant, and what they get
back is like what they passed in.

1. One row and a table without any value cannot be fitted, from memory or from files.
2. A mistyped column name gets a suggestion: in column_kinds, in what is given, in later tables.
3. Imputing keeps types: pandas categories (ordered ones too), nullable integers, booleans and text,
   dates with a zone, polars categories and enums, Arrow dictionaries. A level that the frame's own
   type lacks is added to it.
4. Column names that are integers stay integers, and known cells of mixed objects the objects they
   were.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.estimators.test_scikit_learn import SMALL
from tests.small import small
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.estimators.frames import fill_missing, like_input, with_all_columns
from varjepa.tables import TableCodec, TableFiles, write_table


def in_files(table: pa.Table, folder: Path) -> TableFiles:
    write_table(table, folder / "t.parquet")
    return TableFiles.find(folder)


@pytest.mark.parametrize("form", ["array", "frame", "files"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, 2.0]], r"^a model cannot be fitted to one row \(1 sample\); give at least two$"),
        ([[np.nan, np.inf]] * 3, "^no cell of the table has a value$"),
    ],
)
def test_too_little_to_fit(form: str, values: Any, message: str, tmp_path: Path) -> None:
    X: Any = np.array(values)
    if form != "array":
        X = pd.DataFrame(X, columns=["a", "b"])
    if form == "files":
        X = in_files(pa.Table.from_pandas(X), tmp_path)
    with warnings.catch_warnings(), pytest.raises(InputError, match=message):
        warnings.simplefilter("ignore")  # infinite values are missing
        small(VarTJEPA, **SMALL).fit(X)


def test_mistyped_columns_get_a_suggestion() -> None:
    frame = pd.DataFrame({"age": [1, 2, 3], "town": ["a", "b", "c"]})
    with pytest.raises(InputError, match="no column 'Aeg' to treat as numeric; did you mean 'age'"):
        TableCodec.fit(frame, {"Aeg": "numeric"})
    codec = TableCodec.fit(frame)
    with pytest.raises(InputError, match="knows no column 'towm'; did you mean 'town'"):
        with_all_columns(pa.table({"towm": ["a"]}), codec)
    with pytest.raises(InputError, match=r"no column 'town'; did you mean 'tonw'"):
        codec.encode(frame.rename(columns={"town": "tonw"}))
    with pytest.raises(InputError, match=r"no column 'weight' to treat as numeric$"):
        TableCodec.fit(frame, {"weight": "numeric"})


def pandas_frame() -> pd.DataFrame:
    sizes = pd.CategoricalDtype(["S", "M", "L"], ordered=True)
    return pd.DataFrame(
        {
            "size": pd.Series(["S", None, "L", "M"], dtype=sizes),
            "colour": pd.Series(["red", "blue", None, "red"], dtype="category"),
            "grade": pd.Series([1, 2, None, 1], dtype="category"),
            "count": pd.Series([1, None, 3, 4], dtype="Int64"),
            "small": pd.Series([1, None, 3, 4], dtype="Int8"),
            "yes": pd.Series([True, None, False, True], dtype="boolean"),
            "text": pd.Series(["a", None, "b", "a"], dtype="string"),
            "real": pd.Series([0.5, None, 1.5, 2.5], dtype="Float64"),
            "single": pd.Series([0.5, None, 1.5, 2.5], dtype="float32"),
            "when": pd.to_datetime(["2020-01-01", None, "2021-01-01", "2022-01-01"], utc=True),
            "complete": pd.Series([1, 2, 3, 4], dtype="uint8"),
        },
        index=[7, 5, 3, 1],
    )


def polars_frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "colour": pl.Series(["red", "blue", None, "red"], dtype=pl.Categorical),
            "size": pl.Series(["S", None, "L", "M"], dtype=pl.Enum(["S", "M", "L"])),
            "count": pl.Series([1, None, 3, 4], dtype=pl.Int16),
            "yes": [True, None, False, True],
            "complete": pl.Series(["S"] * 4, dtype=pl.Enum(["S", "M", "L"])),
        }
    )


@pytest.mark.parametrize("make", [pandas_frame, polars_frame])
def test_imputing_keeps_types(make: Callable[[], Any]) -> None:
    frame = make()
    filled = small(VarTJEPA, **SMALL, random_state=0).fit(frame).impute(frame)
    assert list(filled.columns) == list(frame.columns)
    assert list(filled.dtypes) == list(frame.dtypes)
    for name in frame.columns:
        before, after = frame[name].to_list(), filled[name].to_list()
        assert not pd.isna(pd.Series(after)).any(), name
        assert [a for a, b in zip(after, before, strict=True) if not pd.isna(b)] == [
            b for b in before if not pd.isna(b)
        ]
    if isinstance(frame, pd.DataFrame):
        assert filled.index.equals(frame.index)


def test_levels_that_the_frame_lacks_are_added() -> None:
    table = pa.table({"c": ["a", "b", "new"], "n": [1, 2, 3]})
    columns = {"c": ["a", "b", None], "n": [1, 2, 3]}
    frame = pd.DataFrame(columns).astype({"c": "category", "n": "Int64"})
    filled = like_input(table, frame)
    assert list(filled["c"].cat.categories) == ["a", "b", "new"]
    assert filled["c"].tolist() == ["a", "b", "new"]
    assert filled["n"].dtype == "Int64"
    enums = pl.DataFrame(columns, schema_overrides={"c": pl.Enum(["a", "b"])})
    for given in (enums, enums.lazy()):
        filled = like_input(table, given)
        assert filled.schema["c"] == pl.Enum(["a", "b", "new"])
    kinds = {"c": pl.Categorical}
    assert like_input(table, pl.DataFrame(columns, schema_overrides=kinds)).schema["c"] == (
        pl.Categorical
    )


def test_arrow_dictionaries_stay_dictionaries() -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    table = pa.table({"c": pa.array(["a", None, "b"]).cast(kind), "n": [1.0, 2.0, 3.0]})
    values = pa.table({"c": pa.array(["b", "b", "b"]).cast(kind), "n": [1.0, 2.0, 3.0]})
    filled = fill_missing(table, values, TableCodec.fit(table))
    assert filled.schema == table.schema
    assert filled["c"].to_pylist() == ["a", "b", "b"]


def test_ordered_levels_keep_their_order() -> None:
    kind = pa.dictionary(pa.int8(), pa.large_string(), ordered=True)

    def column(codes: list[int | None], levels: list[str]) -> pa.Array:
        texts = pa.array(levels, pa.large_string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), texts, ordered=True)

    table = pa.table({"c": column([2, None, 0, 1], ["low", "middle", "high"])})
    values = pa.table({"c": column([0, 1, 1, 1], ["high", "low", "middle"])})
    codec = TableCodec.fit(table)
    filled = fill_missing(table, values, codec)["c"]
    assert filled.type == kind
    assert filled.to_pylist() == ["high", "low", "low", "middle"]
    assert filled.chunk(0).dictionary.to_pylist() == ["low", "middle", "high"]
    nothing = pa.table({"c": pa.nulls(4, kind)})
    drawn = fill_missing(nothing, values, codec)["c"]
    assert drawn.to_pylist() == ["high", "low", "low", "low"]
    assert drawn.chunk(0).dictionary.to_pylist() == ["high", "low", "middle"]
    assert not drawn.type.ordered  # the order of the levels is not known here


def test_a_missing_boolean_is_not_false() -> None:
    frame = pd.DataFrame({"flag": [True, False, True]})
    predicted = like_input(pa.table({"flag": [None, False, None]}), frame)
    assert predicted["flag"].isna().tolist() == [True, False, True]
    assert like_input(pa.table({"flag": [True, False, True]}), frame)["flag"].dtype == bool


def test_names_and_known_cells_of_pandas_stay_what_they_were() -> None:
    mixed = pd.Series([1, "a", None, True, "b", 1], dtype=object)
    frame = pd.DataFrame({0: [0.5, None, 1.5, 2.5, 1.0, 0.0], 7: mixed})
    model = small(VarTJEPA, **SMALL, random_state=0).fit(frame)
    filled = model.impute(frame)
    predictions = model.predict_cells(frame)
    for result in (filled, predictions.best, model.cell_uncertainty(frame)):
        assert list(result.columns) == [0, 7]
    assert [type(cell) for cell in filled[7]] == [int, str, str, bool, str, int]
    assert not frame.fillna(filled).isna().any().any()
    assert np.isfinite(predictions.levels(7).to_numpy()[2]).all()
