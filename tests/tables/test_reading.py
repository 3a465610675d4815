"""Claims: any table can be read, and what cannot is refused in one sentence that names it.

1. pandas, polars, Arrow, CSV, TSV, Parquet, Feather and Arrow streams hold the same table.
2. numpy arrays get the names x0, x1, …; masked and object arrays keep their missing values.
3. CSV: with and without a byte-order mark; empty cells and NA-like words are missing, "?" is not;
   quoted line breaks, late text in a column of numbers, blank lines of a one-column file.
4. Broken, empty, ragged, UTF-16, Latin-1, truncated and absent files, folders and unknown
   extensions are InputErrors.
5. Names that are repeated, empty, not text or of several levels are InputErrors.
6. Sparse columns and objects of mixed scalars are read; other objects are refused by name.
7. What write_table writes, read_table reads back; a failed write leaves the old file.
8. A CSV file may be separated by commas, semicolons, tabs or bars, have decimal commas (with
   semicolons), and be gzipped; a Parquet or Arrow file that is called CSV is read; damaged gzip is
   refused.
9. All of it works where neither pandas nor polars is installed.
"""

from __future__ import annotations

import datetime as dt
import gzip
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.tables.examples import COLUMNS, FORMS, arrow_table, source
from varjepa.errors import InputError
from varjepa.tables import TableCodec, read_table, write_table
from varjepa.tables.streaming import find_tables


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_table(form: str, tmp_path: Path) -> None:
    table = read_table(source(form, tmp_path))
    assert table.column_names == list(COLUMNS)
    assert table.num_rows == 5
    for name, values in COLUMNS.items():
        assert table[name].to_pylist() == values, name


def test_numpy_columns_are_named_like_scikit_learn() -> None:
    table = read_table(np.array([[1.0, np.nan], [3.0, 4.0]], dtype=np.float32))
    assert table.to_pydict() == {"x0": [1.0, 3.0], "x1": [None, 4.0]}
    assert table.schema.field("x0").type == pa.float32()


def test_numpy_objects_masks_and_wide_floats() -> None:
    objects = np.array([[1, "a", None], [2, "b", np.nan]], dtype=object)
    assert read_table(objects).to_pydict() == {"x0": [1, 2], "x1": ["a", "b"], "x2": [None, None]}
    masked = np.ma.array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    assert read_table(masked).to_pydict() == {"x0": [1, 3], "x1": [None, 4]}
    masked = np.ma.array(objects, mask=[[True, False, False]] * 2)
    assert read_table(masked)["x0"].to_pylist() == [None, None]
    assert read_table(np.eye(1, dtype=np.longdouble)).to_pydict() == {"x0": [1.0]}
    assert read_table(np.array([["p"], ["q"]])).to_pydict() == {"x0": ["p", "q"]}


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros(3), "two dimensions"),
        (np.zeros((2, 2, 2)), "two dimensions"),
        (np.array([[1j]]), "'x0' holds complex128"),
    ],
)
def test_impossible_arrays(array: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_table(array)


def test_single_values_by_name_are_one_row() -> None:
    assert read_table({"a": 5, "b": "x", "c": None}).to_pylist() == [{"a": 5, "b": "x", "c": None}]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_csv_details(tmp_path: Path, mark: bytes) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(
        mark + b'n,s,q\n1,"a\nb",?\n,NA,x\nnan,"",?\nNULL,null,N/A\n\n2.5,\xc3\xa9,None\n'
    )
    assert read_table(path).to_pydict() == {
        "n": [1.0, None, None, None, 2.5],
        "s": ["a\nb", None, None, None, "é"],
        "q": ["?", "x", "?", None, None],
    }


def test_csv_type_is_decided_by_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "1\n" * 700_000 + "x\n")  # more than one block of the parser
    assert read_table(path)["a"].type == pa.string()


def test_quoted_line_breaks_in_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    cell = "x" + "\n" * 50 + "y"  # wherever the parser cuts, it cuts within a cell
    path.write_text("a,b\n" + f'"{cell}",1\n' * 40_000)
    assert read_table(path)["a"].unique().to_pylist() == [cell]


def test_blank_lines_of_one_column_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n\n3\n")
    assert read_table(path)["a"].to_pylist() == [1, None, 3]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv", b"", r"t\.csv is empty"),
        ("t.csv", b"\n\n", r"t\.csv is empty"),
        ("t.csv", b"a,b\n1,2\n3\n", r"row 3 of .*t\.csv has 1 cell where the header has 2"),
        ("t.csv", b"a,b\n1,2,3\n", r"has 3 cells where the header has 2"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), r"t\.csv is not UTF-8.*UTF-16"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16-le"), r"t\.csv is not UTF-8.*UTF-16"),
        (
            "t.csv",
            b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
            r"t\.csv is not a CSV file: .* no text",
        ),
        ("t.csv", "a,b\n1,é\n".encode("latin-1"), r"t\.csv is not UTF-8 text: see column 'b'"),
        ("t.csv", "é,b\n1,2\n".encode("latin-1"), r"t\.csv is not UTF-8 text: see its header"),
        ("t.csv", b"a,a\n1,2\n", "several columns are called 'a'"),
        ("t.csv", b",b\n1,2\n", "no name; name it, or write the table without its index"),
        ("t.csv", b"a,\n1,2\n", "column 2 of the table has no name$"),
        ("t.parquet", b"", r"t\.parquet is not a complete Parquet file"),
        ("t.csv.gz", gzip.compress(b"PAR1\0\0"), r"t\.csv\.gz is a gzipped Parquet or Arrow file"),
        ("t.arrow", b"abc", r"t\.arrow is not a complete Arrow file"),
        ("t.feather", b"FEA1....", r"t\.feather is not a complete Arrow file"),
        ("t.xlsx", b"abc", r"t\.xlsx.*known extensions: \.csv, \.tsv, \.parquet, \.arrow"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", ["parquet", "feather"])
def test_truncated_files(tmp_path: Path, form: str) -> None:
    path: Path = source(form, tmp_path)
    content = path.read_bytes()
    for size in (len(content) - 3, len(content) // 2, 7):
        path.write_bytes(content[:size])
        with pytest.raises(InputError, match=f"{path.name} is not a complete"):
            read_table(path)


def test_damage_inside_a_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_table(pa.table({"a": [f"{i}" for i in range(5000)]}), path)
    content = bytearray(path.read_bytes())
    content[20:400] = bytes(380)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"t\.parquet is not a complete Parquet file"):
        read_table(path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_absent_files_and_folders(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InputError, match=rf"cannot read .*nowhere\{suffix}: No such file"):
        read_table(tmp_path / f"nowhere{suffix}")
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    with pytest.raises(InputError, match=r"folder.* is a folder"):
        read_table(folder)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns are called 'a'"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "several columns are called '1'"),
        (pd.DataFrame([[1]], columns=[""]), "column 1 of the table has no name"),
        (pd.DataFrame([[1]], columns=[None]), "column name None is not text"),
        (pd.DataFrame([[1]], columns=[1.5]), r"column name 1\.5 is not text"),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "several levels"),
        (pl.DataFrame({" ": [1]}), "column 1 of the table has no name"),
        (pa.Table.from_arrays([pa.array([1])] * 2, ["b", "b"]), "several columns are called 'b'"),
        (pd.Series([1, 2]), "cannot read a table from an object of type Series"),
        ([[1, 2]], "cannot read a table from an object of type list"),
        (None, "cannot read a table from an object of type NoneType"),
    ],
)
def test_impossible_frames(frame: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_table(frame)


def test_whole_number_names_become_text() -> None:
    assert read_table(pd.DataFrame([[1, 2]])).column_names == ["0", "1"]


def test_sparse_columns_are_read() -> None:
    frame = pd.DataFrame({"s": pd.arrays.SparseArray([0.0, 0.0, 3.0])})
    assert read_table(frame)["s"].to_pylist() == [0.0, 0.0, 3.0]


def test_mixed_scalars_become_canonical_text() -> None:
    mixed = pd.Series([1, "a", None, np.nan, pd.NA, 2.0, 1.5e-7, True, np.int8(4)], dtype=object)
    texts = ["1", "a", None, None, None, "2", "1.5e-7", "true", "4"]
    assert read_table(pd.DataFrame({"m": mixed}))["m"].to_pylist() == texts


def test_no_decimal_nan_is_a_number() -> None:
    mixed = np.array(["a", 1.5, Decimal("NaN"), Decimal("sNaN")], dtype=object)
    assert read_table({"x": mixed})["x"].to_pylist() == ["a", "1.5", None, None]


def test_integers_beyond_64_bits() -> None:
    large = pd.DataFrame({"u": [2**64 - 1, None], "f": [2**70, -1]}, dtype=object)
    table = read_table(large)
    assert table["u"].to_pylist() == [2**64 - 1, None]
    assert table["f"].to_pylist() == [2.0**70, -1.0]
    with pytest.raises(InputError, match="'f' holds a number too large"):
        read_table(pd.DataFrame({"f": [10**400]}, dtype=object))


@pytest.mark.parametrize(
    "value", [object(), dt.date, {1: 2}, [1], b"x", 1j, ("a", 1)], ids=lambda v: type(v).__name__
)
def test_other_objects_are_refused_by_name(value: Any) -> None:
    column = np.empty(2, dtype=object)
    column[:] = ["x", None]
    column[1] = value
    with pytest.raises(InputError, match="'o'"):
        TableCodec.fit(pd.DataFrame({"o": column}))
    column[0] = value
    with pytest.raises(InputError, match="'o'"):
        TableCodec.fit(pd.DataFrame({"o": column}))


@pytest.mark.parametrize("separator", [";", "\t", ",", "|"])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_the_header_tells_the_separator(separator: str, name: str, tmp_path: Path) -> None:
    rows = ['"a,b;c\td"|n|x', '"u;v,w"|1|1.5', "z|2|-0.5", "|3|2.0"]
    path = tmp_path / name
    path.write_text("\n".join(row.replace("|", separator) for row in rows))
    table = read_table(path)
    assert table.to_pydict() == {
        "a,b;c\td": ["u;v,w", "z", None], "n": [1, 2, 3], "x": [1.5, -0.5, 2.0],
    }  # fmt: skip
    (streamed,) = find_tables(path)
    assert streamed.schema == table.schema
    assert pa.concat_tables(streamed.blocks(table.column_names, 2)).equals(table)


def test_numbers_with_a_decimal_comma(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a;b;c\n1,5;2;"x"\n-0,25;3;"1,2 y"\n')
    table = read_table(path)
    assert table.to_pydict() == {"a": [1.5, -0.25], "b": [2, 3], "c": ["x", "1,2 y"]}
    (streamed,) = find_tables(path)
    assert pa.concat_tables(streamed.blocks(["a", "b", "c"], 1)).equals(table)
    path.write_text("a;b\n1.5;2,5\n")
    assert read_table(path).to_pydict() == {"a": [1.5], "b": ["2,5"]}
    path.write_text("a;version\n1,5;2.5\n2,5e-3;x\n")
    assert read_table(path).to_pydict() == {"a": [1.5, 0.0025], "version": ["2.5", "x"]}


def test_a_name_may_hold_the_usual_separator(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("price, net;town;n\n1,5;Ulm;3\n2,5;Rom;4\n")
    table = read_table(path)
    assert table.to_pydict() == {"price, net": [1.5, 2.5], "town": ["Ulm", "Rom"], "n": [3, 4]}
    (streamed,) = find_tables(path)
    assert pa.concat_tables(streamed.blocks(table.column_names, 1)).equals(table)
    path.write_text("price, net;town\n2;Ulm\n")
    assert read_table(path).column_names == ["price, net", "town"]


def test_one_column_with_other_separators_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for text, expected in (
        ("a;b\nx\ny\n", {"a;b": ["x", "y"]}),
        ("a\nx;y\n", {"a": ["x;y"]}),
        ('"a;b"\n"x;y"\n', {"a;b": ["x;y"]}),
        ("a;b,c\n1;2,3\n", {"a;b": ["1;2"], "c": [3]}),
    ):
        path.write_text(text)
        assert read_table(path).to_pydict() == expected


def test_a_ragged_row_names_the_separator(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1;2\n3\n")
    for read in (read_table, find_tables):
        with pytest.raises(InputError, match="has 1 cell where the header has 2, separated by ';'"):
            read(path)


@pytest.mark.parametrize("extension", ["parquet", "arrow"])
def test_a_file_is_what_it_holds_whatever_its_name(extension: str, tmp_path: Path) -> None:
    write_table(arrow_table(), tmp_path / f"t.{extension}")
    named = (tmp_path / f"t.{extension}").rename(tmp_path / "t.csv")
    assert read_table(named).equals(read_table(arrow_table()))
    (streamed,) = find_tables(named)
    names = arrow_table().column_names
    assert pa.concat_tables(streamed.blocks(names, 2)).equals(read_table(arrow_table()))


def test_an_excel_file_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(InputError, match=r"t\.csv is a ZIP or Excel file; save the table as CSV"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("name", ["t.csv.gz", "t.CSV.GZ", "t.tsv.gz", "t.csv"])
def test_gzipped_csv(name: str, tmp_path: Path) -> None:
    text = b"a,b\n1,x\n" + b"2,y\n" * 50_000
    text = text.replace(b",", b"\t") if ".tsv" in name else text
    path = tmp_path / name
    path.write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]))  # two members
    table = read_table(path)
    assert table.num_rows == 50_001
    assert table["a"].to_pylist()[:2] == [1, 2]
    (streamed,) = find_tables(path)
    assert streamed.rows == 50_001
    assert pa.concat_tables(streamed.blocks(["a", "b"], 20_000)).equals(table)
    path.write_bytes(text)  # some programs unpack a file and keep its name
    assert read_table(path).equals(table)


@pytest.mark.parametrize("cut", [5, 15, 200, -3])
def test_damaged_gzip_is_refused(cut: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    whole = gzip.compress("\n".join(["a,b", *map(str, rng.random(5000))]).encode())
    path = tmp_path / "t.csv.gz"
    spoiled = bytearray(whole)
    spoiled[len(whole) // 2] ^= 255
    for content in (whole[:cut], bytes(spoiled)):
        path.write_bytes(content)
        for read in (read_table, find_tables):
            with pytest.raises(InputError, match=r"t\.csv\.gz"):
                read(path)


@pytest.mark.parametrize("extension", ["csv", "tsv", "parquet", "arrow", "feather"])
def test_written_tables_are_read_back(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"t.{extension}"
    write_table(pa.table({"old": [1]}), path)
    write_table(arrow_table(), path)
    assert read_table(path).to_pydict() == arrow_table().to_pydict()
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_failed_and_repeated_writes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"known extensions: \.csv, \.tsv, \.parquet"):
        write_table(arrow_table(), tmp_path / "t.json")
    with pytest.raises(InputError, match=r"cannot write .*t\.csv: No such file"):
        write_table(arrow_table(), tmp_path / "nowhere" / "t.csv")
    path = tmp_path / "t.csv"
    write_table(arrow_table(), path)
    before = path.read_bytes()
    with path.open("rb") as old:  # a reader keeps what it opened, because the file is replaced
        write_table(arrow_table().slice(0, 1), path)
        assert old.read() == before
    write_table(arrow_table(), path)
    with pytest.raises(InputError, match=r"cannot write .*t\.csv: Unsupported"):
        write_table(pa.table({"nested": [[1]]}), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


WITHOUT_FRAMES = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "polars"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
import numpy
from varjepa.tables import TableCodec
objects = numpy.array([[1, "a", None], [2, "b", 1.5], [3, "b", 2.5]], dtype=object)
print(TableCodec.fit(objects).encode(objects).num.tolist())
"""


def test_works_without_pandas_and_polars() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_FRAMES], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[[0.0, 0.0], [0.5, 0.0], [1.0, 1.0]]"
