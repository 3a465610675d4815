"""Claims about Parquet files as one table.

1. A folder, a pattern and a file give all rows in the order of the files' names; hidden files and
   what engines leave next to their data are not read, and no file is read twice.
2. A column has a type that holds the values of all files, also where one has none of it; a file
   without rows has no say. Text next to numbers is refused, and so is what does not fit the type.
3. Nothing there, no rows, other columns, other types, another format, an address, a label column
   that is not there: one sentence that names the file.
4. A file that changed, was cut or removed between two readings is refused by name.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from varjepa.errors import InputError
from varjepa.tables import read_table
from varjepa.tables.reading import are_files
from varjepa.tables.streaming import TableFiles


def write(folder: Path, name: str, **columns: object) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(pa.table(columns), path, row_group_size=2)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "logs/b.parquet", x=[3, 4, 5], y=["c", None, "e"])
    write(tmp_path, "logs/a.parquet", x=[1, 2], y=["a", "b"])
    write(tmp_path, "logs/later/c.parquet", y=["f"], x=[6])  # another order of columns
    write(tmp_path, "logs/.hidden.parquet", z=[0])
    write(tmp_path, "logs/_temporary/d.parquet", z=[0])
    (tmp_path / "logs" / "_SUCCESS").touch()
    (tmp_path / "logs" / "notes.txt").write_text("not data")
    return tmp_path / "logs"


def x_of(files: TableFiles) -> list[int]:
    return [x for block in files.blocks(["x"], rows=2) for x in block["x"].to_pylist()]


def test_folders_patterns_and_files(folder: Path) -> None:
    assert x_of(TableFiles.find(folder)) == [1, 2, 3, 4, 5, 6]
    assert x_of(TableFiles.find(f"{folder}/*.parquet")) == [1, 2, 3, 4, 5]
    assert x_of(TableFiles.find(folder / "b.parquet")) == [3, 4, 5]
    (folder / "notes.txt").unlink()
    assert x_of(TableFiles.find(f"{folder}/*")) == [1, 2, 3, 4, 5]  # nor _SUCCESS
    for pattern in ("**/*.parquet", "**/**/*.parquet"):  # the second matches files several times
        assert x_of(TableFiles.find(f"{folder}/{pattern}")) == [1, 2, 3, 4, 5, 6]
    files = TableFiles.find(folder, labels="y")
    assert pickle.loads(pickle.dumps(files)) == files  # joblib's workers get it so
    assert files.schema.names == ["x"]
    assert (files.rows, files.cells, files.starts().tolist()) == (6, 6, [0, 2, 5])
    labels = [y for block in files.blocks(["y"]) for y in block["y"].to_pylist()]
    assert labels == ["a", "b", "c", None, "e", "f"]
    assert [are_files(s) for s in (folder, f"{folder}/*.parquet", folder / "b.parquet", 1)] == [
        True, True, False, False,
    ]  # fmt: skip


def test_an_empty_column_has_the_others_type(tmp_path: Path) -> None:
    for name, y in (("a", pa.nulls(2)), ("b", pa.array(["u", None])), ("c", pa.nulls(2))):
        write(tmp_path, f"{name}.parquet", x=[1, 2], y=y)
    blocks = list(TableFiles.find(tmp_path).blocks(["y"]))
    assert {block.schema.field("y").type for block in blocks} == {pa.string()}
    assert pa.concat_tables(blocks)["y"].to_pylist() == [None, None, "u", None, None, None]


@pytest.mark.parametrize(
    ("columns", "kind", "values"),
    [
        ([pa.array([1, 2], pa.int32()), pa.array([2**40])], pa.int64(), [1, 2, 2**40]),
        ([pa.array([1, 2]), pa.nulls(1), pa.array([0.5])], pa.float64(), [1.0, 2.0, None, 0.5]),
        ([pa.array([2**53 + 1]), pa.array([0.5])], pa.float64(), [2.0**53, 0.5]),
        ([pa.array([1.5], pa.float32()), pa.array([7], pa.int16())], pa.float32(), [1.5, 7.0]),
        ([pa.array(["a"]), pa.array(["b"], pa.large_string())], pa.large_string(), ["a", "b"]),
        (
            [pa.array([1], pa.timestamp("ms")), pa.array([2], pa.timestamp("us"))],
            pa.timestamp("us"),
            [datetime(1970, 1, 1, 0, 0, 0, 1000), datetime(1970, 1, 1, 0, 0, 0, 2)],
        ),
        (
            [
                pa.array(["a"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
                pa.array(["b"]).dictionary_encode().cast(pa.dictionary(pa.int16(), pa.string())),
            ],
            pa.dictionary(pa.int16(), pa.string()),
            ["a", "b"],
        ),
        ([pa.array([1]), pa.array([], pa.string()), pa.array([2])], pa.int64(), [1, 2]),
        ([pa.array([], pa.string()), pa.array([1])], pa.int64(), [1]),
        ([pa.array([None], pa.float64()), pa.array(["a"])], pa.string(), [None, "a"]),  # pandas
        (
            [pa.array(["a"]).dictionary_encode(), pa.array([None], pa.float64())],
            pa.dictionary(pa.int32(), pa.string()),
            ["a", None],
        ),
    ],
)
def test_a_type_for_all_files(
    columns: list[pa.Array], kind: pa.DataType, values: list[object], tmp_path: Path
) -> None:
    for i, column in enumerate(columns):
        write(tmp_path, f"{i}.parquet", x=column, y=[0] * len(column))
    files = TableFiles.find(tmp_path)
    for found in (files, files.labelled("x")):
        whole = pa.concat_tables(found.blocks(["x"]))
        assert whole["x"].type == kind
        assert whole["x"].to_pylist() == values


def test_values_that_no_common_type_holds(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", x=pa.array([2**63], pa.uint64()))
    write(tmp_path, "b.parquet", x=pa.array([-1], pa.int64()))
    with pytest.raises(
        InputError, match=r"a\.parquet: column 'x' holds a value that does not fit in int64"
    ):
        x_of(TableFiles.find(tmp_path))
    write(tmp_path, "c.parquet", x=[True])
    with pytest.raises(
        InputError, match=r"c\.parquet holds bool values, and of .*b\.parquet int64"
    ):
        TableFiles.find(tmp_path)


def test_wrong_files(tmp_path: Path) -> None:
    def refused(source: object, says: str, labels: str | None = None) -> None:
        with pytest.raises(InputError, match=says):
            TableFiles.find(str(source), labels)

    refused(tmp_path, r"holds no \.parquet file")
    refused(tmp_path / "*.parquet", "no file matches")
    refused(tmp_path / "none.parquet", "cannot read .*none.parquet: No such file")
    one = write(tmp_path, "one/a.parquet", x=[1], y=[2])
    write(tmp_path, "one/b.parquet", x=[1], z=[2])
    refused(one.parent, r"one/b\.parquet has no column 'y', unlike .*one/a\.parquet")
    write(tmp_path, "one/b.parquet", x=[1], y=[2], z=[3])
    refused(one.parent, r"one/a\.parquet has no column 'z', unlike .*one/b\.parquet")
    write(tmp_path, "one/b.parquet", x=[1], y=["2"])
    refused(one.parent, r"'y' of .*one/b\.parquet holds string values, and of .*one/a\.parquet int")
    refused(one, "has no column 'label'", labels="label")
    refused(write(tmp_path, "l.parquet", label=[1]), "no column besides 'label'", labels="label")
    write(tmp_path, "empty/a.parquet", x=pa.array([], pa.int64()))
    refused(tmp_path / "empty", "empty has no rows")
    (tmp_path / "text.csv").write_text("x\n1\n")
    refused(tmp_path / "*.csv", r"text\.csv is not a \.parquet file")
    (tmp_path / "one" / "c.parquet").write_bytes(b"PAR1 nothing PAR1")
    refused(tmp_path / "one", r"one/c\.parquet is not a complete Parquet file")


@pytest.mark.parametrize(
    "address", ["s3://bucket/x/*.parquet", "gs://b/x.parquet", "file:///x.parquet", "s3:/b/x.csv"]
)
def test_addresses_are_refused(address: str) -> None:
    for read in (read_table, TableFiles.find):
        with pytest.raises(InputError, match=r"://.* is an address, not a path; mount it"):
            read(address)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def other_rows(path: Path) -> None:
    write(path.parent, path.name, x=[3, 4, 6], y=["c", None, "e"])


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (Path.unlink, r"cannot read .*b\.parquet: No such file"),
        (cut_off, r"b\.parquet: it has changed since it was first read"),
        (other_rows, r"b\.parquet: it has changed since it was first read"),
    ],
)
def test_a_file_that_is_not_what_it_was(
    folder: Path, spoil: Callable[[Path], None], says: str
) -> None:
    files = TableFiles.find(folder)
    assert x_of(files)
    spoil(folder / "b.parquet")
    with pytest.raises(InputError, match=says):
        x_of(files)
