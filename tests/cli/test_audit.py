"""Claims about ``varjepa audit``:

- it writes report.html and cells, rows and columns as Parquet and CSV, nothing else stays;
- a folder that holds an audit is not written to without --overwrite, a model's never;
- CSV cells that a spreadsheet would run are quoted; --raw-text leaves them;
- --repaired writes the table with the listed changes, columns left out as they came, and says how
  many cells were repaired and left;
- an audit that is stopped while it scores continues with the fit that is there, with --overwrite
  too; with other settings --overwrite fits anew; one with a model leaves nothing, and says so;
- if the page cannot be written, no file is;
- a folder or pattern of Parquet files is audited with a model, as one table;
- what belongs to a new fit is refused beside --model, by its name; a column that the model does not
  need can be left out;
- --repaired is no file of the audit, no input and no folder, and is known to be possible before the
  fit; folders on its way are made;
- wrong input is one sentence and exit code 2, and leaves no folder.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.audit.conftest import SMALL, draw
from tests.small import fit_small, use_as_defaults
from varjepa import VarTJEPA
from varjepa.audit import result, scoring
from varjepa.cli import main
from varjepa.tables import read_table

FILES = {f"{name}.{end}" for name in ("cells", "rows", "columns") for end in ("csv", "parquet")}


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    code = stop.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_as_defaults(monkeypatch, VarTJEPA, **{**SMALL, "max_steps": 30})
    frame = draw(150, seed=4)
    frame["id"] = [f"=k{i}" for i in range(150)]
    frame.loc[3, "weight"] *= 1e6
    frame.loc[4, "region"] = "=northern()"
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False)
    return path


def test_files(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, repaired = tmp_path / "audit", tmp_path / "repaired.parquet"
    words = ("--top", 2000, "--repaired", repaired, "--min-confidence", 0, "--leave-out", "colour")
    assert run("audit", table, "--out", out, *words) == 0
    assert {path.name for path in out.iterdir()} == FILES | {"report.html"}
    cells = pd.read_csv(out / "cells.csv")
    assert (cells["row"][0], cells["column"][0]) == (3, "weight")
    assert "'=northern()" in set(cells["value"])
    raw = pd.read_parquet(out / "cells.parquet")
    assert "=northern()" in set(raw["value"])
    columns = pd.read_csv(out / "columns.csv").set_index("column")
    assert columns.loc["id", "not_audited"] == "identifier"
    before = read_table(table).to_pandas()
    changed, known = pd.read_parquet(repaired) != before, before.notna()
    assert changed.loc[3, "weight"]
    assert not changed["colour"].any()
    assert (changed & known).to_numpy().sum() == raw["flagged"].sum()
    said = " ".join(capsys.readouterr().out.split())
    flagged = int(raw["flagged"].sum())
    assert f"{flagged} of {flagged} flagged cells repaired report:" in said.replace(
        "Audit:", "report:"
    )

    assert run("audit", table, "--out", out) == 2
    assert "holds an audit already; add --overwrite" in capsys.readouterr().err
    assert run("audit", table, "--out", out, "--overwrite", "--raw-text") == 0
    assert "=northern()" in set(pd.read_csv(out / "cells.csv")["value"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    fit_small(VarTJEPA, draw(150, seed=1), **{**SMALL, "max_steps": 20}).save(folder)
    return folder


@pytest.mark.parametrize("source", ["parts", "parts/*.parquet"])
def test_several_files(source: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    frame, out = draw(90, seed=4), tmp_path / "audit"
    frame.loc[50, "weight"] *= 1e6
    for number in range(3):
        part = frame.iloc[30 * number : 30 * number + 30]
        part.to_parquet(tmp_path / "parts" / f"{number}.parquet", index=False)
    assert run("audit", tmp_path / source, "--out", out, "--model", model) == 0
    assert {path.name for path in out.iterdir()} == FILES | {"report.html"}
    worst = pd.read_parquet(out / "cells.parquet").iloc[0]
    assert (worst["row"], worst["column"]) == (50, "weight")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--kind", "legs=categorical"), "--kind is for a new fit"),
        (("--seed", "0"), "--seed is for a new fit"),
        (("--leave-out", "legs"), "--leave-out 'legs' is for a new fit"),
    ],
)
def test_what_belongs_to_a_new_fit_is_refused_with_a_model(
    words: tuple[str, ...],
    sentence: str,
    model: Path,
    table: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "audit"
    assert run("audit", table, "--out", out, "--model", model, *words) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not out.exists()


def test_a_model_folder_is_not_written_to(
    model: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(model.iterdir())
    assert run("audit", table, "--out", model, "--overwrite") == 2
    assert "is a model folder; name another" in capsys.readouterr().err
    assert sorted(model.iterdir()) == before


def test_a_column_that_the_model_does_not_need_is_left_out(
    model: Path, table: Path, tmp_path: Path
) -> None:
    words = ("audit", table, "--out", tmp_path / "audit", "--model", model)
    assert run(*words, "--leave-out", "id") == 0
    columns = pd.read_parquet(tmp_path / "audit" / "columns.parquet")["column"]
    assert "id" not in set(columns)


@pytest.mark.parametrize(
    ("repaired", "sentence"),
    [
        ("audit/cells.csv", "--repaired audit/cells.csv is a file of the audit itself"),
        ("audit/fit/x.csv", "--repaired audit/fit/x.csv is a file of the audit itself"),
        ("table.csv", "--repaired table.csv is an input; add --overwrite to replace it"),
        (".", "--repaired . is a folder, not a file"),
        ("table.csv/new/x.csv", "cannot write to the folder table.csv/new"),
    ],
)
def test_a_wrong_file_for_the_repaired_table_is_refused_before_the_fit(
    repaired: str,
    sentence: str,
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(table.parent)
    monkeypatch.setattr(VarTJEPA, "fit", None)  # it is not called
    before = table.read_bytes()
    assert run("audit", "table.csv", "--out", "audit", "--repaired", repaired) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert [path.name for path in table.parent.iterdir()] == ["table.csv"]
    assert table.read_bytes() == before


def test_folders_of_the_repaired_table_are_made(model: Path, table: Path, tmp_path: Path) -> None:
    repaired = tmp_path / "new" / "folder" / "repaired.csv"
    words = ("--model", model, "--repaired", repaired, "--leave-out", "id")
    assert run("audit", table, "--out", tmp_path / "audit", *words) == 0
    assert repaired.exists()


@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_an_interrupted_audit_continues(
    more: tuple[str, ...],
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "audit"
    score = scoring.CellScorer.score

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    words = ("audit", table, "--out", out, *more)
    monkeypatch.setattr(scoring.CellScorer, "score", stop)
    assert run(*words, "--seed", 1) == 130
    assert {path.name for path in out.iterdir()} == {"fit"}
    if more:
        assert run(*words) == 130  # another seed: a new fit
    else:
        assert run(*words) == 2
        assert "differs in random_state (1, now 0); overwrite" in capsys.readouterr().err
        words = (*words, "--seed", 1)
    monkeypatch.setattr(scoring.CellScorer, "score", score)
    monkeypatch.setattr(VarTJEPA, "fit", None)  # it is not called again
    assert run(*words) == 0
    assert {path.name for path in out.iterdir()} == FILES | {"report.html"}


def test_an_interrupted_audit_with_a_model_leaves_nothing(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(scoring.CellScorer, "score", stop)
    out, table = tmp_path / "audit", tmp_path / "table.parquet"
    draw(90, seed=4).to_parquet(table)
    assert run("audit", table, "--out", out, "--model", model) == 130
    assert "continues" not in capsys.readouterr().err
    assert not out.exists()


def test_all_files_or_none(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "report.html")

    monkeypatch.setattr(result, "write_page", full)
    assert run("audit", table, "--out", tmp_path / "audit") == 2
    assert {path.name for path in (tmp_path / "audit").iterdir()} == {"fit"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere.csv",), "cannot read nowhere.csv: No such file or directory"),
        (("table.csv", "--fdr", "2"), "fdr must be above 0 and below 1, not 2.0"),
        (
            ("table.csv", "--min-confidence", "7"),
            "'--min-confidence': Input should be less",
        ),
        (("table.csv", "--model", "m"), "cannot read the model folder m"),
        (("table.csv", "--leave-out", "heigth"), "is not a column of table.csv"),
        (("table.csv", "--repaired", "x.doc"), "cannot tell what kind of table x.doc is"),
        (("row.csv",), "a model cannot be fitted to one row"),
    ],
)
def test_wrong_input(
    words: tuple[str, ...],
    sentence: str,
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(table.parent)
    draw(1, seed=4).to_csv("row.csv", index=False)
    assert run("audit", *words, "--out", "deep/audit") == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not Path("deep").exists()
