"""Claims about ``varjepa fit`` on files that are one table, also one larger than memory.

1. A folder whose rows fit in memory gives the model of the table in one piece, to the last bit,
   with labels too, and where a column's type is not the same in all files; so does the estimator.
   Text that is long is streamed however few its cells are.
2. Streamed, the codec is the same, and what is learned is as good but for the seed: the held-out
   objective and the accuracy of a linear probe, on a table sorted by its classes.
3. Interrupted and resumed, a streamed fit ends with the weights of one that was not; other files,
   settings or content are refused by name, and two processes of torchrun train it together.
4. --max-steps ends a fit there and is part of what a fit is; wrong input is one sentence.
5. Commands other than fit are refused under torchrun.
6. Memory does not grow with rows (soak: 10 million rows × 20 columns below 1.5 GB, and so the
   largest table that is held).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from tests.cli.test_shell import Captured, assert_refused, run
from tests.estimators.test_var_t_jepa import SMALL
from tests.small import small
from varjepa import TJEPA, VarTJEPA
from varjepa.errors import InputError
from varjepa.estimators import fitting
from varjepa.tables import read_table
from varjepa.tables.streaming import TableFiles, parquet_fingerprint
from varjepa.training import streamed_rows
from varjepa.training.step import Stepper

pytestmark = pytest.mark.filterwarnings("default::UserWarning")  # a few steps do collapse

SCRIPT = Path(__file__).with_name("streamed_fit.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
ROW_BYTES = 3 * 5 + 2 * 9


def classes(rows: int, seed: int) -> pa.Table:
    """Three classes, which numbers and words tell apart somewhat; sorted by class."""
    rng = np.random.default_rng(seed)
    label = np.sort(rng.integers(0, 3, rows))
    numbers = rng.normal(size=(rows, 3)) + 1.5 * np.eye(3)[label]
    words = np.where(rng.random(rows) < 0.6, label, rng.integers(0, 3, rows))
    columns = {f"n{j}": numbers[:, j] for j in range(3)}
    columns |= {"word": np.array(["red", "green", "blue"])[words], "label": label}
    columns["n1"] = pa.array(columns["n1"], mask=rng.random(rows) < 0.05)
    columns["side"] = np.array(["left", "right"])[(numbers[:, 0] > 0).astype(int)]
    return pa.table(columns)


def write_files(folder: Path, table: pa.Table, files: int = 4, groups: int = 150) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-table.num_rows // files)
    for i in range(files):
        part = table.slice(i * size, size)
        pa.parquet.write_table(part, folder / f"part-{i}.parquet", row_group_size=groups)
    return folder


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Call it for windows of so many rows, whatever the size of the table."""

    def stream(rows: int) -> None:
        monkeypatch.setattr(fitting, "MAX_CELLS_IN_MEMORY", 0)
        monkeypatch.setattr(streamed_rows, "WINDOW_BYTES", rows * ROW_BYTES)

    return stream


def weights(model: Path) -> bytes:
    return (model / "model.safetensors").read_bytes()


def config(model: Path) -> Any:
    return json.loads((model / "config.json").read_text(encoding="utf-8"))


# --- 1


def test_a_folder_that_fits_is_the_table(tmp_path: Path, capsys: Captured) -> None:
    folder = write_files(tmp_path / "logs", classes(600, 0))
    whole = tmp_path / "whole.parquet"
    pa.parquet.write_table(read_table(classes(600, 0)), whole)
    options = ("--target", "label", "--epochs", 2)
    for source, out in ((whole, "a"), (folder, "b"), (f"{folder}/*.parquet", "c")):
        assert run("fit", source, "--out", tmp_path / out, *options) == 0
        assert "600 rows, 5 columns" in capsys.readouterr().out
    for out in ("b", "c"):
        assert weights(tmp_path / out) == weights(tmp_path / "a")
        codecs = [(tmp_path / name / "codec.json").read_bytes() for name in ("a", out)]
        assert codecs[0] == codecs[1]
        assert config(tmp_path / out)["selected_by"] == "filtered accuracy"


def test_files_of_other_types(tmp_path: Path, capsys: Captured) -> None:
    """Engines write a column as integers, floats or nothing at all, as its values happen to be."""
    table = classes(600, 0)
    numbers = pa.array(np.arange(600.0) % 50)
    parts = [table.set_column(0, "n0", numbers).slice(i * 200, 200) for i in range(3)]
    parts[0] = parts[0].set_column(0, "n0", parts[0]["n0"].cast(pa.int32()))
    parts[0] = parts[0].set_column(4, "label", parts[0]["label"].cast(pa.int32()))
    parts[1] = parts[1].set_column(1, "n1", pa.nulls(200)).set_column(5, "side", pa.nulls(200))
    parts[2] = parts[2].set_column(3, "word", parts[2]["word"].cast(pa.large_string()))
    (tmp_path / "logs").mkdir()
    for i, part in enumerate(parts):
        pa.parquet.write_table(part, tmp_path / "logs" / f"{i}.parquet")
    whole = pa.concat_tables(parts, promote_options="permissive")
    pa.parquet.write_table(whole, tmp_path / "whole.parquet")
    options = ("--target", "label", "--max-steps", 4)
    for source, out in (("whole.parquet", "a"), ("logs", "b")):
        assert run("fit", tmp_path / source, "--out", tmp_path / out, *options) == 0
        assert run("embed", tmp_path / "a", tmp_path / source, "--out", tmp_path / f"{out}-e") == 0
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert (tmp_path / "a" / "codec.json").read_bytes() == (
        tmp_path / "b" / "codec.json"
    ).read_bytes()
    found = [
        pa.concat_tables(pa.parquet.read_table(p) for p in sorted((tmp_path / e).glob("*.parquet")))
        for e in ("a-e", "b-e")
    ]
    assert found[0].equals(found[1])


def test_long_text_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = TableFiles.find(write_files(tmp_path / "logs", classes(40, 0)))
    assert not fitting.is_streamed(files)
    monkeypatch.setattr(fitting, "MAX_BYTES_IN_MEMORY", files.bytes - 1)
    assert fitting.is_streamed(files)


@pytest.mark.parametrize("kind", [VarTJEPA, TJEPA])
def test_the_estimators_take_folders(kind: Any, tmp_path: Path) -> None:
    table = classes(300, 0)
    folder = write_files(tmp_path / "logs", table)
    X, y = table.drop_columns(["label"]), table["label"].to_numpy()
    expected = small(kind, **SMALL).fit(X, y).transform(X)
    found = small(kind, **SMALL).fit(TableFiles.find(folder, labels="label"))
    np.testing.assert_array_equal(found.transform(X), expected)
    assert list(found.feature_names_in_) == X.column_names
    with pytest.raises(InputError, match="either y or a column of the files"):
        small(kind, **SMALL).fit(TableFiles.find(folder, labels="label"), y)


# --- 2


def quality(model: VarTJEPA, test: pa.Table) -> tuple[float, float]:
    """The held-out objective, and the accuracy of a linear probe."""
    X, y = test.drop_columns(["label"]), test["label"].to_numpy()
    Z: NDArray[np.float32] = StandardScaler().fit_transform(model.transform(X))
    probe = LogisticRegression(max_iter=300).fit(Z[::2], y[::2])
    return float(model.score_samples(X).mean()), float(probe.score(Z[1::2], y[1::2]))


def test_streamed_is_as_good(tmp_path: Path, streaming: Callable[[int], None]) -> None:
    table, test = classes(1_200, 0), classes(800, 1)
    folder = write_files(tmp_path / "logs", table, files=3, groups=100)
    files = TableFiles.find(folder, labels="label")
    bare = TableFiles(files.source, files.files, files.schema)
    options = {**SMALL, "batch_size": 45, "learning_rate": 5e-3, "validate_every": 36}
    held, streamed = [], []
    for seed in range(2):
        one = small(VarTJEPA, **{**options, "random_state": seed, "epochs": 36})
        held.append(quality(one.fit(table.drop_columns(["label"])), test))
    streaming(270)  # a quarter of the training rows, so four times as many epochs
    for seed in range(2):
        other = small(VarTJEPA, **{**options, "random_state": seed, "epochs": 144})
        streamed.append(quality(other.fit(bare), test))
        assert len(other.history_) == 144
        assert other.codec_.to_json() == one.codec_.to_json()
    untrained = quality(small(VarTJEPA, **{**options, "max_steps": 1}).fit(bare), test)
    for mine, theirs in zip(np.transpose(streamed), np.transpose(held), strict=True):
        noise = max(0.02, float(np.ptp(theirs)))
        assert abs(mine.mean() - theirs.mean()) < noise, (mine, theirs)
    assert untrained[0] < np.mean(held, 0)[0] - 0.5  # so a training that failed would show


def test_labels_of_all_rows(tmp_path: Path, streaming: Callable[[int], None]) -> None:
    """An array of labels picks the moment as the column does."""
    table = classes(400, 0)
    files = TableFiles.find(write_files(tmp_path / "logs", table), labels="label")
    bare = TableFiles(files.source, files.files, files.schema)
    streaming(90)
    by_column = small(VarTJEPA, **SMALL).fit(files)
    by_array = small(VarTJEPA, **SMALL).fit(bare, table["label"].to_numpy())
    assert [r["filtered accuracy"] for r in by_column.history_] == [
        r["filtered accuracy"] for r in by_array.history_
    ]
    with pytest.raises(InputError, match=r"y has 399 labels, and .* 400 rows"):
        small(VarTJEPA, **SMALL).fit(bare, table["label"].to_numpy()[1:])


# --- 3


def interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    take = Stepper.step

    def interrupted(self: Stepper) -> None:
        take(self)
        if self.done == step:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Stepper, "step", interrupted)


@pytest.mark.parametrize("step", [3, 5])
def test_an_interrupted_fit_goes_on(
    step: int,
    tmp_path: Path,
    streaming: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    folder = write_files(tmp_path / "logs", classes(500, 0))
    streaming(90)  # five windows a pass, three steps each
    fit = ("fit", folder, "--target", "label", "--max-steps", 8, "--epochs", 99, "--out")
    assert run(*fit, tmp_path / "whole") == 0
    assert "500 rows, 5 columns" in capsys.readouterr().out
    assert len(config(tmp_path / "whole")["history"]) == 3
    with monkeypatch.context() as patched:
        interrupt_at(step, patched)
        assert run(*fit, tmp_path / "model") == 130
    assert "--resume continues from" in capsys.readouterr().err
    assert run(*fit, tmp_path / "model", "--resume") == 0
    assert weights(tmp_path / "model") == weights(tmp_path / "whole")


def test_what_a_streamed_fit_goes_on_with(
    tmp_path: Path,
    streaming: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    table = classes(500, 0)
    folder, out = write_files(tmp_path / "logs", table), tmp_path / "model"
    streaming(90)
    fit = ("fit", folder, "--out", out, "--target", "label", "--max-steps", 4)
    with monkeypatch.context() as patched:
        interrupt_at(2, patched)
        assert run(*fit) == 130
    capsys.readouterr()

    def refused(says: str, *more: object) -> None:
        code = run(*fit, "--resume", *more)
        error = capsys.readouterr().err
        assert code == 2
        assert re.search(f"^varjepa: the checkpoint .*{says}", error, re.MULTILINE), error

    refused("max_steps was 4 and is 5", "--max-steps", 5)
    refused("seed was .* and is", "--seed", 3)
    content = (folder / "part-2.parquet").read_bytes()
    other = table.slice(250, 125).set_column(0, "n0", pa.array(np.arange(125.0)))
    pa.parquet.write_table(other, folder / "part-2.parquet")
    refused("other content in 'part-2.parquet'")
    (folder / "part-2.parquet").rename(folder / "part-9.parquet")
    refused("files are not the same: 'part-2.parquet', 'part-9.parquet'")
    (folder / "part-9.parquet").unlink()
    (folder / "part-2.parquet").write_bytes(content)
    with monkeypatch.context() as patched:
        patched.setattr(streamed_rows, "WINDOW_BYTES", 80 * ROW_BYTES)
        refused("rows of an epoch was 90 and is 80")
    with monkeypatch.context() as patched:
        patched.setattr(fitting, "MAX_CELLS_IN_MEMORY", 10**9)
        refused("the table was streamed")
    assert run(*fit, "--resume") == 0


def test_other_values_behind_the_same_footer(
    tmp_path: Path,
    streaming: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    """Files without statistics or compression may change unseen by their fingerprints."""
    table, path = classes(300, 0), tmp_path / "logs" / "a.parquet"
    path.parent.mkdir()
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pa.parquet.write_table(table, path, **plain)
    fingerprint = parquet_fingerprint(path)
    streaming(90)
    fit = ("fit", path.parent, "--out", tmp_path / "model", "--max-steps", 4)
    with monkeypatch.context() as patched:
        interrupt_at(2, patched)
        assert run(*fit) == 130
    other = pa.compute.add(table["n0"], 1.0)
    pa.parquet.write_table(table.set_column(0, "n0", other), path, **plain)
    assert parquet_fingerprint(path) == fingerprint
    capsys.readouterr()
    assert_refused(capsys, run(*fit, "--resume"), "there are other values in 'n0'")


def test_two_processes_train_one_model(tmp_path: Path, streaming: Callable[[int], None]) -> None:
    folder = write_files(tmp_path / "logs", classes(500, 0))
    fit = ["fit", str(folder), "--target", "label", "--max-steps", "6", "--out"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*launch, str(SCRIPT), str(90 * ROW_BYTES), *fit, "together"]
    done = subprocess.run(command, cwd=tmp_path, env=_with_tests(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    streaming(90)
    assert run(*fit, tmp_path / "alone") == 0
    losses = [[r["loss"] for r in config(tmp_path / n)["history"]] for n in ("alone", "together")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert len(losses[0]) == 2


def _with_tests() -> dict[str, str]:
    """An environment whose Python finds this package and the tests, wherever it starts."""
    return {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, map(str, sys.path)))}


# --- 4


def test_max_steps_in_memory(tmp_path: Path, capsys: Captured) -> None:
    table = tmp_path / "table.parquet"
    pa.parquet.write_table(classes(300, 0), table)
    assert run("fit", table, "--out", tmp_path / "model", "--max-steps", 3) == 0
    assert config(tmp_path / "model")["parameters"]["training"]["max_steps"] == 3
    assert len(config(tmp_path / "model")["history"]) == 1
    assert VarTJEPA.load(tmp_path / "model").training.max_steps == 3
    for wrong in (0, -1):
        capsys.readouterr()
        code = run("fit", table, "--out", tmp_path / "new", "--max-steps", wrong)
        assert_refused(capsys, code, "'--max-steps': Input should be greater than or equal to 1")
    with pytest.raises(InputError, match="max_steps must be at least 1, not 0"):
        small(VarTJEPA, **{**SMALL, "max_steps": 0}).fit(classes(30, 0))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        ("nothing", [], "cannot read nothing: No such file"),
        ("empty", [], "empty holds no .parquet file"),
        ("no*.parquet", [], "no file matches no*.parquet"),
        ("logs/*.csv", [], "logs/a.csv is not a .parquet file"),
        ("logs", ["--target", "colour"], "--target 'colour' is not a column of logs"),
        ("logs", ["--kind", "colour=numeric"], "there is no column 'colour'"),
        ("logs", ["--kind", "word=numeric"], "column 'word' holds 'red', which is not a number"),
        ("odd", [], "odd/b.parquet holds string values, and of odd/a.parquet int64"),
        ("logs", ["--target", "list"], "column 'list' holds list<element: int64> values"),
        ("logs/part-0.parquet", ["--target", "list"], "column 'list' holds list<element: int64>"),
        ("s3://bucket/*.parquet", [], "s3://bucket/*.parquet is an address"),
    ],
)
def test_wrong_input(
    source: str,
    options: list[str],
    says: str,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    table = classes(40, 0)
    if "list" in options:
        table = table.append_column("list", pa.array([[1]] * 40))
    write_files(tmp_path / "logs", table, files=2)
    (tmp_path / "logs" / "a.csv").write_text("a\n1\n")
    for name, values in (("a", [1, 2]), ("b", ["1", "2"])):
        (tmp_path / "odd").mkdir(exist_ok=True)
        pa.parquet.write_table(pa.table({"x": values}), tmp_path / "odd" / f"{name}.parquet")
    code = run("fit", source, "--out", tmp_path / "model", *options)
    assert_refused(capsys, code, says)
    assert not (tmp_path / "model").exists()


def test_a_file_that_changes_during_a_fit(
    tmp_path: Path,
    streaming: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    folder = write_files(tmp_path / "logs", classes(500, 0), groups=1000)
    streaming(90)
    take = Stepper.step

    def spoiling(self: Stepper) -> None:
        take(self)
        for path in folder.iterdir():
            pa.parquet.write_table(classes(10, 0), path)

    monkeypatch.setattr(Stepper, "step", spoiling)
    code = run("fit", folder, "--out", tmp_path / "model", "--epochs", 9)
    error = capsys.readouterr().err.splitlines()
    assert code == 2
    assert re.search(r"part-\d\.parquet: it has changed since it was first read", error[-1]), error


# --- 5


def test_other_commands_under_torchrun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    for command in (
        ["embed", "model", "table.csv", "--out", "out"],
        ["demo", "--out", "out"],
    ):
        monkeypatch.chdir(tmp_path)
        code = run(*command)
        assert_refused(capsys, code, f"torchrun is for varjepa fit; start varjepa {command[0]}")
        assert not any(tmp_path.iterdir())


# --- 6


def write_wide(folder: Path, rows: int, files: int) -> Path:
    """20 columns: 9 numbers, one date, 9 categories, and text that hardly repeats."""
    folder.mkdir()
    for i in range(files):
        rng = np.random.default_rng(i)
        writer = None
        for start in range(0, rows // files, 125_000):
            n = min(125_000, rows // files - start)
            common = rng.normal(size=n)
            columns: dict[str, Any] = {f"n{j}": j * common + rng.normal(size=n) for j in range(9)}
            columns["n3"] = pa.array(columns["n3"], mask=rng.random(n) < 0.05)
            columns["when"] = pa.array(rng.integers(0, 10**12, n), pa.timestamp("ms"))
            for j in range(9):
                words = pa.array([f"level {k}" for k in range(3 + 20 * j)])
                columns[f"c{j}"] = words.take(pa.array(rng.integers(0, len(words), n)))
            columns["id"] = pa.array(rng.integers(0, 10**9, n)).cast(pa.string())
            columns["id"] = pa.compute.binary_join_element_wise("id", columns["id"], " ")
            table = pa.table(columns)
            path = folder / f"part-{i}.parquet"
            writer = writer or pa.parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()
    return folder


def measured(folder: Path, out: Path, steps: int) -> float:
    """Peak memory of a fit in MB."""
    fit = ["fit", str(folder), "--out", str(out), "--max-steps", str(steps), "--overwrite"]
    command = [sys.executable, str(SCRIPT), "as-is", *fit]
    done = subprocess.run(command, env=_with_tests(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (out / "manifest.json").exists()
    return float(re.search(r"peak ([\d.]+) MB", done.stdout)[1])  # type: ignore[index]


_SMALL_FIT = f"""
import sys
from varjepa import VarTJEPA
from benchmarks.measures import peak_resident_mb
from tests.small import small
from varjepa.estimators import fitting
from varjepa.tables.columns import MemoryLimits
from varjepa.training import streamed_rows
fitting.MAX_CELLS_IN_MEMORY, streamed_rows.WINDOW_BYTES = 0, {20_000 * ROW_BYTES}
fitting.MemoryLimits = lambda: MemoryLimits(1 << 17, 1 << 20)
small(VarTJEPA, **{SMALL}, validation_share=0.001, max_steps=2).fit(sys.argv[1])
print(peak_resident_mb())
"""


def test_memory_is_flat(tmp_path: Path) -> None:
    """In a process each: what earlier tests left to the allocator would be counted otherwise."""
    peaks = []
    for rows in (40_000, 400_000):
        folder = write_wide(tmp_path / str(rows), rows, 2)
        command = [sys.executable, "-W", "ignore", "-c", _SMALL_FIT, str(folder)]
        done = subprocess.run(command, env=_with_tests(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peaks.append(float(done.stdout))
    # 360,000 rows are 7 million cells, of which a number takes 8 bytes and a text more
    assert peaks[1] < peaks[0] + 30


@pytest.mark.soak
def test_ten_million_rows(
    tmp_path: Path, record_soak: Callable[[str, dict[str, Any]], None]
) -> None:
    count, steps = 10_000_000, 50
    figures: dict[str, Any] = {"rows": count, "columns": 20, "steps": steps, "threads": 1}
    peaks = []
    for rows in (count // 10, count):
        folder = write_wide(tmp_path / "table", rows, 8)
        peaks.append(measured(folder, tmp_path / "out", steps))
        figures["MB on disk"] = round(sum(p.stat().st_size for p in folder.iterdir()) / 1e6)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    figures |= {
        "peak_mb_of_a_tenth": peaks[0],
        "peak_mb": peaks[1],
        "growth": round(peaks[1] / peaks[0] - 1, 4),
    }
    record_soak("fit-stream", figures)
    assert peaks[1] < 1500
    assert peaks[1] < 1.10 * peaks[0]


@pytest.mark.soak
def test_the_largest_table_that_is_held(
    tmp_path: Path, record_soak: Callable[[str, dict[str, Any]], None]
) -> None:
    rows, steps = fitting.MAX_CELLS_IN_MEMORY // 20 // 8 * 8, 5
    folder = write_wide(tmp_path / "table", rows, 8)
    assert not fitting.is_streamed(TableFiles.find(folder))
    peak = measured(folder, tmp_path / "out", steps)
    figures = {"rows": rows, "columns": 20, "steps": steps, "threads": 1, "peak_mb": peak}
    record_soak("fit-held", figures)
    assert peak < 1500
