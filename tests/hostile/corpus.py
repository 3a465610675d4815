"""Tables that nobody should have to meet, each with what must become of it.

A table is a variation of one healthy table, so that a model fitted on the healthy one meets it too.
Where a verb has to refuse, the entry holds the words that the one sentence must contain: the
column's name, or the file's where there is no column; where it holds None, the verb has to succeed.
"""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse

from tests.hostile.spoiling import (
    ROWS,
    TARGET,
    HostileTable,
    arrow,
    changed,
    cut_file,
    expanding_parquet,
    healthy,
    million_levels,
    multi_index_columns,
    multi_index_rows,
    named,
    nothing_known,
    objects,
    polars_frame,
    some,
    text_file,
)


class Shade(enum.IntEnum):
    """An object that is a number and prints as something else."""

    LIGHT = 1
    DARK = 2


LONG_NAME = "n" * 10_000
UNICODE_NAMES = ["größe \u202e‮", "\U0001f9ee e\u0301", "色\u200b\ufeff"]
NEWLINE_NAME = "co\nlour\r\n\x1b[31m"
INF = float("inf")
LISTS = pa.array([[1, 2], []] * (ROWS // 2))
STRUCTS = pa.array([{"a": 1}, {"a": 2}] * (ROWS // 2))

SHAPES = [
    HostileTable("no rows", lambda _: healthy().iloc[:0], "no rows", "no rows", "no rows"),
    HostileTable("one row", lambda _: healthy().iloc[:1], "one row", evaluate="'label'"),
    HostileTable("two rows", lambda _: healthy().iloc[:2], evaluate="'label'"),
    HostileTable("no columns", lambda _: healthy()[[]], "no columns", "'size'", "'label'"),
    HostileTable("one column", lambda _: healthy()[["size"]], None, "'count'", "'label'"),
    HostileTable(
        "nothing but the target", lambda _: healthy()[[TARGET]], None, "'size'", "'label'"
    ),
    HostileTable("every cell missing", nothing_known, "no cell", evaluate="'label'"),
    HostileTable("the rows of a MultiIndex", multi_index_rows),
    HostileTable("a MultiIndex of columns", multi_index_columns, *["several levels"] * 3),
    HostileTable("one dimension", lambda _: np.zeros(5), "2D array", "2D array", "two dimensions"),
    HostileTable(
        "three dimensions", lambda _: np.zeros((5, 5, 5)), "dim 3", "dim 3", "two dimensions"
    ),
    HostileTable("nothing", lambda _: None, "NoneType", "NoneType", "NoneType"),
    HostileTable("a lazy frame", lambda _: pl.from_pandas(healthy()).lazy()),
    HostileTable("a generator", lambda _: (i for i in "ab"), *["generator"] * 3),
    HostileTable("a dict of ragged lists", lambda _: {"a": [1], "b": [1, 2]}, *["length"] * 3),
    HostileTable(
        "a sparse matrix", lambda _: scipy.sparse.eye(60, 5).tocsr(), "Sparse", "Sparse", "csr"
    ),
]

NUMBERS = [
    HostileTable("constant", changed(size=1.5, count=7, colour="red", when=pd.Timestamp("2024"))),
    HostileTable("a column all missing", changed(size=np.nan, colour=None)),
    HostileTable("infinities", changed(size=some(INF, -INF, INF))),
    HostileTable("nothing but infinities", changed(size=INF)),
    HostileTable("1e300", changed(size=some(1e300, -1e300, 1.79e308))),
    HostileTable("1e-300", changed(size=lambda old: old * 1e-300)),
    HostileTable("subnormal", changed(size=objects(0.0, 5e-324, 1e-323).astype(float))),
    HostileTable("integers above 2^53", changed(count=2**53 + np.arange(ROWS))),
    HostileTable("the whole range of int64", changed(count=objects(-(2**63), 2**63 - 1, 0))),
    HostileTable("uint64 max", changed(count=np.uint64(2**64 - 1) - np.arange(ROWS, dtype="u8"))),
    HostileTable("integers beyond 64 bits", changed(count=objects(2**70, -(2**70), 3))),
    HostileTable("a number no float holds", changed(count=objects(10**400, 1)), *["'count'"] * 3),
    HostileTable("booleans", changed(count=objects(True, False).astype(bool))),
    HostileTable("nullable integers", changed(count=objects(1, pd.NA, 2**60 + 1).astype("Int64"))),
    HostileTable(
        "times with a zone", changed(when=lambda old: old.dt.tz_localize("Asia/Kathmandu"))
    ),
    HostileTable(
        "times of several zones",
        changed(
            when=objects(
                pd.Timestamp("2024-01-01", tz="UTC"), pd.Timestamp("2024-01-02", tz="Asia/Tokyo")
            )
        ),
    ),
    HostileTable(
        "dates of year 9999", changed(when=objects(dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1)))
    ),
    HostileTable(
        "dates of year one million",
        arrow(when=pa.array([10**9, -(10**9)] * 30, pa.int32()).cast(pa.date32())),
    ),
    HostileTable("timedeltas", changed(size=pd.to_timedelta(np.arange(ROWS), unit="h"))),
    HostileTable(
        "times of day",
        changed(size=objects(dt.time(1, 2), dt.time(23, 59, 59, 5), None)),
        fill="'size'",
    ),
    HostileTable("decimals", changed(size=objects(Decimal("1.50"), Decimal("-99999.07"), None))),
    HostileTable(
        "decimals with NaN", changed(size=objects(Decimal("1.50"), Decimal("NaN"), Decimal("2")))
    ),
    HostileTable(
        "decimals of any scale",
        changed(size=objects(Decimal("1e-30"), Decimal("1e30"), Decimal("Infinity"))),
    ),
    HostileTable("complex numbers", changed(size=1j * np.arange(ROWS)), *["'size'"] * 3),
    HostileTable("half precision", changed(size=np.linspace(0, 6e4, ROWS).astype(np.float16))),
    HostileTable("long doubles", changed(size=np.full(ROWS, np.longdouble("1e4000")))),
    HostileTable("text of numbers", changed(size=objects("1.5", " 2 ", "NA", "1e400", "-inf"))),
    HostileTable("enumerations", changed(count=objects(Shade.LIGHT, Shade.DARK))),
    HostileTable(
        "sparse columns", changed(size=pd.arrays.SparseArray([0.0, 0, 0, 3, np.nan, 0] * 10))
    ),
    HostileTable("periods", changed(when=pd.period_range("2024", periods=ROWS)), *["'when'"] * 3),
]

CATEGORIES = [
    HostileTable("mixed numbers and text", changed(count=objects(1, "x", 2.0)), None, "'count'"),
    HostileTable("bytes", changed(colour=objects(b"red", b"\xff")), *["'colour'"] * 3),
    HostileTable("lists", changed(colour=objects([1, 2], [])), *["'colour'"] * 3),
    HostileTable("dicts", changed(colour=objects({"a": 1}, {"b": 2})), *["'colour'"] * 3),
    HostileTable("sets", changed(colour=objects({1}, {2})), *["'colour'"] * 3),
    HostileTable("arbitrary objects", changed(colour=objects(object())), *["'colour'"] * 3),
    HostileTable("Arrow lists", arrow(colour=LISTS), *["'colour'"] * 3),
    HostileTable("Arrow structs", arrow(colour=STRUCTS), *["'colour'"] * 3),
    HostileTable("intervals", changed(colour=pd.cut(np.arange(ROWS), 3)), *["'colour'"] * 3),
    HostileTable("polars structs", polars_frame(colour=pl.struct("size")), *["'colour'"] * 3),
    HostileTable(
        "polars objects", polars_frame(colour=pl.Series([object()] * ROWS)), *["'colour'"] * 3
    ),
    HostileTable("half of a character", changed(colour=objects("a\ud800", "b")), *["'colour'"] * 3),
    HostileTable("a cell of a million letters", changed(colour=objects("x" * 10**6, "y", None))),
    HostileTable("control characters", changed(colour=objects("\x00", "\x1b[2J", "=1+1", "\r\n"))),
    HostileTable("a million levels", million_levels),
    HostileTable("a level a row", changed(colour=objects(*map("level {}".format, range(ROWS))))),
    HostileTable("unseen levels", changed(colour=some("mauve", "", "RED"))),
    HostileTable("empty text", changed(colour=objects(""))),
]

NAMES = [
    HostileTable("duplicate names", named("size", "size"), *["'size'"] * 3),
    HostileTable("an empty name", named("size", ""), *["column 2"] * 3),
    HostileTable("a blank name", named("size", " \t"), *["column 2"] * 3),
    HostileTable("unicode names", named(*UNICODE_NAMES), None, "'size'"),
    HostileTable("a newline in a name", named(NEWLINE_NAME), None, "'size'"),
    HostileTable("a NUL in a name", named("si\0ze"), None, "'size'"),
    HostileTable(
        "a NUL in a name, in polars",
        lambda folder: pl.from_pandas(named("si\0ze")(folder)),
        None,
        "'size'",
    ),
    HostileTable("half of a character in a name", named("si\ud800ze"), *["ud800"] * 3),
    HostileTable("names of 10,000 letters", named(LONG_NAME), None, "'size'"),
    HostileTable("long names twice", named(LONG_NAME, LONG_NAME), *["nnn…"] * 3),
    HostileTable("a name that is a float", named(1.5), *["1.5"] * 3),
    HostileTable("a name that is a tuple", named(("a", 1), "b"), *["('a', 1)"] * 3),
    HostileTable("a name that is None", named(None), *["None"] * 3),
    HostileTable("a name that is a date", named(dt.date(2024, 1, 1)), *["2024"] * 3),
    HostileTable("names that are integers", named(0, 1, 2, 3), None, "'size'"),
    HostileTable("a part's name", named("when:hour"), "'when:hour'", "'size'", "'when:hour'"),
    HostileTable("names that are formulas", named("=1+1", "@x", "-y"), None, "'size'"),
]

DRIFT = [
    HostileTable("a column missing", lambda _: healthy().drop(columns="size"), None, "'size'"),
    HostileTable("a column renamed", named("Size"), None, "'size'"),
    HostileTable("a column more", lambda _: healthy().assign(extra=1.0)),
    HostileTable(
        "a column of lists more",
        lambda _: healthy().assign(extra=objects([1], [])),
        "'extra'",
        None,
        "'extra'",
    ),
    HostileTable("columns in another order", lambda _: healthy().iloc[:, ::-1]),
    HostileTable("text for numbers", changed(size=objects("small", "large")), None, "'size'"),
    HostileTable("dates for numbers", changed(size=healthy()["when"]), None, "'size'"),
    HostileTable("numbers for text", changed(colour=np.arange(ROWS) / 7)),
    HostileTable("numbers for dates", changed(when=np.arange(ROWS)), None, "'when'"),
    HostileTable("text for dates", changed(when=objects("soon", "later")), None, "'when'"),
    HostileTable("dates as text", changed(when=lambda old: old.astype(str))),
    HostileTable("dates for text", changed(colour=healthy()["when"])),
    HostileTable("booleans for dates", changed(when=objects(True, False)), None, "'when'"),
    HostileTable("integers for floats", changed(size=np.arange(ROWS))),
    HostileTable("an array without names", lambda _: healthy().to_numpy(), evaluate="'label'"),
]

TARGETS = [
    HostileTable("a target of infinities", changed(label=INF), evaluate="'label'", known=None),
    HostileTable("a target of some infinities", changed(label=some(INF, -INF))),
    HostileTable(
        "a target of 1e300",
        changed(label=healthy()["size"] * 1e300),
        evaluate="'label'",
        fill="'label'",
    ),
    HostileTable(
        "a target of 1e-300",
        changed(label=healthy()["size"] * 1e-300),
        evaluate="'label'",
        fill="'label'",
    ),
    HostileTable("a target beyond 2^53", changed(label=2**60 + np.arange(ROWS) ** 3)),
    HostileTable(
        "a target of uint64", changed(label=np.uint64(2**64 - 1) - np.arange(ROWS, dtype="u8") ** 3)
    ),
    HostileTable("a target of lists", changed(label=objects([1], [2])), *["'label'"] * 3),
    HostileTable("a target of bytes", changed(label=objects(b"y", b"n")), *["'label'"] * 3),
    HostileTable("a target of one class", changed(label="yes"), evaluate="'label'"),
    HostileTable(
        "a target of a class a row",
        changed(label=objects(*map("c{}".format, range(ROWS)))),
        evaluate="'label'",
    ),
    HostileTable(
        "a target of timedeltas", changed(label=pd.to_timedelta(np.arange(ROWS) ** 2, unit="D"))
    ),
    HostileTable(
        "a target of decimals", changed(label=objects(*(Decimal(i) / 7 for i in range(ROWS))))
    ),
    HostileTable("a target of long names", changed(label=objects("y" * 10_000, "n\n<b>"))),
    HostileTable(
        "a target with half a character", changed(label=objects("\ud800", "b")), *["'label'"] * 3
    ),
]

FILES = [
    HostileTable(
        "CSV with a byte-order mark", text_file("bom.csv", lambda t: b"\xef\xbb\xbf" + t.encode())
    ),
    HostileTable(
        "CSV in UTF-16", text_file("wide.csv", lambda t: t.encode("utf-16")), *["wide.csv"] * 3
    ),
    HostileTable(
        "CSV in Latin-1",
        text_file("latin.csv", lambda t: t.replace("red", "röd").encode("latin-1")),
        *["latin.csv"] * 3,
    ),
    HostileTable(
        "ragged CSV", text_file("rag.csv", lambda t: t.encode() + b"1,2\n"), *["rag.csv"] * 3
    ),
    HostileTable(
        "CSV with an open quote",
        text_file("quote.csv", lambda t: t.encode() + b'1,2,"red,2024-01-01,yes\n'),
        *["quote.csv"] * 3,
    ),
    HostileTable("an empty CSV", text_file("empty.csv", lambda _: b""), *["empty.csv"] * 3),
    HostileTable(
        "a CSV of a header",
        text_file("head.csv", lambda t: t.splitlines()[0].encode() + b"\n"),
        *["no rows"] * 3,
    ),
    HostileTable(
        "noise as CSV",
        text_file("noise.csv", lambda _: np.random.default_rng(0).bytes(5000)),
        *["noise.csv"] * 3,
    ),
    HostileTable(
        "truncated Parquet", cut_file("cut.parquet", lambda b: b[:-100]), *["cut.parquet"] * 3
    ),
    HostileTable(
        "Parquet without its start",
        cut_file("tail.parquet", lambda b: b"PAR1" + bytes(300) + b[304:]),
        *["tail.parquet"] * 3,
    ),
    HostileTable(
        "truncated Feather",
        cut_file("cut.feather", lambda b: b[: len(b) // 2]),
        *["cut.feather"] * 3,
    ),
    HostileTable(
        "noise as Parquet",
        text_file("noise.parquet", lambda _: np.random.default_rng(0).bytes(5000)),
        *["noise.parquet"] * 3,
    ),
    HostileTable("no file", lambda folder: folder / "nowhere.csv", *["nowhere.csv"] * 3),
    HostileTable("a folder", lambda folder: folder, *["a_folder"] * 3),
    HostileTable("Parquet that expands to 20 GB", expanding_parquet, *["expanding.parquet"] * 3),
]

CORPUS: list[HostileTable] = [*SHAPES, *NUMBERS, *CATEGORIES, *NAMES, *DRIFT, *TARGETS, *FILES]

LISTED = (
    *("no rows", "one row", "one column", "every cell missing", "a column all missing"),
    *("constant", "infinities", "1e300", "1e-300", "integers above 2^53", "uint64 max"),
    *("booleans", "nullable integers", "times with a zone", "timedeltas", "decimals"),
    *("mixed numbers and text", "bytes", "lists", "complex numbers", "duplicate names"),
    *("an empty name", "unicode names", "a newline in a name", "names of 10,000 letters"),
    *("a name that is a float", "names that are integers", "a million levels"),
    *("unseen levels", "a column missing", "a column more", "columns in another order"),
    *("a column renamed", "text for numbers", "numbers for text", "the rows of a MultiIndex"),
    *("a MultiIndex of columns", "sparse columns", "a sparse matrix"),
    *("CSV with a byte-order mark", "CSV in UTF-16", "ragged CSV", "truncated Parquet"),
    *("Parquet that expands to 20 GB", "a target of 1e300", "a target beyond 2^53"),
)
"""The tables of the agreed list, with which the quick tests run every verb."""
