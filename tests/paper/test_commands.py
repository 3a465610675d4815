"""Claims about ``python -m paper downstream | uncertainty | sensitivity | labels``.

1. Unknown datasets, representations, predictors, settings and columns, and numbers below 1, end in
   one sentence and exit code 2 before anything is computed or written.
2. A command computes, writes its tables, and the same command again computes nothing.
3. Ctrl-C ends with a sentence that says where to go on, and exit code 130.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paper.__main__ import main
from paper.report import FILES
from paper.store import read_rows, write_rows
from tests.paper.tiny import TINY, sim_under_any_name

# trained for an epoch or two
pytestmark = pytest.mark.filterwarnings("ignore:the latents have collapsed")

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paper.settings.QUICK", TINY)
    sim_under_any_name(monkeypatch)


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return int(stop.value.code or 0)


@pytest.mark.parametrize(
    ("command", "wrong", "says"),
    [
        ("downstream", ["--datasets", "iris"], "there is no dataset 'iris'"),
        ("downstream", ["--datasets", "sim", "iris"], "there is no dataset 'iris'"),
        ("downstream", ["--representations", "bert"], "there is no representation 'bert'"),
        ("downstream", ["--predictors", "svm"], "there is no predictor 'svm'"),
        ("downstream", ["--settings", "theirs"], "there is no setting 'theirs'"),
        ("downstream", ["--runs", "0"], "--runs must be at least 1"),
        ("downstream", ["--embeddings", "0"], "--embeddings must be at least 1"),
        ("downstream", ["--epochs", "0"], "--epochs must be at least 1"),
        ("downstream", ["--device", "tpu"], "device 'tpu'"),
        ("uncertainty", ["--datasets", "iris"], "there is no dataset 'iris'"),
        ("sensitivity", ["--columns", "Low"], "there is no column 'Low'"),
        ("sensitivity", ["--predictors", "svm"], "there is no predictor 'svm'"),
        ("labels", ["--datasets", "iris"], "there is no dataset 'iris'"),
        ("labels", ["--predictors", "resnet"], "there is no predictor 'resnet'"),
        ("labels", ["--settings", "theirs"], "there is no setting 'theirs'"),
        ("labels", ["--runs", "0"], "--runs must be at least 1"),
    ],
)
def test_wrong_input_is_one_sentence(
    tmp_path: Path, capsys: Captured, command: str, wrong: list[str], says: str
) -> None:
    out = tmp_path / "out"
    assert run(command, "--out", out, *wrong) == 2
    error = capsys.readouterr().err.strip()
    assert says in error
    assert len(error.splitlines()) == 1
    assert not out.exists()


def test_downstream_again(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    some = ["--quick", "--datasets", "SIM", "--representations", "raw", "--device", "cpu"]
    some += ["--predictors", "linear_probe", "xgboost"]
    assert run("downstream", "--out", first, *some) == 0
    assert "sim, raw, linear_probe, paper" in capsys.readouterr().out
    table = (first / "downstream.md").read_text()
    assert "| linear probe | raw |" in table

    def never(*_: Any) -> Any:
        raise AssertionError("computed again")

    monkeypatch.setattr("paper.downstream.run_cell", never)
    assert run("downstream", "--out", first, *some) == 0
    assert "linear_probe" not in capsys.readouterr().out
    assert (first / "downstream.md").read_text() == table


def test_uncertainty_and_sensitivity(tmp_path: Path, capsys: Captured) -> None:
    options = ["--quick", "--runs", "1", "--device", "cpu"]
    assert run("uncertainty", "--out", tmp_path, *options, "--datasets", "sim") == 0
    assert (tmp_path / "uncertainty-paper.svg").exists()
    assert "perceptron with an error of" in (tmp_path / "uncertainty.md").read_text()
    assert run("sensitivity", "--out", tmp_path, *options, "--columns", "Base") == 0
    assert "| MLP | 0% | ." in (tmp_path / "sensitivity.md").read_text()
    assert "sensitivity.md" in capsys.readouterr().out


def test_few_labels_of_a_folder(tmp_path: Path, capsys: Captured) -> None:
    first = tmp_path / "first"
    some = ["--quick", "--runs", "1", "--device", "cpu", "--datasets", "sim"]
    assert run("labels", "--out", first, *some, "--predictors", "logistic") == 0
    said = capsys.readouterr().out
    assert "sim, raw, logistic, paper, few labels: 0." in said
    table = (first / "labels.md").read_text()
    assert "| sim | logistic regression | raw + Var-T-JEPA, setting paper | ." in table
    assert "| 200 labels" not in table  # of 168 training rows


def test_an_interruption_says_where_to_go_on(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("paper.downstream.run_cell", interrupt)
    assert run("downstream", "--out", tmp_path, "--quick", "--datasets", "sim") == 130
    assert "finished cells are in" in capsys.readouterr().err


def test_rows_of_several_machines_are_merged(tmp_path: Path, capsys: Captured) -> None:
    rows = read_rows(Path(__file__).parents[2] / "paper" / "results" / "low_labels.json")
    one, other, whole = (tmp_path / name for name in ("one", "other", "whole"))
    for folder, part in ((one, rows[::2]), (other, rows[1::2] + rows[:4:2])):
        folder.mkdir()
        write_rows(folder / "low_labels.json", part)
    assert run("merge", one, other, "--out", whole) == 0
    assert f"{len(rows)} rows merged" in capsys.readouterr().out
    assert read_rows(whole / "low_labels.json") == sorted(
        rows, key=lambda row: tuple(row[k] for k in FILES["low_labels.json"].key)
    )
    assert run("merge", other, "--out", whole) == 0
    assert "0 rows merged" in capsys.readouterr().out
    write_rows(other / "low_labels.json", [{**rows[0], "settings": {"epochs": 1}}])
    assert run("merge", other, "--out", tmp_path / "new") == 2
    assert "other settings" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
