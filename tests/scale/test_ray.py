"""Claims about ``varjepa embed --engine ray``.

1. A cluster of two processors gives the folder that one process gives, byte for byte: no row lost,
   none repeated, the same warnings; also when one of its two workers is killed with a part half
   written. On stdout there is our sentence alone.
2. Ctrl-C ends it with everything it started, and one process goes on with the finished parts; so
   does Ray with those of one process. A Ray of our own takes orders only with a token.
3. What is wrong with rows, options, an address or the version of Ray is one sentence; so is a part
   that kills every worker, and a folder that workers do not share. Without Ray, the sentence says
   what to install.
4. A column of pickled objects, which Ray Data can read, is refused and not unpickled.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.cli.test_shell import Captured, assert_refused, run, snapshot
from tests.scale.ray_processes import (
    LIMIT,
    Cluster,
    descendants,
    environment_of,
    files_of,
    kill_in_the_middle,
    name_of,
    running_cluster,
    wait_until,
)
from tests.scale.test_embedding import identity, read_parts, rows_like_training, save_model, write
from tests.small import small
from varjepa import VarTJEPA
from varjepa.errors import InputError
from varjepa.estimators.embedder import Embedder
from varjepa.scale import embed_to_folder, ray_engine
from varjepa.scale.embedding import Report, Work
from varjepa.scale.plan import Part
from varjepa.scale.ray_engine import task_needs
from varjepa.tables.streaming import find_tables

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed: pip install 'varjepa[scale]'"
)
ROWS = 12_000
OPTIONS = ["--keep", "id", "--part-rows", 600, "--batch-rows", 64]
"""small batches, so that parts take long enough to be killed in the middle"""


def without_progress(lines: list[str]) -> list[str]:
    """A log gets a line of progress now and then."""
    return [line for line in lines if not line.startswith("embedding, ")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as found:
        yield found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files, a large one in a folder, one without rows; some odd values."""
    folder = tmp_path_factory.mktemp("in")
    table = rows_like_training(ROWS, seed=4)
    sizes, colours = table["size"].to_numpy().copy(), table["colour"].to_pylist()
    sizes[::1_000] = np.inf
    colours[::500] = ["ultraviolet"] * len(colours[::500])
    table = table.set_column(1, "size", pa.array(sizes)).set_column(3, "colour", pa.array(colours))
    (folder / "b").mkdir()
    write(table.slice(0, 500), folder / "a.parquet")
    write(table.slice(500, ROWS - 900), folder / "b" / "large.parquet")
    write(table.slice(ROWS - 400), folder / "c.parquet")
    write(table.slice(0, 0), folder / "d.parquet")
    return folder


@pytest.fixture(scope="module")
def expected(
    model: Path, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, bytes], str]:
    """The folder that one process makes, and what it says on stderr."""
    out = tmp_path_factory.mktemp("expected") / "out"
    with redirect_stderr(StringIO()) as stderr, warnings.catch_warnings():
        warnings.simplefilter("default")
        assert run("embed", model, source, "--out", out, *OPTIONS) == 0
    said = stderr.getvalue()
    assert read_parts(out)["id"].to_pylist() == list(range(ROWS))
    assert "in 'colour' (24)" in said
    return snapshot(out), said


def start_embed(
    model: Path,
    source: Path,
    out: Path,
    *options: object,
    environment: dict[str, str] | None = None,
) -> subprocess.Popen[str]:
    command = ["embed", model, source, "--out", out, *OPTIONS, *options]
    return subprocess.Popen(
        [sys.executable, "-m", "varjepa", *map(str, command)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def on(cluster: Cluster) -> dict[str, Any]:
    return {"environment": cluster.environment}


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, error = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    return process.returncode, out, error


def parts_in(out: Path) -> list[Path]:
    return [path for path in out.rglob("*.parquet") if path.is_file()]


@needs_ray
def test_a_killed_worker_changes_nothing(
    model: Path, source: Path, expected: tuple[dict[str, bytes], str], cluster: Cluster,
    tmp_path: Path,
) -> None:  # fmt: skip
    files, warned = expected
    out = tmp_path / "out"
    begun = [name for name in files if "000" not in name or name.endswith("00003.parquet")]
    for name in begun:  # by one process
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(files[name])
    done = {out / name: identity(out / name) for name in begun}
    options = ["--engine", "ray", "--address", cluster.address]
    process = start_embed(model, source, out, *options, **on(cluster))
    wait_until(lambda: len(cluster.workers()) == 2, process)
    wait_until(lambda: kill_in_the_middle(cluster.workers, out), process)
    assert len(snapshot(out)) < len(files) - 3, "it was almost done"
    code, said, error = finished(process)
    of_ray = [line for line in error.splitlines() if "(raylet)" in line]
    assert any("worker died" in line for line in of_ray)
    rest = [line for line in error.splitlines() if line not in of_ray]
    assert without_progress(rest) == without_progress(warned.splitlines())
    assert code == 0
    before = 500 + 400 + 600
    assert said.startswith(f"{ROWS:,} rows in {out}, {before:,} of them from an earlier run; ")
    assert len(said.splitlines()) == 1
    assert {path: identity(path) for path in done} == done
    assert snapshot(out) == files  # and no temporary of the killed worker


@needs_ray
@pytest.mark.filterwarnings("default::UserWarning")
def test_ctrl_c_and_another_engine(
    model: Path, source: Path, expected: tuple[dict[str, bytes], str], tmp_path: Path,
    capsys: Captured,
) -> None:  # fmt: skip
    out = tmp_path / "out"
    process = start_embed(model, source, out, "--engine", "ray")  # a Ray of its own
    wait_until(lambda: len(parts_in(out)) >= 3, process)
    family = descendants(process.pid)
    (server,) = [pid for pid in family if "gcs_server" in name_of(pid)]
    assert "RAY_AUTH_MODE=token" in environment_of(server)
    assert "RAY_USAGE_STATS_ENABLED=0" in environment_of(server)
    process.send_signal(signal.SIGINT)
    code, said, error = finished(process)
    assert (code, said) == (130, "")
    sentence = f"varjepa: interrupted; the same command continues {out}"
    assert without_progress(error.splitlines()) == [sentence]
    assert [name_of(pid) for pid in family if "ray" in name_of(pid)] == []
    done = {path: identity(path) for path in parts_in(out)}
    assert len(done) < len(expected[0]) - 1
    assert run("embed", model, source, "--out", out, *OPTIONS) == 0
    assert "of them from an earlier run" in capsys.readouterr().out
    assert {path: identity(path) for path in done} == done
    assert snapshot(out) == expected[0]


@needs_ray
def test_what_is_wrong_with_rows_is_one_sentence(
    model: Path, cluster: Cluster, tmp_path: Path
) -> None:
    texts = pa.array(["3"] * 800 + ["many"] + ["3"] * 199)
    table = rows_like_training(1_000).set_column(2, "count", texts)
    source = write(table, tmp_path / "in.parquet")
    options = ["--engine", "ray", "--address", cluster.address]
    process = start_embed(model, source, tmp_path / "out", *options, **on(cluster))
    code, _, error = finished(process)
    assert code == 2
    *progress, sentence = error.splitlines()
    assert sentence.startswith(f"varjepa: {source}: column 'count' holds 'many'")
    assert all(line.startswith("embedding, ") for line in progress)  # on a busy machine
    assert not (tmp_path / "out" / ".varjepa.lock").exists()


@needs_ray
@pytest.mark.soak
def test_a_part_that_kills_every_worker(model: Path, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with running_cluster() as cluster:
        options = ["--engine", "ray", "--address", cluster.address, "--part-rows", ROWS]
        process = start_embed(model, source, out, *options, **on(cluster))
        kills = 0
        while process.poll() is None:
            half = [pid for pid in cluster.workers() if files_of(pid, out)]
            for pid in half:
                os.kill(pid, signal.SIGKILL)
                kills += 1
            time.sleep(0.02)
        code, _, error = finished(process)
    assert code == 2
    (ours,) = [line for line in error.splitlines() if line.startswith("varjepa: ")]
    assert ours.startswith("varjepa: Ray gave up: ")
    assert "Traceback" not in error
    assert kills >= 6


def one_file(tmp_path: Path) -> Path:
    return write(rows_like_training(50), tmp_path / "in.parquet")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "--engine ray needs Ray: pip install 'varjepa[scale]'"),
        ("2.54.1", "Ray 2.54.1 may run code that is hidden in a Parquet file"),
        ("3.0.0", None),
        ("2.55.0", None),
        ("2.100.0", None),
    ],
)
def test_versions_of_ray(
    found: str | None, says: str | None, model: Path, tmp_path: Path, capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def version(_: str) -> str:
        if found is None:
            raise PackageNotFoundError
        return found

    monkeypatch.setattr(ray_engine, "version", version)
    if says is None:
        ray_engine.ray_engine()
        return
    code = run("embed", model, one_file(tmp_path), "--out", tmp_path / "out", "--engine", "ray")
    assert_refused(capsys, code, says)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--engine", "toaster"], "--engine 'toaster' is not one of local, ray"),
        (["--address", "auto"], "--address is for --engine ray"),
        (["--engine", "ray", "--out", "{}/o.csv"], "o.csv is one file"),
        (["--engine", "ray", "--address", "here"], "neither auto nor a host:port"),
        (["--engine", "ray", "--address", "127.0.0.1:99999"], "there is no answer"),
        (["--engine", "ray", "--address", "{closed}"], "there is no answer"),
    ],
)
def test_wrong_options(
    options: list[str], says: str, model: Path, tmp_path: Path, capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(ray_engine, "version", lambda _: "2.55.0")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{one.getsockname()[1]}"  # bound, but nobody listens
        given = [word.format(tmp_path, closed=closed) for word in options]
        source = one_file(tmp_path)
        code = run("embed", model, source, "--out", tmp_path / "out", *given)
    assert_refused(capsys, code, says)
    assert set(snapshot(tmp_path)) == {"in.parquet"}


def test_what_a_task_takes() -> None:
    assert task_needs({"CPU": 2}, "auto") == {"num_cpus": 1, "num_gpus": 0}
    assert task_needs({"CPU": 2, "GPU": 1}, "auto") == {"num_cpus": 0, "num_gpus": 1}
    assert task_needs({"CPU": 2, "GPU": 1}, "cpu") == {"num_cpus": 1, "num_gpus": 0}
    with pytest.raises(InputError, match="has no GPU"):
        task_needs({"CPU": 2}, "cuda")


def test_a_folder_that_is_not_shared(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "PATIENCE", 0.0)

    def elsewhere(work: Work, missing: list[Part], report: Report) -> None:
        report(0, ray_engine._arrived(work, missing[0]))

    tables = find_tables(one_file(tmp_path))
    with pytest.raises(InputError, match="a folder that all of them share"):
        embed_to_folder(Embedder(str(model)), tables, tmp_path / "out", engine=elsewhere)


_UNPICKLE = """
import sys
import pyarrow.parquet
import ray.data
from varjepa import VarTJEPA
from varjepa.errors import InputError
from varjepa.estimators.embedder import Embedder
table = pyarrow.parquet.read_table(sys.argv[2])
assert "pickled_object" in str(table.schema.field("colour").type), table.schema
try:
    Embedder(sys.argv[1], keep=("id",))(table)
except InputError as error:
    print(error)
"""


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (str(self.path),)


@needs_ray
def test_pickled_objects_are_refused(model: Path, tmp_path: Path) -> None:
    sign = {
        b"ARROW:extension:name": b"ray.data.arrow_pickled_object",
        b"ARROW:extension:metadata": b"",
    }
    table = rows_like_training(50).drop_columns(["colour"])
    bombs = pa.array([pickle.dumps(Bomb(tmp_path / "boom"))] * 50, pa.large_binary())
    table = table.append_column(pa.field("colour", bombs.type, metadata=sign), bombs)
    source = write(table, tmp_path / "in.parquet")
    done = subprocess.run(
        [sys.executable, "-c", _UNPICKLE, str(model), str(source)],
        capture_output=True, text=True, check=True, timeout=LIMIT,
    )  # fmt: skip
    assert "column 'colour' holds extension<ray.data.arrow_pickled_object" in done.stdout
    assert not (tmp_path / "boom").exists()
    pickle.loads(bombs[0].as_py())  # it would have gone off
    assert (tmp_path / "boom").exists()


def running_processes(seconds: float = 3.0) -> float:
    """Processes that want a processor, on average over a while, this one not counted."""
    looks = []
    for _ in range(int(seconds / 0.1)):
        running = Path("/proc/loadavg").read_text().split()[3]
        looks.append(int(running.split("/")[0]) - 1)
        time.sleep(0.1)
    return sum(looks) / len(looks)


_MEASURE = """
import json, sys, time
from pathlib import Path
model, source, out, engine = sys.argv[1:]
if engine == "ray":
    import logging, ray
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False,
             logging_level=logging.CRITICAL, object_store_memory=1 << 27)
from varjepa.estimators.embedder import Embedder
from varjepa.scale import embed_to_folder, this_process
from varjepa.scale.ray_engine import ray_engine
from varjepa.tables.streaming import find_tables
compute = ray_engine() if engine == "ray" else this_process
seen = []
on_rows = lambda done, total: seen.append((done, time.monotonic()))
run = embed_to_folder(
    Embedder(model, keep=("id",)), find_tables(source), Path(out), part_rows=8_192,
    on_rows=on_rows, engine=compute,
)
if engine == "ray":
    assert ray.is_initialized()  # it was here before
later = next((done, when) for done, when in seen if done > 8_192)  # both workers are warm
steady = (seen[-1][0] - later[0]) / (seen[-1][1] - later[1])
print(json.dumps({"rows": run.rows, "seconds": run.seconds, "steady": steady}))
"""


@needs_ray
@pytest.mark.soak
def test_throughput(tmp_path: Path, record_soak: Callable[[str, dict[str, Any]], None]) -> None:
    count = 200_000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one epoch does collapse
        table = rows_like_training(400).drop_columns(["id"])
        small(VarTJEPA, epochs=1, random_state=0).fit(table).save(tmp_path / "model")
    source = write(rows_like_training(count, seed=7), tmp_path / "in.parquet")
    figures: dict[str, Any] = {"rows": count, "rows_of_a_part": 8_192}
    folders = []
    for engine, threads in (("local", 1), ("local", 2), ("ray", 1)):
        name = "ray_2_workers" if engine == "ray" else f"local_{threads}_threads"
        folders.append(tmp_path / name)
        words = [str(tmp_path / "model"), str(source), str(folders[-1]), engine]
        load = running_processes()
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE, *words],
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found = json.loads(done.stdout)
        assert found["rows"] == count
        figures[name] = {
            "rows_per_s": round(found["rows"] / found["seconds"]),
            "rows_per_s_once_warm": round(found["steady"]),
            "seconds": round(found["seconds"], 1),
            "others_on_the_machine": round(load, 1),
        }
    local, threaded, ray = map(snapshot, folders)
    ids = read_parts(folders[-1])["id"].to_numpy()
    figures["lost_rows"] = count - len(np.unique(ids))
    figures["repeated_rows"] = len(ids) - len(np.unique(ids))
    figures["files_that_differ"] = sum(local[name] != ray.get(name) for name in local)
    figures["files_that_differ_with_2_threads"] = sum(local[n] != threaded[n] for n in local)
    record_soak("ray_embed", figures)
    np.testing.assert_array_equal(ids, np.arange(count))
    assert ray == local
