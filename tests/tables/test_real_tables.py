"""Claims: the codec's promises hold on the paper's real tables, where ``VARJEPA_DATA`` has them.

Categories and integers come back exactly from float64; other numbers within 1e-6 of their range.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from varjepa.tables import TableCodec, read_table

NAMES = ("adult", "bank_marketing", "covertype", "credit_default", "electricity")


def real_table(name: str) -> pa.Table:
    folder = os.environ.get("VARJEPA_DATA")
    if folder is None or not (Path(folder) / f"{name}.parquet").exists():
        pytest.skip(f"VARJEPA_DATA has no {name}.parquet")
    return read_table(Path(folder) / f"{name}.parquet").slice(0, 20_000)


@pytest.mark.parametrize("name", NAMES)
def test_real_tables_come_back(name: str) -> None:
    table = real_table(name)
    codec = TableCodec.fit(table)
    unit = codec.to_unit(table)
    back = codec.from_unit(unit)
    assert back.schema.equals(table.schema)
    for column in table.column_names:
        if pa.types.is_floating(table[column].type):
            truth, found = table[column].to_numpy(), back[column].to_numpy()
            np.testing.assert_allclose(found, truth, atol=1e-6 * np.ptp(truth), rtol=0)
        else:
            assert back[column].equals(table[column])
    inside = unit.num
    if unit.observed is not None:
        inside = inside[unit.observed[:, : inside.shape[1]]]
    assert inside.min() >= 0
    assert inside.max() <= 1


def test_adults_question_marks_are_missing() -> None:
    table = real_table("adult")
    encoded = TableCodec.fit(table).encode(table)
    missing = sum(table[name].null_count for name in table.column_names)
    assert missing > 0
    assert encoded.observed is not None
    assert int((~encoded.observed).sum()) == missing
