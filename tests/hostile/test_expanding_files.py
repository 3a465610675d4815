"""Claims: a small file that stands for gigabytes is refused before it takes them.

1. A Parquet file of 2 MB that expands to 20 GB of text, in a column or in lists: refused within 2
   seconds, in a process that never takes 100 MB more than it had.
2. So is one that declares more numbers than the limit, and an Arrow file whose batches add up.
3. So is a gzipped CSV file.
4. Tables that are merely compressible are read, to the last cell, whatever their types.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.hostile.spoiling import expanding_parquet
from tests.tables.test_types import TYPED
from varjepa.errors import InputError
from varjepa.tables import read_table

MEASURE = """
import json, pathlib, sys, time
from varjepa.errors import InputError
from varjepa.tables import read_table


def peak_mb():  # ru_maxrss would count the parent's
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


found, before = [], peak_mb()
for path in sys.argv[1:]:
    start = time.perf_counter()
    try:
        read_table(path)
        said = "read"
    except InputError as error:
        said = str(error)
    took = time.perf_counter() - start
    found.append({"said": said, "seconds": took, "before": before, "peak_mb": peak_mb()})
print(json.dumps(found))
"""


def expanding_lists(folder: Path) -> Path:
    """20 GB of text in two rows of lists, 200 kB on disk."""
    path = folder / "lists.parquet"
    cells = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(10_000, dtype=np.int32)), ["x" * 2 * 10**6]
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 5_000, 10_000], pa.int32()), cells)
    pa.parquet.write_table(pa.table({"tags": lists}), path, store_schema=False)
    return path


def expanding_nulls(folder: Path) -> Path:
    """Numbers that are all missing: 1.3 GB, a few kB on disk."""
    path = folder / "nulls.parquet"
    missing = pa.nulls(4 * 10**6, pa.float64())
    group = pa.table(dict.fromkeys("abcd", missing))
    with pa.parquet.ParquetWriter(path, group.schema) as writer:
        for _ in range(10):
            writer.write_table(group, row_group_size=len(missing))
    return path


def expanding_csv(folder: Path) -> Path:
    """900 MB of text, 900 kB on disk."""
    path = folder / "zeros.csv.gz"
    member = gzip.compress(b"0,0\n" * (1 << 21))
    path.write_bytes(gzip.compress(b"a,b\n") + member * 107)
    return path


FILES = (expanding_parquet, expanding_lists, expanding_nulls, expanding_csv)


def measure(folder: Path) -> list[dict[str, Any]]:
    """What reading each file says, takes and needs, in a process of its own."""
    files = [build(folder) for build in FILES]
    assert all(file.stat().st_size < 2.1e6 for file in files)
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, files)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return [{"file": str(file), **one} for file, one in zip(files, found, strict=True)]


def test_refused_in_time_and_space(tmp_path: Path) -> None:
    for found in measure(tmp_path):
        assert found["said"].startswith(f"{found['file']} has ")
        assert "in memory, so it is not read" in found["said"]
        assert found["seconds"] < 2
        assert found["peak_mb"] - found["before"] < 100


@pytest.mark.soak
def test_what_a_refusal_takes(tmp_path: Path, record_soak: Callable[[str, Any], None]) -> None:
    found = {
        Path(one["file"]).name: {
            "bytes_on_disk": Path(one["file"]).stat().st_size,
            "seconds": round(one["seconds"], 4),
            "peak_mb_after_import": round(one["before"], 1),
            "peak_mb": round(one["peak_mb"], 1),
        }
        for one in measure(tmp_path)
    }
    assert len(found) == len(FILES)
    record_soak("expanding_files", found)


def test_batches_of_an_arrow_file_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "zeros.feather"
    batch = pa.record_batch({"n": pa.array(np.zeros(10**5))})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(str(path), batch.schema, options=options) as writer:
        for _ in range(10):
            writer.write_batch(batch)
    assert read_table(path).num_rows == 10**6
    monkeypatch.setattr("varjepa.tables.table_files.ALWAYS_ALLOWED", 4 * 10**6)
    with pytest.raises(InputError, match=r"zeros\.feather has .* MB on disk but needs more than"):
        read_table(path)


@pytest.mark.parametrize("store_schema", [True, False])
def test_every_type_is_read_as_arrow_reads_it(tmp_path: Path, store_schema: bool) -> None:
    columns = {
        **TYPED,
        "list": pa.array([["a", None], [], None]),
        "struct": pa.array([{"a": "x", "b": [1]}, None, {"a": None, "b": []}]),
        "map": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
        "binary": pa.array([b"1", None, b"\xff"]),
        "view": pa.array(["a", None, ""], pa.string_view()),
        "fixed": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
    }
    del columns["dec32"]  # Parquet has no type for it
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table(columns), path, store_schema=store_schema)
    with pa.parquet.ParquetFile(path) as file:
        wanted = file.read()
    table = read_table(path)
    for name in wanted.column_names:
        if name != "view":  # which becomes ordinary text
            assert table[name].type == wanted[name].type, name
        assert table[name].to_pylist() == wanted[name].to_pylist(), name


def test_compressible_tables_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows = 2 * 10**6
    table = pa.table({"n": np.zeros(rows), "s": pa.array(["a town"] * rows)})
    pa.parquet.write_table(table, path)
    assert path.stat().st_size * 1000 < table.nbytes
    assert read_table(path).equals(table)
