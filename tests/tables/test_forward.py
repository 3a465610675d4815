"""Claims about reading forward.

1. Any stretches, in any order, of any length: exactly their rows, whatever the sizes of the blocks.
2. A stretch that follows the last, or begins few enough rows on, does not enter the file again.
3. A file that ends before its rows have come is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varjepa.errors import InputError
from varjepa.tables.streaming import ForwardRows

ROWS = 50


def opened(size: int, skipped: int, rows: int = ROWS) -> tuple[ForwardRows, list[int]]:
    """A file whose only column counts its rows, and where it has been entered."""
    entered: list[int] = []

    def read(start: int) -> Iterator[pa.Table]:
        entered.append(start)
        for row in range(start, rows, size):
            yield pa.table({"row": range(row, min(row + size, rows))})

    return ForwardRows(Path("counted.parquet"), read, skipped), entered


def taken(file: ForwardRows, start: int, stop: int) -> list[int]:
    return [row for piece in file.take(start, stop) for row in piece["row"].to_pylist()]


@given(
    st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(sorted), max_size=6),
    st.integers(1, 20),
    st.integers(0, 20),
)
def test_any_stretches(stretches: list[list[int]], size: int, skipped: int) -> None:
    file, _ = opened(size, skipped)
    for start, stop in stretches:
        assert taken(file, start, stop) == list(range(start, stop))


def test_the_file_is_entered_only_where_it_must_be() -> None:
    file, entered = opened(size=8, skipped=5)
    for start, stop in ((3, 10), (10, 12), (17, 20), (26, 30), (29, 31)):
        taken(file, start, stop)
    assert entered == [3, 26, 29]  # five rows on is near enough, six and back are not


def test_lost_rows() -> None:
    file, _ = opened(size=8, skipped=0, rows=20)
    with pytest.raises(InputError, match=r"^counted\.parquet has lost rows while it was read$"):
        taken(file, 10, 21)
