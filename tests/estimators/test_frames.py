"""Claims: what users pass in is refused in one sentence where it cannot be meant, and what they get
back is like what they passed in.

1. One row and a table without any value cannot be fitted, from memory or from files.
2. A mistyped column name gets a suggestion: in column_kinds, in what is given, in later tables.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.estimators.test_scikit_learn import SMALL
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.estimators.frames import with_all_columns
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
        VarTJEPA(**SMALL).fit(X)


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
