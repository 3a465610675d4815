"""Claims about ``varjepa embed`` on tables of any size.

1. Streamed embeddings are those of the table in memory, to the last bit and in its order, for every
   format, batch size and partition; ``--keep`` copies columns.
2. A folder of parts mirrors the input's files. Killed and started again, a run loses no row,
   repeats none, and leaves finished parts alone; leftovers of the killed one go.
3. Another model, other options, a changed, missing or new input file, and a folder of somebody
   else's are refused in one sentence, and nothing is touched.
4. Odd values are warned of once, with the counts of the whole run, also of one in two pieces.
5. What is wrong with a file or column is said with both names, before anything is written.
6. Memory does not grow with rows (soak: 10 million rows, 10 × the rows add less than 10 %).
7. An Embedder can be pickled, opens its model once per process, and gives back what it was given:
   Arrow, pandas, polars, arrays by name.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from tests.cli.test_shell import Captured, assert_refused, run, snapshot
from tests.estimators.test_var_t_jepa import SMALL
from tests.small import small
from varjepa import VarTJEPA
from varjepa.estimators import embedder as embedder_module
from varjepa.estimators.embedder import Embedder
from varjepa.model_folder import ModelFileError
from varjepa.models.inference import LATENT_KINDS
from varjepa.scale import embed_to_file
from varjepa.scale.plan import PLAN_FILE
from varjepa.tables import read_table
from varjepa.tables.streaming import find_tables

ROWS = 3_000
PARTS = 700
"""rows of a part"""


def rows_like_training(count: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": np.arange(count),
            "size": pa.array(rng.normal(size=count), mask=rng.random(count) < 0.01),
            "count": rng.integers(3, 9, count),
            "colour": rng.choice(["red", "green", "blue"], count),
        }
    )


def save_model(folder: Path, seed: int = 0) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs do collapse
        model = small(VarTJEPA, **{**SMALL, "random_state": seed})
        model.fit(rows_like_training(200).drop_columns(["id"])).save(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return rows_like_training(ROWS, seed=1)


@pytest.fixture(scope="module")
def expected(model: Path, table: pa.Table) -> dict[str, Any]:
    """The embeddings in memory, column by column."""
    estimator = VarTJEPA.load(model)
    features = table.drop_columns(["id"])
    found = estimator.embed(features)
    flat = found.mean.reshape(ROWS, -1)
    columns = dict(zip(estimator.get_feature_names_out(), flat.T, strict=True))
    columns["uncertainty"] = estimator.uncertainty(features)
    cells = estimator.cell_uncertainty(features)
    return columns | {f"uncertainty:{n}": cells[n].to_numpy() for n in cells.column_names}


def write(table: pa.Table, path: Path) -> Path:
    match path.suffix:
        case ".parquet":
            pa.parquet.write_table(table, path, row_group_size=1_000)
        case ".csv":
            pa.csv.write_csv(table, path)
        case _:
            pa.feather.write_feather(table, str(path))
    return path


def assert_expected(found: pa.Table, expected: dict[str, Any], per_column: bool = True) -> None:
    wanted = {k: v for k, v in expected.items() if per_column or ":" not in k}
    assert [name for name in found.column_names if name != "id"] == list(wanted)
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name].to_numpy(), values, err_msg=name)


def read_parts(folder: Path) -> pa.Table:
    files = sorted(path for path in folder.rglob("*.parquet") if path.is_file())
    return pa.concat_tables([pa.parquet.read_table(path) for path in files])


@pytest.fixture
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
@pytest.mark.parametrize("batch", [None, 100, 1])
def test_one_file(
    ending: str, batch: int | None, model: Path, table: pa.Table, expected: dict[str, Any],
    tmp_path: Path, capsys: Captured,
) -> None:  # fmt: skip
    count = 20 if batch == 1 else ROWS
    source = write(table.slice(0, count), tmp_path / f"in.{ending}")
    out = tmp_path / f"out.{ending}"
    options = [] if batch is None else ["--batch-rows", batch]
    arguments = ["embed", model, source, "--out", out, "--per-column", "--keep", "id", *options]
    assert run(*arguments) == 0
    printed = capsys.readouterr()
    assert f"{count:,} rows in" in printed.out
    assert "rows/s" in printed.out
    assert printed.err == ""
    found = read_table(out)
    assert found["id"].to_pylist() == list(range(count))
    if ending == "csv":  # which writes floats in few digits
        found = found.cast(
            pa.schema([(n, pa.int64() if n == "id" else pa.float32()) for n in found.column_names])
        )
    assert_expected(found, {name: values[:count] for name, values in expected.items()})
    assert not list(tmp_path.glob(".*"))


def test_a_folder_is_mirrored(
    model: Path, table: pa.Table, expected: dict[str, Any], tmp_path: Path
) -> None:
    source = tmp_path / "in"
    (source / "b").mkdir(parents=True)
    write(table.slice(0, 500), source / "a.parquet")
    write(table.slice(500, 2_100), source / "b" / "large.parquet")
    write(table.slice(2_600), source / "c.parquet")
    write(table.slice(0, 0), source / "d.parquet")
    arguments = ["embed", model, source, "--out", tmp_path / "out", "--part-rows", PARTS]
    assert run(*arguments, "--keep", "id") == 0
    names = sorted(
        p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*")
    )
    assert names == [
        PLAN_FILE, "a.parquet", "b", "b/large.parquet", "b/large.parquet/part-00000.parquet",
        "b/large.parquet/part-00001.parquet", "b/large.parquet/part-00002.parquet", "c.parquet",
        "d.parquet",
    ]  # fmt: skip
    found = read_parts(tmp_path / "out")
    assert found["id"].to_pylist() == list(range(ROWS))
    assert_expected(found, expected, per_column=False)
    one_file = tmp_path / "one.parquet"
    assert run("embed", model, f"{source}/**/*.parquet", "--out", one_file, "--keep", "id") == 0
    assert read_table(one_file).equals(found)


def start_command(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "varjepa", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_after(
    process: subprocess.Popen[bytes], enough: Callable[[], bool], limit: float = 120
) -> None:
    """SIGKILL as soon as enough has happened, which must not take longer than ``limit`` seconds."""
    end = time.monotonic() + limit
    try:
        while not enough():
            assert process.poll() is None, "ended before it could be killed"
            assert time.monotonic() < end
            time.sleep(0.005)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL


def identity(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns


def test_a_killed_run_continues(
    model: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 40_000
    table = rows_like_training(count, seed=2)
    source, out = write(table, tmp_path / "in.parquet"), tmp_path / "out"
    arguments = ["embed", model, source, "--out", out, "--part-rows", 1_500, "--keep", "id"]
    arguments += ["--batch-rows", 256]
    kill_after(start_command(*arguments), lambda: (out / "part-00002.parquet").exists())
    finished = {path: identity(path) for path in sorted(out.glob("part-*.parquet"))}
    assert 3 <= len(finished) < 27
    (out / ".part-00004.parquet.abc_4567.tmp").write_bytes(b"half")  # also where the kill left none
    assert run(*arguments) == 0
    assert "of them from an earlier run" in capsys.readouterr().out
    assert {path: identity(path) for path in finished} == finished
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]
    found = read_parts(out)
    assert found["id"].to_pylist() == list(range(count))
    loaded, features = VarTJEPA.load(model), table.drop_columns(["id"])
    whole = loaded.embed(features)
    np.testing.assert_array_equal(found["uncertainty"].to_numpy(), loaded.uncertainty(features))
    np.testing.assert_array_equal(found["size_0"].to_numpy(), whole.mean[:, 0, 0])
    assert run(*arguments) == 0
    assert "all of them from an earlier run" in capsys.readouterr().out
    assert {path: identity(path) for path in finished} == finished


def test_a_part_that_went_away_is_computed_again(
    model: Path, table: pa.Table, tmp_path: Path
) -> None:
    source, out = write(table, tmp_path / "in.csv"), tmp_path / "out"
    arguments = ["embed", model, source, "--out", out, "--part-rows", PARTS, "--keep", "id"]
    assert run(*arguments) == 0
    before = snapshot(out)
    for name in ("part-00001.parquet", "part-00003.parquet"):
        (out / name).unlink()
    assert run(*arguments) == 0
    assert read_parts(out)["id"].to_pylist() == list(range(ROWS))
    assert snapshot(out).keys() == before.keys()


def begun(model: Path, table: pa.Table, tmp_path: Path) -> list[object]:
    """A finished folder of two files, and the command that made it."""
    source = tmp_path / "in"
    source.mkdir()
    write(table.slice(0, 50), source / "a.parquet")
    write(table.slice(50, 50), source / "b.parquet")
    arguments = ["embed", model, source, "--out", tmp_path / "out", "--keep", "id"]
    assert run(*arguments) == 0
    return arguments


def change_an_input(source: Path) -> None:
    changed = pa.parquet.read_table(source / "b.parquet")
    ids = pa.array(np.arange(50)[::-1].copy())
    write(changed.set_column(0, "id", ids), source / "b.parquet")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (change_an_input, "when b.parquet had other content"),
        (lambda source: (source / "b.parquet").unlink(), "with b.parquet"),
        (
            lambda source: (source / "c.parquet").write_bytes((source / "a.parquet").read_bytes()),
            "without c.parquet",
        ),
    ],
)
def test_changed_inputs_are_refused(
    change: Callable[[Path], None], says: str, model: Path, table: pa.Table, tmp_path: Path,
    capsys: Captured,
) -> None:  # fmt: skip
    arguments = begun(model, table, tmp_path)
    before = snapshot(tmp_path / "out")
    change(tmp_path / "in")
    capsys.readouterr()
    assert_refused(capsys, run(*arguments), says)
    assert snapshot(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--per-column"], "another --per-column"),
        (["--keep", "count"], "another --keep"),
        (["--part-rows", "7"], "another --part-rows"),
    ],
)
def test_other_options_are_refused(
    options: list[str], says: str, model: Path, table: pa.Table, tmp_path: Path, capsys: Captured
) -> None:
    arguments = begun(model, table, tmp_path)
    capsys.readouterr()
    assert_refused(capsys, run(*arguments, *options), says)


def test_another_model_is_refused(
    model: Path, table: pa.Table, tmp_path: Path, capsys: Captured
) -> None:
    arguments = begun(model, table, tmp_path)
    other = save_model(tmp_path / "other", seed=1)
    capsys.readouterr()
    assert_refused(capsys, run("embed", other, *arguments[2:]), "begun with another model")


def test_folders_of_somebody_else(
    model: Path, table: pa.Table, tmp_path: Path, capsys: Captured
) -> None:
    arguments = begun(model, table, tmp_path)
    out = tmp_path / "out"
    (out / "a.parquet").write_bytes((tmp_path / "in" / "a.parquet").read_bytes())
    capsys.readouterr()
    assert_refused(capsys, run(*arguments), "a.parquet is not a part of these embeddings")
    plan = json.loads((out / PLAN_FILE).read_text())
    (out / PLAN_FILE).write_text(json.dumps(plan | {"version": 1}))
    assert_refused(capsys, run(*arguments), "is not a plan that this version wrote")
    (out / PLAN_FILE).unlink()
    assert_refused(capsys, run(*arguments), "is not empty")


@pytest.mark.filterwarnings("default::UserWarning")
def test_warnings_come_once(model: Path, tmp_path: Path, capsys: Captured) -> None:
    table = rows_like_training(900).append_column("shoe", pa.array(["x"] * 900))
    sizes = table["size"].to_numpy().copy()
    sizes[::100] = np.inf
    colours = np.array(table["colour"].to_pylist(), dtype=object)
    colours[::9] = "ultraviolet"
    table = table.set_column(1, "size", pa.array(sizes)).set_column(3, "colour", pa.array(colours))
    source, out = write(table, tmp_path / "in.parquet"), tmp_path / "out"
    expected = [
        "ignored columns that the model does not use: 'id', 'shoe'",
        "treated as missing: infinite values, in 'size' (9)",
        "treated as missing: values that were not seen when the model was fitted, "
        "in 'colour' (100)",
    ]

    def warned() -> list[str]:
        lines = capsys.readouterr().err.strip().splitlines()
        return [line.removeprefix("varjepa: warning: ") for line in lines]

    assert run("embed", model, source, "--out", tmp_path / "o.csv", "--batch-rows", "50") == 0
    assert warned() == expected
    arguments = ["embed", model, source, "--out", out, "--part-rows", "100"]
    assert run(*arguments) == 0
    assert warned() == expected
    for number in range(4, 9):
        (out / f"part-0000{number}.parquet").unlink()
    assert run(*arguments) == 0  # with parts from before and parts from now
    assert warned() == expected


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("colour", None, "bad.parquet: the table has no column 'colour'"),
        ("size", [[1.0]] * 50, "bad.parquet: column 'size' holds list"),
        ("count", ["a few"] * 50, "bad.parquet: column 'count' holds 'a few'"),
    ],
)
@pytest.mark.parametrize("out", ["out", "out.parquet"])
def test_a_file_that_does_not_fit(
    column: str, values: list[Any] | None, says: str, out: str, model: Path, table: pa.Table,
    tmp_path: Path, capsys: Captured,
) -> None:  # fmt: skip
    source = tmp_path / "in"
    source.mkdir()
    write(table.slice(0, 50), source / "a.parquet")
    bad = table.slice(0, 50).drop_columns([column])
    if values is not None:
        bad = bad.append_column(column, pa.array(values))
    write(bad, source / "bad.parquet")
    code = run("embed", model, source, "--out", tmp_path / out, "--keep", "id")
    assert_refused(capsys, code, says)
    if column != "count":  # that one shows only in its rows
        assert not (tmp_path / out).exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "{new}", "--keep", "shoe"], "no column 'shoe' to keep"),
        (["--out", "{new}", "--batch-rows", "0"], "--batch-rows"),
        (["--out", "{new}", "--part-rows", "-1"], "--part-rows"),
        (["--out", "{new}.csv", "--part-rows", "10"], "--part-rows is for a folder"),
        (["--out", "{new}", "--device", "toaster"], "toaster"),
    ],
)
def test_wrong_options(
    arguments: list[str], says: str, model: Path, table: pa.Table, tmp_path: Path, capsys: Captured
) -> None:
    source = write(table.slice(0, 50), tmp_path / "in.parquet")
    given = [argument.format(new=tmp_path / "new") for argument in arguments]
    assert_refused(capsys, run("embed", model, source, *given), says)
    assert set(snapshot(tmp_path)) == {"in.parquet"}


def test_kept_columns_may_not_hide_embeddings(
    model: Path, table: pa.Table, tmp_path: Path, capsys: Captured
) -> None:
    odd = table.rename_columns(["uncertainty", "size", "count", "colour"])
    source = write(odd, tmp_path / "in.parquet")
    out = tmp_path / "o.csv"
    code = run("embed", model, source, "--out", out, "--keep", "uncertainty")
    assert_refused(capsys, code, "has a column 'uncertainty' of its own")


def test_kept_text_is_safe_in_a_spreadsheet(model: Path, table: pa.Table, tmp_path: Path) -> None:
    texts = pa.array(["=1+1"] * ROWS).dictionary_encode()
    source = write(table.append_column("=x", texts), tmp_path / "in.parquet")
    out = tmp_path / "o.csv"
    arguments = ["embed", model, source, "--out", out, "--keep", "=x", "--batch-rows", "700"]
    assert run(*arguments, "--keep", "id") == 0
    assert set(pd.read_csv(out)["'=x"]) == {"'=1+1"}
    assert run(*arguments, "--keep", "id", "--raw-text") == 0
    assert set(pd.read_csv(out)["=x"]) == {"=1+1"}


def test_a_failing_run_leaves_the_old_file(
    model: Path, table: pa.Table, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "o.csv"
    out.write_text("mine")
    texts = pa.array(["3"] * 2_000 + ["many"] + ["3"] * 999)
    bad = table.set_column(2, "count", texts)
    source = write(bad, tmp_path / "in.parquet")
    code = run("embed", model, source, "--out", out, "--batch-rows", "500", "--keep", "id")
    assert_refused(capsys, code, "in.parquet: column 'count' holds 'many'")
    assert snapshot(tmp_path).keys() == {"in.parquet", "o.csv"}
    assert out.read_text() == "mine"


def test_a_model_fitted_on_an_array(tmp_path: Path, quiet: None) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    estimator = small(VarTJEPA, **SMALL).fit(X)
    estimator.save(tmp_path / "model")
    source = write(
        pa.table({"a": X[:, 0], "id": range(60), "b": X[:, 1], "c": X[:, 2]}), tmp_path / "t.csv"
    )
    tables = find_tables(source)
    embed_to_file(Embedder(str(tmp_path / "model"), keep=("id",)), tables, tmp_path / "o.parquet")
    found = pa.parquet.read_table(tmp_path / "o.parquet")
    assert found.column_names[:2] == ["id", "x0_0"]
    np.testing.assert_array_equal(found["uncertainty"].to_numpy(), estimator.uncertainty(X))


# --- the embedder by itself


def batches(table: pa.Table) -> dict[str, Any]:
    frame = table.to_pandas()
    return {
        "RecordBatch": table.to_batches()[0],
        "Table": table,
        "pandas": frame.set_index(frame["id"].to_numpy() + 5),
        "polars": pl.from_arrow(table),
        "arrays": {name: frame[name].to_numpy() for name in frame},
    }


@pytest.mark.parametrize("kind", ["RecordBatch", "Table", "pandas", "polars", "arrays"])
def test_embedder_gives_back_what_it_was_given(
    kind: str, model: Path, table: pa.Table, expected: dict[str, Any]
) -> None:
    batch = batches(table)[kind]
    embedder = Embedder(str(model), per_column=True, keep=("id",))
    found = embedder(batch)
    assert type(found) is type(batch)
    if kind == "pandas":
        assert found.index.equals(batch.index)
    as_table = read_table(found)
    assert as_table["id"].to_pylist() == list(range(ROWS))
    assert_expected(as_table, expected)
    empty = embedder({name: v[:0] for name, v in batch.items()} if kind == "arrays" else batch[:0])
    assert type(empty) is type(batch)
    assert read_table(empty).schema.names == as_table.schema.names


def test_embedder_travels(
    model: Path, table: pa.Table, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = Embedder(str(model), per_column=True, keep=("id",))
    embedder(table.slice(0, 10))  # in use, and still only settings
    sent = pickle.dumps(embedder)
    assert len(sent) < 1_000
    opened = []
    load = VarTJEPA.load
    monkeypatch.setattr(VarTJEPA, "load", lambda folder: opened.append(folder) or load(folder))
    embedder_module._open_model.cache_clear()
    halves = [pickle.loads(sent)(table.slice(0, 1_001)), pickle.loads(sent)(table.slice(1_001))]
    assert_expected(pa.concat_tables(halves), expected)
    assert len(opened) == 1


def test_embedder_of_one_very_model(table: pa.Table, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    pinned = Embedder(str(folder), keep=("id",)).pinned()
    assert len(pinned(table)) == ROWS
    save_model(folder, seed=1)
    embedder_module._open_model.cache_clear()
    with pytest.raises(ModelFileError, match="holds another model than before"):
        pinned(table)


def test_embedder_warns_once(model: Path, table: pa.Table) -> None:
    embedder_module._open_model.cache_clear()
    embedder = Embedder(str(model), keep=("id",))
    odd = table.set_column(3, "colour", pa.array(["pink"] * ROWS))
    with pytest.warns(UserWarning, match=r"'colour' \(3000\)"):
        embedder(odd)
    embedder(odd)  # a warning would be an error


# --- memory


_MEASURE = """
import json, sys
from pathlib import Path
from benchmarks.measures import peak_resident_mb
from varjepa.estimators.embedder import Embedder
from varjepa.cli.shell import keep_freed_memory
from varjepa.scale import embed_to_folder
from varjepa.tables.streaming import find_tables
keep_freed_memory()
model, out, *sources = sys.argv[1:]
found = []
for i, source in enumerate(sources):
    run = embed_to_folder(Embedder(model, keep=("id",)), find_tables(source), Path(out) / str(i))
    found.append({"rows": run.rows, "seconds": run.seconds, "peak_mb": peak_resident_mb()})
print(json.dumps(found))
"""


def measure(model: Path, out: Path, *sources: Path, threads: int = 1) -> list[dict[str, float]]:
    """Peak memory of one process after each source, one after the other."""
    command = [sys.executable, "-c", _MEASURE, str(model), str(out), *map(str, sources)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def write_large(path: Path, rows: int) -> Path:
    """In pieces, so that this process stays small too."""
    piece = rows_like_training(100_000, seed=3)
    with pa.parquet.ParquetWriter(path, piece.schema) as writer:
        for start in range(0, rows, len(piece)):
            ids = pa.array(np.arange(start, start + len(piece)))
            writer.write_table(piece.set_column(0, "id", ids).slice(0, rows - start))
    return path


def test_memory_is_flat(model: Path, tmp_path: Path) -> None:
    small, large = (write_large(tmp_path / f"{n}.parquet", n) for n in (20_000, 100_000))
    first, second = measure(model, tmp_path / "out", small, large)
    assert (first["rows"], second["rows"]) == (20_000, 100_000)
    assert second["peak_mb"] < 1.10 * first["peak_mb"]


@pytest.mark.soak
def test_ten_million_rows(
    model: Path, tmp_path: Path, record_soak: Callable[[str, dict[str, Any]], None]
) -> None:
    count = 10_000_000
    one, ten = (write_large(tmp_path / f"{n}.parquet", n) for n in (count // 10, count))
    (small,) = measure(model, tmp_path / "small", one, threads=2)
    out = tmp_path / "large" / "0"
    options = ["--keep", "id", "--part-rows", count // 20]
    killed = start_command("embed", model, ten, "--out", out, *options)
    kill_after(killed, lambda: (out / "part-00001.parquet").exists(), limit=600)
    finished = {path: identity(path) for path in out.glob("part-*.parquet")}
    (large,) = measure(model, tmp_path / "large", ten, threads=2)
    assert {path: identity(path) for path in finished} == finished
    parts = sorted(out.glob("part-*.parquet"))
    ids = pa.concat_tables([pa.parquet.read_table(path, columns=["id"]) for path in parts])["id"]
    different = len(ids.unique())
    chosen = np.random.default_rng(0).integers(0, count, 2_000)
    found = pa.parquet.read_table(out, columns=["size_0", "uncertainty"]).take(pa.array(chosen))
    rows = rows_like_training(100_000, seed=3).take(pa.array(chosen % 100_000))
    loaded, features = VarTJEPA.load(model), rows.drop_columns(["id"])
    np.testing.assert_array_equal(found["size_0"].to_numpy(), loaded.embed(features).mean[:, 0, 0])
    np.testing.assert_array_equal(found["uncertainty"].to_numpy(), loaded.uncertainty(features))
    figures = {
        "rows": count,
        "rows_before_the_kill": count - large["rows"],
        "threads": 2,
        "lost_rows": count - different,
        "repeated_rows": len(ids) - different,
        "peak_mb_of_a_tenth": round(small["peak_mb"], 1),
        "peak_mb": round(large["peak_mb"], 1),
        "growth": round(large["peak_mb"] / small["peak_mb"] - 1, 4),
        "rows_per_s": round(large["rows"] / large["seconds"]),
    }
    record_soak("embed-stream", figures)
    np.testing.assert_array_equal(ids.to_numpy(), np.arange(count))
    assert large["peak_mb"] < 1.10 * small["peak_mb"]


@pytest.mark.parametrize("kind", LATENT_KINDS)
def test_any_uncertainty_can_be_asked_for(
    model: Path, table: pa.Table, tmp_path: Path, kind: Any
) -> None:
    source, out = write(table.slice(0, 50), tmp_path / "t.parquet"), tmp_path / "o.parquet"
    options = ("--uncertainty", kind, "--per-column", "--keep", "id")
    assert run("embed", model, source, "--out", out, *options) == 0
    found = pa.parquet.read_table(out)
    loaded, features = VarTJEPA.load(model), table.slice(0, 50).drop_columns(["id"])
    np.testing.assert_array_equal(found["uncertainty"], loaded.uncertainty(features, kind))
    cells = loaded.cell_uncertainty(features, kind)
    for name in features.column_names:
        np.testing.assert_array_equal(found[f"uncertainty:{name}"], cells[name])
    np.testing.assert_array_equal(found["size_0"], loaded.embed(features).mean[:, 0, 0])


def test_parts_of_one_name_are_refused(
    model: Path, table: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    write(table.slice(0, 10), source / "a.csv")
    write(table.slice(10, 20), source / "a.csv.parquet")
    code = run("embed", model, f"{source}/*", "--out", tmp_path / "out", "--keep", "id")
    assert_refused(capsys, code, "would be one file")


def test_an_output_inside_the_input_is_no_input(
    model: Path, table: pa.Table, tmp_path: Path
) -> None:
    write(table.slice(0, 30), tmp_path / "a.parquet")
    for _ in range(2):  # the second time the parts are there
        assert run("embed", model, tmp_path, "--out", tmp_path / "out", "--keep", "id") == 0
    assert read_parts(tmp_path / "out")["id"].to_pylist() == table["id"].to_pylist()[:30]
