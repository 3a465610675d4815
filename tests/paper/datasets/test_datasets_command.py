"""Claims: ``python -m paper datasets`` lists all seven without data and without network.

1. Every dataset has a line with its counts, where it is and where it comes from.
2. A file in the folder, in VARJEPA_DATA or in the cache is seen; what is missing is explained once.
3. A folder that is not there is one sentence and exit code 2.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from paper.__main__ import main
from paper.datasets.catalogue import DATASETS


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("looked at the network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.delenv("VARJEPA_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["datasets", *arguments])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_all_seven_without_anything(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    words = [" ".join(line.split()) for line in lines]
    assert words[0] == "name rows numeric categorical classes available source"
    assert [line.split()[0] for line in lines[1:8]] == list(DATASETS)
    assert "adult 48,842 6 8 2 not here UCI 2" in words
    assert "sim 10,000 28 4 3 built in generated" in words
    assert "VARJEPA_DATA" in lines[-1]
    assert not (tmp_path / "home").exists()  # looking leaves nothing behind


def test_files_are_seen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cached = tmp_path / "home" / "varjepa"
    cached.mkdir(parents=True)
    (cached / "mnist.parquet").touch()
    for name in DATASETS:
        if name != "mnist":
            (tmp_path / f"{name}.parquet").touch()
    assert run("--data", str(tmp_path)) == 0
    by_option = capsys.readouterr().out
    monkeypatch.setenv("VARJEPA_DATA", str(tmp_path))
    assert run() == 0
    assert capsys.readouterr().out == by_option
    words = {line.split()[0]: line.split() for line in by_option.splitlines()}
    assert words["adult"][5] == "folder"
    assert words["mnist"][5] == "cache"
    assert "not here" not in by_option
    assert "VARJEPA_DATA" not in by_option


def test_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("--data", str(tmp_path / "absent")) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("absent is not a folder\n")
    assert captured.err.count("\n") == 1
