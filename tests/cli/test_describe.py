"""Claims about `varjepa describe`.

1. Of a table it prints kinds, levels, dates, missing values, columns that are not modelled
   (constant, empty, identifiers) and integers that look like codes, and whether a fit refuses
   the table. `--kind` is obeyed.
   Files of one table are one table.
2. Of a model it prints the same columns, and in words how the training went. So does `fit` before
   it trains; it says of a fit that ``--time-limit`` ended at once that it is too short to tell.
3. What is neither is refused in one sentence.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.test_shell import Captured, assert_refused, run, snapshot

pytestmark = pytest.mark.filterwarnings("default::UserWarning")  # one epoch does collapse

EXPECTED = {
    "size": "numeric",
    "zip": "numeric",
    "number": "numeric",
    "colour": "categorical  2 levels: ",
    "seen": "datetime     2024-01-01",
    "same": "categorical  1 level: x",
    "nothing": "no value",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": np.where(np.arange(60) < 6, np.nan, rng.normal(size=60)),
            "zip": rng.integers(1, 4, 60),
            "number": np.arange(60),
            "colour": rng.choice(["red", "green"], 60),
            "seen": pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d"),
            "same": "x",
            "nothing": None,
        }
    )
    path = tmp_path_factory.mktemp("data") / "table.csv"
    frame.to_csv(path, index=False)
    return path


def assert_described(lines: list[str]) -> None:
    assert max(map(len, lines)) <= 80
    for name, words in EXPECTED.items():
        (line,) = [line for line in lines if line.strip().startswith(name)]
        assert words in line
    assert "10.0% missing" in next(line for line in lines if line.strip().startswith("size"))
    text = " ".join(" ".join(lines).split())
    assert "Not modelled, since every row has the same value: 'same'." in text
    assert "Not modelled, since no row has a value: 'nothing'." in text


def test_a_table(table: Path, capsys: Captured) -> None:
    assert run("describe", table) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("60 rows, 7 columns: ")
    assert_described(lines)
    text = " ".join(captured.out.split())
    assert "its own value, as in an identifier: 'number'." in text
    assert "look like codes; column_kinds (or --kind) can make them categories: 'zip'." in text
    assert run("describe", table, "--kind", "zip=categorical") == 0
    assert "look like codes" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "reason"), [("a,b\n1,x\n", "fitted to one row"), ("a,b\n,\n,\n", "no cell")]
)
def test_a_table_that_fit_refuses(text: str, reason: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert run("describe", tmp_path / "t.csv") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("A fit refuses this table: ")
    assert reason in last
    assert_refused(capsys, run("fit", tmp_path / "t.csv", "--out", tmp_path / "m"), reason)


def test_several_files(table: Path, tmp_path: Path, capsys: Captured) -> None:
    frame = pd.read_csv(table)
    frame[:40].to_parquet(tmp_path / "a.parquet")
    frame[40:].to_parquet(tmp_path / "b.parquet")
    for source in (tmp_path, tmp_path / "*.parquet"):
        assert run("describe", source) == 0
        assert capsys.readouterr().out.startswith("60 rows, 7 columns")


def test_a_model_and_fit_say_the_same(table: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "model"
    assert run("fit", table, "--out", out, "--epochs", "1") == 0
    captured = capsys.readouterr()
    assert "fit: " in captured.out
    shown = [line for line in captured.err.splitlines() if not line.startswith("varjepa: warning")]
    assert shown[0].startswith("60 rows, 7 columns: ")
    assert_described(shown)
    assert run("describe", out) == 0
    described, _, fit = capsys.readouterr().out.rpartition("fit: ")
    assert captured.out.endswith(f"fit: {fit}")
    lines = described.splitlines()
    assert_described(lines[:-1])
    assert lines[-1] == "VarTJEPA: epoch 1 of 1 was selected"


def test_a_fit_of_little_time_is_called_short(
    table: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "model"
    assert run("fit", table, "--out", out, "--time-limit", "0.01") == 0
    assert "fit: too short to tell whether it is good: 1 validation." in capsys.readouterr().out
    assert_refused(
        capsys, run("fit", table, "--out", tmp_path / "b", "--time-limit", "0"), "above 0"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{new}"], "cannot read {new}: No such file"),
        (["{data}"], "{data} is not a model folder (it has no manifest.json)"),
        (["{table}", "--kind", "shoe=numeric"], "'shoe'"),
        (["{table}", "--kind", "zip=number"], "--kind"),
    ],
)
def test_wrong_input(
    arguments: list[str], says: str, table: Path, tmp_path: Path, capsys: Captured
) -> None:
    places = {"table": table, "data": table.parent, "new": tmp_path / "new"}
    code = run("describe", *(argument.format(**places) for argument in arguments))
    assert_refused(capsys, code, says.format(**places))
    assert snapshot(tmp_path) == {}
