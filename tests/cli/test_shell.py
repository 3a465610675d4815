"""Claims: the command does its job, and wrong input ends in one sentence and exit code 2.

Every wrong call is checked for: code 2, exactly one line on stderr, no traceback, nothing written.
`import varjepa`, help and an error about a missing file load neither torch nor pyarrow, and are
fast.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import varjepa
from benchmarks.speed import main as speed_main
from paper.__main__ import main as paper_main
from varjepa.cli import main

Captured = pytest.CaptureFixture[str]


def run(*arguments: object) -> int:
    """Exit code of a command; "reproduce", "report" and "datasets" are the paper's."""
    command, *rest = map(str, arguments)
    with pytest.raises(SystemExit) as stop:
        if command == "reproduce":
            paper_main(rest)
        elif command in ("report", "datasets"):
            paper_main([command, *rest])
        elif command == "bench":
            speed_main(rest)
        else:
            main([command, *rest])
    return int(stop.value.code or 0)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_refused(capsys: Captured, code: int, says: str) -> None:
    error = capsys.readouterr().err.strip()
    assert code == 2
    assert says in error
    assert len(error.splitlines()) == 1
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["--variants", "K"], "'K'"),
        (["--variants", "A", "Z"], "'Z'"),
        (["--runs", "-1"], "--runs must be at least 1, not -1"),
        (["--runs", "0"], "--runs"),
        (["--runs", "many"], "--runs"),
        (["--epochs", "0"], "--epochs"),
        (["--speed", "11"], "--speed"),
    ],
)
def test_wrong_options(wrong: list[str], says: str, tmp_path: Path, capsys: Captured) -> None:
    code = run("reproduce", "simulation", "--out", tmp_path / "new", *wrong)
    assert_refused(capsys, code, says)
    assert not (tmp_path / "new").exists()


def test_out_is_required(capsys: Captured) -> None:
    assert_refused(capsys, run("reproduce", "simulation"), "--out")


def test_an_unwritable_folder(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("mine")
    code = run("reproduce", "simulation", "--out", tmp_path / "file" / "below")
    assert_refused(capsys, code, "cannot write to the folder")
    assert snapshot(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("name", ["simulation.json", "epoch_diagnostics.json"])
@pytest.mark.parametrize("content", ["{}", "not json", '[{"variant": "A"}]'])
def test_results_of_another_version(
    name: str, content: str, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / name).write_text(content)
    code = run("reproduce", "simulation", "--out", tmp_path, "--variants", "A", "--epochs", "1")
    assert_refused(capsys, code, name)
    assert snapshot(tmp_path) == {name: content.encode()}


def test_results_of_other_settings(tmp_path: Path, capsys: Captured) -> None:
    arguments = ["reproduce", "simulation", "--out", tmp_path, "--variants", "G", "--runs", "1"]
    assert run(*arguments, "--epochs", 1) == 0
    before = snapshot(tmp_path)
    capsys.readouterr()
    assert_refused(capsys, run(*arguments, "--epochs", 2), "epochs 1 there, 2 here")
    assert snapshot(tmp_path) == before


def test_an_output_that_cannot_be_written(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "simulation.md").mkdir()
    arguments = ["--out", tmp_path, "--variants", "G", "--runs", 1, "--epochs", 1]
    assert_refused(capsys, run("reproduce", "simulation", *arguments), "simulation.md")
    assert_refused(capsys, run("bench", "simulation", "--json", tmp_path), "--json")
    assert_refused(capsys, run("bench", "simulation", "--variant", "Q"), "--variant 'Q'")


def test_a_group_without_a_command_shows_its_help(capsys: Captured) -> None:
    assert run("reproduce") == 2
    captured = capsys.readouterr()
    assert "simulation" in captured.out
    assert captured.err == ""


def test_several_variants_after_one_option(tmp_path: Path, capsys: Captured) -> None:
    code = run(
        "reproduce",
        "simulation",
        "--variants",
        "G",
        "A",
        "--out",
        tmp_path,
        "--runs=1",
        "--epochs=1",
    )
    assert code == 0
    rows = json.loads((tmp_path / "simulation.json").read_text(encoding="utf-8"))
    assert [(r["variant"], r["latent"]) for r in rows] == [
        ("A", "s_x"),
        ("A", "s_y"),
        ("G", "s_x"),
        ("G", "s_y"),
    ]
    assert (tmp_path / "simulation.md").exists()
    assert (tmp_path / "epoch_diagnostics.json").exists()
    assert (tmp_path / "epoch_diagnostics.svg").exists()
    assert "of 20 cells agree" in capsys.readouterr().out


def test_bench_writes_its_figures(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "bench.json"
    assert run("bench", "simulation", "--runs", 2, "--epochs", 1, "--json", path) == 0
    assert json.loads(path.read_text(encoding="utf-8"))["ratio"] > 0
    assert "faster" in capsys.readouterr().out


def test_version_and_help(capsys: Captured) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.strip() == varjepa.__version__
    assert run("--help") == 0
    assert "evaluate" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT as a terminal sends it")
def test_ctrl_c_keeps_finished_runs_and_the_same_command_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "paper", "simulation", "--out", str(tmp_path)]
    command += ["--variants", "A", "G", "--runs", "1", "--epochs", "8"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    results = tmp_path / "simulation.json"
    deadline = time.monotonic() + 120
    while not results.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert "goes on from there" in error
    kept = json.loads(results.read_text(encoding="utf-8"))
    assert {row["variant"] for row in kept} == {"A"}
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=120)
    rows = json.loads(results.read_text(encoding="utf-8"))
    assert [row for row in rows if row["variant"] == "A"] == kept
    assert {row["variant"] for row in rows} == {"A", "G"}


# --- what starts fast

HEAVY = ("torch", "pyarrow", "sklearn", "pandas", "numpy", "scipy", "narwhals")


def timed(*arguments: str) -> tuple[subprocess.CompletedProcess[str], float]:
    start = time.monotonic()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)
    return done, time.monotonic() - start


def loaded_by(code: str) -> str:
    """Which heavy modules a program has imported when it ends."""
    seen = f"print('|', *[m for m in {HEAVY} if m in __import__('sys').modules])"
    done, _ = timed("-c", f"import atexit\natexit.register(lambda: {seen})\n{code}")
    return done.stdout.rpartition("|")[2].strip()


def test_import_and_help_load_nothing_heavy() -> None:
    assert loaded_by("import varjepa; dir(varjepa); varjepa.__version__") == ""
    assert loaded_by("from varjepa.cli import main; main(['--help'])") == ""
    assert loaded_by("from varjepa.cli import main; main(['fit', '--help'])") == ""
    assert "torch" in loaded_by("from varjepa import VarTJEPA")


def test_lazy_names_are_there() -> None:
    assert set(varjepa.__all__) <= set(dir(varjepa))
    assert all(getattr(varjepa, name) is not None for name in varjepa.__all__)
    with pytest.raises(AttributeError, match="no attribute 'VarJEPA'"):
        _ = varjepa.VarJEPA  # type: ignore[attr-defined]


MISSING = [
    ["fit", "none.csv", "--out", "new"],
    ["embed", "none", "none.csv", "--out", "new.csv"],
    ["impute", "none", "none.csv", "--out", "new.csv"],
    ["sample", "none", "--out", "new.csv"],
    ["score", "none", "none.csv", "--out", "new.csv"],
    ["evaluate", "none.csv", "--target", "y", "--out", "new"],
]


@pytest.mark.parametrize("arguments", MISSING, ids=lambda words: words[0])
def test_a_missing_file_is_named_before_anything_heavy(arguments: list[str]) -> None:
    assert loaded_by(f"from varjepa.cli import main; main({arguments})") == ""


def test_help_and_errors_are_fast() -> None:
    """Within .5 s and 1 s on two quiet cores; a busy machine may take twice as long."""
    for arguments, limit in ((["--help"], 0.5), (MISSING[0], 1.0)):
        done, seconds = min(
            (timed("-m", "varjepa", *arguments) for _ in range(3)), key=lambda d: d[1]
        )
        assert "none.csv" in done.stderr or "evaluate" in done.stdout
        assert seconds < 2 * limit
