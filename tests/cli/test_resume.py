"""Claims: `varjepa fit` survives what happens to long runs.

1. SIGTERM and Ctrl-C leave a checkpoint of that step and end with 143 and 130 within 10 s; with
   --resume the same command ends with the model of an uninterrupted run, and no checkpoint is left.
2. --resume with nothing there starts from the beginning, and returns at once where the fit is
   finished; without it an unfinished run is set aside with one warning; with other options it is
   refused. A finished model is replaced only with --overwrite.
3. A read-only folder, a full disk, a file limit or a folder that goes away end in one sentence and
   exit code 2, and older checkpoints stay intact.
4. SIGKILL at any moment, half of them inside a save: no checkpoint that cannot be read, and the end
   is that of an uninterrupted run, to the last bit.
5. Checkpoints cost at most 2 % of the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_shell import Captured, assert_refused, run, snapshot
from tests.killing import write_table
from varjepa import VarTJEPA
from varjepa.training.checkpoints import Checkpoints, complete_checkpoints

pytestmark = [
    pytest.mark.filterwarnings("default::UserWarning"),  # a few epochs do collapse
    pytest.mark.skipif(sys.platform == "win32", reason="signals and mounts of a POSIX system"),
]

EPOCHS = 3
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "table.csv"
    write_table(path, 200)
    return path


@pytest.fixture(scope="module")
def whole(table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Any]]:
    """Weights and history of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("whole") / "model"
    assert fit(table, out) == 0
    return result_of(out)


def fit(table: Path, out: Path, *more: object) -> int:
    return run("fit", table, "--out", out, "--epochs", EPOCHS, *more)


def result_of(model: Path) -> tuple[bytes, list[Any]]:
    history = json.loads((model / "config.json").read_text(encoding="utf-8"))["history"]
    for record in history:
        del record["seconds"]
    return (model / "model.safetensors").read_bytes(), history


@contextlib.contextmanager
def at_first_checkpoint(folder: Path, act: Callable[[], None]) -> Iterator[None]:
    """Do something from another thread as soon as a checkpoint is whole."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not complete_checkpoints(folder) and time.monotonic() < deadline:
            time.sleep(0.002)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_fit_goes_on(
    table: Path,
    whole: tuple[bytes, list[Any]],
    tmp_path: Path,
    capsys: Captured,
    number: signal.Signals,
    code: int,
) -> None:
    out, sent = tmp_path / "model", []

    def stop() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), number)

    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with at_first_checkpoint(out / "checkpoints", stop):
        assert fit(table, out, "--checkpoint-every", "0.001") == code
    assert time.monotonic() - sent[0] < 10
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    error = capsys.readouterr().err
    assert "--resume continues from" in error
    assert "Traceback" not in error
    assert len(complete_checkpoints(out / "checkpoints")) == 2  # the first, and that of the signal
    assert not (out / "manifest.json").exists()
    assert fit(table, out, "--resume") == 0
    assert result_of(out) == whole
    names = {path.name for path in out.iterdir()}
    assert names == {
        "README.md", "config.json", "codec.json", "model.safetensors", "manifest.json",
        "history.jsonl",
    }  # fmt: skip
    lines = (out / "history.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3]


def test_a_terminated_process_ends_with_143(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    command = [sys.executable, "-m", "varjepa", "fit", str(table), "--out", str(out)]
    command += ["--epochs", "200", "--checkpoint-every", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    deadline = time.monotonic() + 120
    while not complete_checkpoints(out / "checkpoints") and time.monotonic() < deadline:
        time.sleep(0.02)
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert time.monotonic() - start < 10
    assert process.returncode == 143
    assert "Traceback" not in error
    assert Checkpoints(out / "checkpoints", 0.0).latest() is not None


def test_resume_with_nothing_there_begins(
    table: Path, whole: tuple[bytes, list[Any]], tmp_path: Path
) -> None:
    assert fit(table, tmp_path / "model", "--resume", "--capture", "off") == 0
    assert result_of(tmp_path / "model") == whole


def test_an_unfinished_fit_is_set_aside_or_refused(
    table: Path, whole: tuple[bytes, list[Any]], tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "model"
    with at_first_checkpoint(out / "checkpoints", lambda: os.kill(os.getpid(), signal.SIGINT)):
        assert fit(table, out, "--checkpoint-every", "0.001") == 130
    before = complete_checkpoints(out / "checkpoints")
    capsys.readouterr()
    assert_refused(capsys, fit(table, out, "--resume", "--seed", "1"), "seed was")
    other = tmp_path / "other.csv"
    write_table(other, 150)
    assert_refused(capsys, fit(other, out, "--resume"), "200 rows and has 150")
    assert complete_checkpoints(out / "checkpoints") == before
    assert fit(table, out) == 0
    assert "not finished; this one starts over" in capsys.readouterr().err
    assert result_of(out) == whole
    (aside,) = (out / "checkpoints").iterdir()  # where the warning said
    assert complete_checkpoints(aside) == before


def test_a_finished_fit_is_neither_resumed_nor_replaced(
    table: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    assert fit(table, out) == 0
    before = snapshot(out)
    capsys.readouterr()
    assert_refused(capsys, fit(table, out), "holds a model already; add --overwrite")
    with monkeypatch.context() as patch:
        patch.setattr(VarTJEPA, "fit", lambda *_: pytest.fail("trained again"))
        assert fit(table, out, "--resume") == 0
    assert "is finished: nothing to resume" in capsys.readouterr().out.replace("\n", " ")
    assert snapshot(out) == before
    assert fit(table, out, "--overwrite", "--seed", "1") == 0
    assert snapshot(out)["model.safetensors"] != before["model.safetensors"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [(["--capture", "maybe"], "--capture"), (["--checkpoint-every", "-1"], "checkpoint_every")],
)
def test_wrong_options(
    table: Path, tmp_path: Path, capsys: Captured, wrong: list[str], says: str
) -> None:
    assert_refused(capsys, fit(table, tmp_path / "new", *wrong), says)
    assert not (tmp_path / "new").exists()


# --- disks


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A file system of our own."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True
    )
    if done.returncode:
        pytest.skip("this process may not mount")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def one_sentence(capsys: Captured, code: int, says: str) -> None:
    """Of what the command says, beside what it inferred and its progress."""
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("varjepa: ")]
    assert code == 2
    assert says in said[-1]
    assert not [line for line in said[:-1] if "warning" not in line]


def intact(folder: Path) -> bool:
    """Whether every checkpoint is readable, and there is one."""
    numbers = complete_checkpoints(folder)
    return bool(numbers) and all(Checkpoints(folder, 0.0)._read(number) for number in numbers)


def test_a_full_disk(
    table: Path, whole: tuple[bytes, list[Any]], tmp_path: Path, capsys: Captured
) -> None:
    disk = tmp_path / "disk"
    size = 9 * len(whole[0]) // 1024  # two checkpoints of 3.6 times the weights, part of the third
    with mounted(disk, f"size={size}k"):
        code = fit(table, disk / "model", "--checkpoint-every", "0")
        one_sentence(capsys, code, "No space left on device")
        assert intact(disk / "model" / "checkpoints")
        assert not list(disk.rglob("*.tmp"))
        subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
        assert fit(table, disk / "model", "--resume") == 0
        assert result_of(disk / "model") == whole


def test_a_file_that_may_not_grow(table: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "model"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))

    try:
        with at_first_checkpoint(out / "checkpoints", limit):
            code = fit(table, out, "--checkpoint-every", "0")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    one_sentence(capsys, code, "File too large")
    assert intact(out / "checkpoints")


def test_a_read_only_folder(table: Path, tmp_path: Path, capsys: Captured) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "ro"):
        assert_refused(capsys, fit(table, disk / "model"), "Read-only file system")


def test_a_folder_that_goes_away(
    table: Path, whole: tuple[bytes, list[Any]], tmp_path: Path, capsys: Captured
) -> None:
    out, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    with at_first_checkpoint(out / "checkpoints", lambda: out.rename(elsewhere) and None):
        code = fit(table, out, "--checkpoint-every", "0")
    one_sentence(capsys, code, "No such file or directory")
    assert not out.exists()
    assert intact(elsewhere / "checkpoints")
    assert fit(table, elsewhere, "--resume") == 0
    assert result_of(elsewhere) == whole


def test_orphans_of_a_killed_save_go(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    (out / "checkpoints").mkdir(parents=True)
    orphans = [out / ".config.json.x1_45678.tmp", out / "checkpoints" / ".3.json.x2_45678.tmp"]
    for path in orphans:
        path.write_bytes(b"half")
    assert fit(table, out, "--resume") == 0
    assert not any(path.exists() for path in orphans)


# --- SIGKILL


def kill(folder: Path, **options: int) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).parents[1] / "killing.py"), str(folder)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["unloadable"] == found["failed"] == found["left behind"] == 0, found
    assert found["identical"] == found["trainings"], found
    return found


def test_killed_fits_end_as_uninterrupted_ones(tmp_path: Path) -> None:
    found = kill(tmp_path, kills=4, epochs=2, rows=120)
    assert (found["inside a save"], found["at a random time"]) == (2, 2)


@pytest.mark.soak
def test_fifty_kills(tmp_path: Path, record_soak: Callable[[str, dict[str, Any]], None]) -> None:
    found = kill(tmp_path, kills=50, epochs=6, rows=300)
    assert found["kills"] == 50
    assert found["inside a save"] == 25
    record_soak("killed-fits", found)


@pytest.mark.soak
def test_checkpoints_cost_little(
    table: Path, tmp_path: Path, record_soak: Callable[[str, dict[str, Any]], None]
) -> None:
    spent = [0.0]
    save = Checkpoints.save

    def timed(self: Checkpoints, *arguments: Any) -> None:
        start = time.monotonic()
        save(self, *arguments)
        spent[0] += time.monotonic() - start

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", timed)
        start = time.monotonic()
        out = tmp_path / "model"
        code = run("fit", table, "--out", out, "--epochs", 150, "--checkpoint-every", "0.5")
        seconds = time.monotonic() - start
    assert code == 0
    shutil.rmtree(out)
    figures = {"seconds": round(seconds, 1), "share in checkpoints": round(spent[0] / seconds, 4)}
    record_soak("checkpoint-cost", figures)
    assert spent[0] / seconds < 0.02
