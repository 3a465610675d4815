"""Claims: the command does its job, and wrong input ends in one sentence and exit code 2.

Help fits 80 columns, and no command's line is cut.
Every wrong call is checked for: code 2, exactly one line on stderr, no traceback, nothing written.
`import varjepa`, help and an error about a missing file load neither torch nor pyarrow, and are
fast.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import varjepa
from varjepa.cli import COMMANDS, main

Captured = pytest.CaptureFixture[str]


def run(*arguments: object) -> int:
    """Exit code of ``varjepa``."""
    return exit_code(main, arguments)


def exit_code(entry: Callable[[list[str]], None], arguments: Sequence[object]) -> int:
    with pytest.raises(SystemExit) as stop:
        entry([str(argument) for argument in arguments])
    return int(stop.value.code or 0)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_refused(capsys: Captured, code: int, says: str) -> None:
    error = capsys.readouterr().err.strip()
    assert code == 2
    assert says in error
    assert len(error.splitlines()) == 1
    assert "Traceback" not in error


def test_version_and_help(capsys: Captured) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.strip() == varjepa.__version__
    assert run("--help") == 0
    said = capsys.readouterr().out
    assert "evaluate" in said
    assert run() == 2
    assert capsys.readouterr() == (said, "")


def test_help_says_it_in_whole_words_on_80_columns(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run("--help") == 0
    commands = capsys.readouterr().out
    assert "..." not in commands.partition("Commands:")[2]
    for name in COMMANDS:
        assert run(name, "--help") == 0
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80
        assert "--no-" not in text  # what is off needs no option


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
    ["describe", "none.csv"],
    ["fit", "none.csv", "--out", "new"],
    ["embed", "none", "none.csv", "--out", "new.csv"],
    ["impute", "none", "none.csv", "--out", "new.csv"],
    ["sample", "none", "--out", "new.csv"],
    ["score", "none", "none.csv", "--out", "new.csv"],
    ["evaluate", "none.csv", "--target", "y", "--out", "new"],
    ["audit", "none.csv", "--out", "new"],
    ["explore", "none", "none.csv", "--out", "new.html"],
    ["similar", "none", "none.csv", "--out", "new.csv"],
]


@pytest.mark.parametrize("arguments", MISSING, ids=lambda words: words[0])
def test_a_missing_file_is_named_before_anything_heavy(arguments: list[str]) -> None:
    assert loaded_by(f"from varjepa.cli import main; main({arguments})") == ""


def test_help_and_errors_are_fast() -> None:
    """Within .5 s and 1 s on two quiet cores; a busy machine may take twice as long."""
    for arguments, limit in ((["--help"], 0.5), (MISSING[1], 1.0)):
        done, seconds = min(
            (timed("-m", "varjepa", *arguments) for _ in range(3)), key=lambda d: d[1]
        )
        assert "none.csv" in done.stderr or "evaluate" in done.stdout
        assert seconds < 2 * limit
