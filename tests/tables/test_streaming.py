"""Claims about tables that are read a block at a time.

1. Blocks of every format together are what reading the whole file gives, from any row on: the same
   values, types and order, also where a CSV column's type shows only near its end.
2. A folder is its Parquet files in the order of their names; a pattern is what it matches; hidden
   files are no data.
3. A block has at most the rows asked for, and fewer where text would make it large: also where a
   small file stands for gigabytes.
4. Only the columns asked for are read, and memory does not grow with a row group's rows.
5. Wrong files end in one sentence that names them.
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from benchmarks.measures import peak_resident_mb
from tests.tables.examples import COLUMNS
from varjepa.errors import InputError
from varjepa.tables import columnar_files, csv_files, read_table, streaming
from varjepa.tables.streaming import find_tables

ROWS = 30_000
_LATE = {
    "real": "1.5",
    "flag": "true",
    "day": "2020-01-31",
    "moment": "2020-01-31 12:00:00",
    "exact": "2020-01-31 12:00:00.5",
    "zoned": "2020-01-31T12:00:00Z",
    "clock": "12:30:00",
    "word": "later",
    "number": "7",
    "quoted": 'say "so", twice',
}


def example(rows: int) -> pa.Table:
    """Every kind of column, often enough."""
    order = np.random.default_rng(0).integers(0, len(COLUMNS["age"]), rows)
    return pa.table(COLUMNS).take(pa.array(order))


def write(table: pa.Table, path: Path) -> Path:
    match path.suffix:
        case ".parquet":
            pa.parquet.write_table(table, path, row_group_size=7_000)
        case ".csv":
            pa.csv.write_csv(table, path)
        case ".tsv":
            pa.csv.write_csv(table, path, pa.csv.WriteOptions(delimiter="\t"))
        case ".feather":
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=11_000)
        case ".arrow":
            with pa.ipc.new_stream(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=900)
    return path


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "feather", "arrow"])
def test_blocks_are_the_file(ending: str, tmp_path: Path) -> None:
    path = write(example(ROWS), tmp_path / f"t.{ending}")
    whole = read_table(path)
    (table,) = find_tables(path)
    assert (table.rows, table.name) == (ROWS, f"t.{ending}")
    assert table.schema == whole.schema
    for start in (0, 1, 6_999, 7_000, 21_001, ROWS - 1, ROWS):
        blocks = list(table.blocks(["town", "age", "since"], 4096, start))
        assert all(0 < len(block) <= 4096 for block in blocks)
        found = pa.concat_tables(blocks) if blocks else whole.select(["town", "age", "since"])[:0]
        assert found.equals(whole.select(["town", "age", "since"]).slice(start))


def test_types_that_show_late(tmp_path: Path) -> None:
    rows = 60_000  # several of Arrow's blocks
    early: dict[str, list[Any]] = {
        "real": [1] * rows,
        "flag": [1] * rows,
        "day": [None] * rows,
        "moment": [dt.date(2020, 1, 1)] * rows,
        "exact": ["2020-01-01 12:00:00"] * rows,
        "zoned": [None] * rows,
        "clock": [None] * rows,
        "word": [3] * rows,
        "number": [None] * rows,
        "quoted": [2.5] * rows,
    }
    path = tmp_path / "late.csv"
    pa.csv.write_csv(pa.table(early), path)
    with path.open("a", encoding="utf-8") as file:
        cells = ['"' + cell.replace('"', '""') + '"' for cell in _LATE.values()]
        file.write(",".join(cells) + "\n")
    whole = read_table(path)
    assert len({str(kind) for kind in whole.schema.types}) == 9
    (table,) = find_tables(path)
    assert table.schema == whole.schema
    assert pa.concat_tables(table.blocks(whole.column_names, 5000)).equals(whole)


def test_arrows_order_of_types() -> None:
    """What a column becomes by loosening is what Arrow infers from all cells together."""
    cells = ["", "12", "1", "true", "2020-01-02", "12:30:01", "2020-01-02 12:00:01"]
    cells += ["2020-01-02 12:00:01.5", "2020-01-02T12:00:01Z", "2020-01-02T12:00:01.5Z"]
    cells += ["1.5", "abc"]

    def infer(*some: str) -> pa.DataType:
        text = "a,b\n" + "".join(f"{cell},1\n" for cell in some)
        return pa.csv.read_csv(pa.BufferReader(text.encode())).schema.types[0]

    def fits(cell: str, kind: pa.DataType) -> bool:
        options = pa.csv.ConvertOptions(column_types={"a": kind})
        source = pa.BufferReader(f"a,b\n{cell},1\n".encode())
        try:
            pa.csv.read_csv(source, convert_options=options)
        except pa.ArrowInvalid:
            return False
        return True

    for first in cells:
        for second in cells:
            kind = infer(first)
            while not fits(second, kind) or not fits(first, kind):
                kind = csv_files.next_type(kind, second)
            assert kind == infer(first, second), (first, second)


def test_a_csv_of_one_column_keeps_its_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("n\n1\n\n3\n")
    (table,) = find_tables(path)
    assert pa.concat_tables(table.blocks(["n"], 2)).to_pydict() == {"n": [1, None, 3]}


def test_folders_and_patterns(tmp_path: Path) -> None:
    for i, name in enumerate(
        ["b.parquet", "a.parquet", "sub/c.parquet", "_x.parquet", ".y.parquet"]
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pa.parquet.write_table(pa.table({"n": [i]}), path)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "notes.txt").write_text("not data")

    def names(source: Path) -> list[str]:
        return [table.name for table in find_tables(str(source))]

    assert names(tmp_path) == ["a.parquet", "b.parquet", "sub/c.parquet"]
    assert names(tmp_path / "*.parquet") == ["a.parquet", "b.parquet"]
    assert names(tmp_path / "**" / "*.parquet") == ["a.parquet", "b.parquet", "sub/c.parquet"]
    assert names(tmp_path / "s*" / "c.parquet") == ["sub/c.parquet"]
    (tmp_path / "a[1].parquet").write_bytes((tmp_path / "a.parquet").read_bytes())
    assert names(tmp_path / "a[1].parquet") == ["a[1].parquet"]  # a file of that name wins


@pytest.mark.parametrize("dictionary", [True, False])
def test_long_texts_make_small_blocks(
    dictionary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (columnar_files, streaming):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1 << 16)
    texts = ["x" * 5000, *["y"] * 2999]
    table = pa.table({"t": texts * 3, "n": range(9000)})
    path = tmp_path / "long.parquet"
    pa.parquet.write_table(table, path, row_group_size=3000, use_dictionary=dictionary)
    (found,) = find_tables(path)
    blocks = list(found.blocks(["t", "n"], 4096))
    assert pa.concat_tables(blocks).equals(table)
    if dictionary:  # any row of a block may be the long one
        assert max(map(len, parquet_batches(path))) <= (1 << 16) // 5000


def parquet_batches(path: Path) -> list[pa.RecordBatch]:
    return list(columnar_files.parquet_blocks(path, ["t", "n"], 4096, 0))


def _in_a_fresh_process(work: Callable[..., float], *arguments: Any) -> float:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _growth_mb(path: Path, columns: list[str], most_blocks: int) -> float:
    """How far reading raises this process's peak memory."""
    before = peak_resident_mb()
    (table,) = find_tables(path)
    for i, _ in enumerate(table.blocks(columns, 4096)):
        if i == most_blocks:
            break
    return peak_resident_mb() - before


def _largest_block_mb(path: Path, columns: list[str]) -> float:
    """Decoded, of the first few."""
    (table,) = find_tables(path)
    blocks = (block for block, _ in zip(table.blocks(columns, 4096), range(4), strict=False))
    return max(block.cast(pa.schema({"t": pa.string()})).nbytes for block in blocks) / 2**20


@pytest.mark.parametrize("as_dictionary", [True, False])
def test_two_megabytes_that_stand_for_twenty_gigabytes(as_dictionary: bool, tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    text = pa.array(["x" * 2_000_000])
    cells = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10_000, np.int32)), text)
    table = pa.table({"t": cells})
    pa.parquet.write_table(table, path, compression="none", store_schema=as_dictionary)
    assert path.stat().st_size < 3_000_000
    assert _largest_block_mb(path, ["t"]) < 70


def test_memory_is_that_of_a_block(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = 1_200_000
    columns: dict[str, Any] = {f"n{i}": rng.normal(size=rows) for i in range(12)}
    path = tmp_path / "one-group.parquet"
    pa.parquet.write_table(pa.table(columns), path, row_group_size=rows)
    assert path.stat().st_size > 110_000_000
    assert _in_a_fresh_process(_growth_mb, path, list(columns), 10**9) < 70


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("cut.parquet", b"PAR1abc", "not a complete Parquet file"),
        ("none.parquet", None, "No such file"),
        ("cut.feather", b"ARROW1..", "not a complete Arrow file"),
        ("empty.csv", b"  \n", "is empty"),
        ("ragged.csv", b"a,b\n1,2\n3\n", "row 3 of .* has 1 cell where the header has 2"),
        ("twice.csv", b"a,a\n1,2\n", "several columns are called 'a'"),
        ("latin.csv", b"a,b\n1,x\n1,\xff\n", "not UTF-8 text: see column 'b'"),
        ("t.xls", b"", "known extensions"),
    ],
)
def test_files_that_cannot_be_read(
    name: str, content: bytes | None, says: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=says) as error:
        find_tables(tmp_path / name)
    assert name in str(error.value)


def test_sources_without_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no \.parquet file"):
        find_tables(tmp_path)
    with pytest.raises(InputError, match="no file matches"):
        find_tables(tmp_path / "*.parquet")
