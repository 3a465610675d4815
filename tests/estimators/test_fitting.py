"""Claims about how wide the default networks are, and about rows that are drawn to be held.

0. Networks that nobody asked for are half as wide up to 2,000 training rows. A saved model keeps
   its width, and an architecture that was given is used as it is. Infinite values are said once.

Of a table in files, the rows to be held:

1. They are different rows with their own values and labels: the held-out ones, by numbers that
   ascend, and others to learn from; as many as asked for, and no more than there are.
2. The first of those to learn from, which the collapse alarm looks at, are from all over the table,
   also where it is sorted.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from varjepa.estimators import VarTJEPA, fitting
from varjepa.estimators.fitting import draw_rows
from varjepa.settings import Architecture, Training
from varjepa.tables import TableCodec
from varjepa.tables.streaming import TableFiles

ROWS = 5_000


@pytest.mark.parametrize(("rows", "width"), [(2_000, 64), (2_001, 128)])
def test_default_width(rows: int, width: int, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(rows, 2))
    one_step = Training(max_steps=1, validation_share=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a collapse
        model = VarTJEPA(training=one_step, random_state=0).fit(X)
    assert model.transform(X[:3]).shape == (3, 2 * width)
    assert len(model.get_feature_names_out()) == 2 * width
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        VarTJEPA.load(tmp_path / "model").transform(X[:3]), model.transform(X[:3])
    )
    assert model.architecture is None


def test_an_architecture_is_used_as_it_is() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = VarTJEPA(Architecture(), training=Training(max_steps=1), random_state=0).fit(X)
    assert model.transform(X).shape == (60, 2 * 128)


def test_infinite_values_are_said_once() -> None:
    X = pa.table({"a": [*np.arange(58.0), np.inf, -np.inf], "b": np.arange(60.0) % 7})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        VarTJEPA(training=Training(max_steps=1), random_state=0).fit(X)
    said = [str(warning.message) for warning in caught if "missing" in str(warning.message)]
    assert said == ["treated as missing: infinite values, in 'a' (2)"]


@pytest.fixture
def files(tmp_path: Path) -> TableFiles:
    for i, numbers in enumerate(np.array_split(np.arange(ROWS), 3)):
        table = pa.table({"n": numbers, "y": [f"label {n}" for n in numbers]})
        pa.parquet.write_table(table, tmp_path / f"{i}.parquet", row_group_size=700)
    return TableFiles.find(tmp_path, labels="y")


@pytest.mark.parametrize(("share", "probe"), [(0.1, 8192), (0.1, 300), (0.0, 300), (0.9, 8192)])
def test_the_rows_drawn(
    share: float, probe: int, files: TableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "PROBE_ROWS", probe)
    codec = TableCodec.fit(files)
    drawn = draw_rows(files, codec, None, share, 0)
    held_out = int(share * ROWS)
    assert len(drawn.held_out) == held_out
    assert len(drawn.encoded) == min(ROWS, held_out + probe)
    numbers = np.rint(drawn.encoded.num[:, 0].numpy() * (ROWS - 1)).astype(int)
    assert len(np.unique(numbers)) == len(numbers)
    assert drawn.labels is not None
    assert drawn.labels.tolist() == [f"label {n}" for n in numbers]
    np.testing.assert_array_equal(drawn.held_out, np.sort(numbers[:held_out]))
    of_array = draw_rows(files, codec, np.arange(ROWS), share, 0)
    assert of_array.labels is not None
    np.testing.assert_array_equal(of_array.labels, numbers)
    for part in (drawn.validation, drawn.training):
        first = numbers[part.numpy()[:200]]
        assert 0.4 * ROWS < first.mean() < 0.6 * ROWS
        assert np.ptp(first) > 0.9 * ROWS
