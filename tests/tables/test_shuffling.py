"""Claims about reading large files in random order.

1. Every pass has every row once but those left out, with its values, in an order of its own; the
   same seed gives the same order, another seed another.
2. Any window can be read by itself, in any order, and across the end of a pass; windows next to
   each other together are the sequence.
3. A window of a table sorted by some column has rows from all over it.
4. A row group is read forward and a few at a time, small ones together: no row is decoded more than
   once in a pass.
5. What was open is let go with the reading, at once: the pages of a finished fit are not there in
   the next.
"""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.tables import shuffling, streaming
from varjepa.tables.shuffling import AT_ONCE, ShuffledFiles
from varjepa.tables.streaming import TableFiles

ROWS = 1000
LEFT_OUT = np.array([0, 1, 2, 17, 250, 251, 999])


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "STRETCH", 13)


@pytest.fixture
def files(tmp_path: Path) -> TableFiles:
    ends = [0, 40, 41, 300, 300, 800, ROWS]
    for i, (start, stop) in enumerate(pairwise(ends)):
        numbers = np.arange(start, stop)
        table = pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]})
        pa.parquet.write_table(table, tmp_path / f"{i}.parquet", row_group_size=90)
    return TableFiles.find(tmp_path)


def numbers_of(shuffled: ShuffledFiles, start: int, count: int) -> NDArray[np.int64]:
    found = []
    for table, numbers in shuffled.read(start, count):
        assert table["n"].to_pylist() == numbers.tolist()
        assert table["text"].to_pylist() == [f"row {n}" for n in numbers]
        found.append(numbers)
    return np.concatenate(found)


def test_every_pass_has_every_row_once(files: TableFiles) -> None:
    shuffled = ShuffledFiles(files, LEFT_OUT, 0)
    size = len(shuffled)
    assert size == ROWS - len(LEFT_OUT)
    first, second = (numbers_of(shuffled, k * size, size) for k in (0, 1))
    rest = np.setdiff1d(np.arange(ROWS), LEFT_OUT)
    np.testing.assert_array_equal(np.sort(first), rest)
    np.testing.assert_array_equal(np.sort(second), rest)
    assert (first != second).mean() > 0.5
    again, other = (numbers_of(ShuffledFiles(files, LEFT_OUT, seed), 0, size) for seed in (0, 1))
    np.testing.assert_array_equal(again, first)
    assert (other != first).mean() > 0.5


def test_any_window_by_itself(files: TableFiles) -> None:
    shuffled = ShuffledFiles(files, LEFT_OUT, 0)
    sequence = numbers_of(ShuffledFiles(files, LEFT_OUT, 0), 0, 3 * len(shuffled))
    for start in (700, 0, 70, 71, 1400, 140, 2100, 980, 1470):
        window = numbers_of(shuffled, start, 70)
        np.testing.assert_array_equal(window, sequence[start : start + 70], str(start))


def test_a_window_has_rows_from_all_over(files: TableFiles) -> None:
    window = numbers_of(ShuffledFiles(files, LEFT_OUT, 0), 0, 300)
    assert len(np.unique(window // 90)) >= 2 * AT_ONCE - 1
    assert np.ptp(window) > ROWS / 2


def test_a_group_is_read_forward(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []
    read = TableFiles.file_blocks

    def counted(self: TableFiles, number: int, *rest: Any) -> Any:
        starts.append((number, rest[2]))
        return read(self, number, *rest)

    monkeypatch.setattr(TableFiles, "file_blocks", counted)
    shuffled = ShuffledFiles(files, LEFT_OUT, 0)
    for start in range(0, len(shuffled), 50):
        numbers_of(shuffled, start, min(50, len(shuffled) - start))
        assert len(shuffled._open) <= AT_ONCE
    groups = {(g.file, g.start) for g in shuffled.groups}
    near = {(f, s - k) for f, s in starts for k in range(4)}  # the first rows may be left out
    assert len(starts) == len(groups)
    assert groups <= near


@pytest.mark.parametrize("size", [1, 5, 13, 20, 90])
def test_no_row_is_decoded_twice(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(2):
        numbers = np.arange(i * 300, (i + 1) * 300)
        table = pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]})
        pa.parquet.write_table(table, tmp_path / f"{i}.parquet", row_group_size=size)
    decoded = 0
    read = streaming.parquet_blocks

    def counted(*arguments: Any) -> Any:
        nonlocal decoded
        for batch in read(*arguments):
            decoded += len(batch)
            yield batch

    monkeypatch.setattr(streaming, "parquet_blocks", counted)
    nothing = np.array([], dtype=np.int64)
    shuffled = ShuffledFiles(TableFiles.find(tmp_path), nothing, 0)
    found = numbers_of(shuffled, 0, 600)
    np.testing.assert_array_equal(np.sort(found), np.arange(600))
    assert decoded == 600
    assert len(shuffled.groups) <= 2 * -(-300 // max(13, size))


def test_what_is_open_goes_with_the_reading(files: TableFiles) -> None:
    shuffled = ShuffledFiles(files, LEFT_OUT, 0)
    next(shuffled.read(0, 100))
    (reader,) = shuffled._open.values()
    gone = weakref.ref(reader)
    gc.disable()  # which would find a circle some day
    try:
        del reader, shuffled
        assert gone() is None
    finally:
        gc.enable()


def test_a_file_that_goes_away(files: TableFiles) -> None:
    shuffled = ShuffledFiles(files, LEFT_OUT, 0)
    (files.files[-1].path).unlink()
    with pytest.raises(InputError, match=r"5\.parquet: No such file"):
        numbers_of(shuffled, 0, len(shuffled))
