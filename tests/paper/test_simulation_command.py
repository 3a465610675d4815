"""Claims: ``python -m paper simulation`` does its job, and refuses wrong input in one sentence.

Every wrong call is checked for: code 2, exactly one line on stderr, no traceback, nothing written.
Ctrl-C keeps the finished runs, and the same command continues.
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

from paper.__main__ import main
from tests.cli.test_shell import Captured, assert_refused, exit_code, snapshot


def run(*arguments: object) -> int:
    return exit_code(main, arguments)


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
    code = run("simulation", "--out", tmp_path / "new", *wrong)
    assert_refused(capsys, code, says)
    assert not (tmp_path / "new").exists()


def test_out_is_required(capsys: Captured) -> None:
    assert_refused(capsys, run("simulation"), "--out")


def test_an_unwritable_folder(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("mine")
    code = run("simulation", "--out", tmp_path / "file" / "below")
    assert_refused(capsys, code, "cannot write to the folder")
    assert snapshot(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("name", ["simulation.json", "epoch_diagnostics.json"])
@pytest.mark.parametrize("content", ["{}", "not json", '[{"variant": "A"}]'])
def test_results_of_another_version(
    name: str, content: str, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / name).write_text(content)
    code = run("simulation", "--out", tmp_path, "--variants", "A", "--epochs", "1")
    assert_refused(capsys, code, name)
    assert snapshot(tmp_path) == {name: content.encode()}


def test_results_of_other_settings(tmp_path: Path, capsys: Captured) -> None:
    arguments = ["simulation", "--out", tmp_path, "--variants", "G", "--runs", "1"]
    assert run(*arguments, "--epochs", 1) == 0
    before = snapshot(tmp_path)
    capsys.readouterr()
    assert_refused(capsys, run(*arguments, "--epochs", 2), "epochs 1 there, 2 here")
    assert snapshot(tmp_path) == before


def test_an_output_that_cannot_be_written(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "simulation.md").mkdir()
    arguments = ["--out", tmp_path, "--variants", "G", "--runs", 1, "--epochs", 1]
    assert_refused(capsys, run("simulation", *arguments), "simulation.md")


def test_a_group_without_a_command_shows_its_help(capsys: Captured) -> None:
    assert run() == 2
    captured = capsys.readouterr()
    assert "simulation" in captured.out
    assert captured.err == ""


def test_several_variants_after_one_option(tmp_path: Path, capsys: Captured) -> None:
    code = run(
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


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT as a terminal sends it")
def test_ctrl_c_keeps_finished_runs_and_the_same_command_goes_on(tmp_path: Path) -> None:
    arguments = ["simulation", "--out", str(tmp_path)]
    arguments += ["--variants", "A", "G", "--runs", "1", "--epochs", "8"]
    command = [sys.executable, "-m", "paper", *arguments]
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
    assert run(*arguments) == 0
    rows = json.loads(results.read_text(encoding="utf-8"))
    assert [row for row in rows if row["variant"] == "A"] == kept
    assert {row["variant"] for row in rows} == {"A", "G"}
