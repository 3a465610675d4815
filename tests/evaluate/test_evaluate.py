"""Claims: ``varjepa evaluate`` runs start to finish on classes and on numbers, and writes a table,
a page and JSON; a second run of the same evaluation fits nothing again and finds the same; no label
of a test row reaches a representation, a predictor, a choice or a threshold; names from the data
are only ever text; wrong input ends in one sentence, exit code 2 and no file.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import typer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.metrics import accuracy_score, f1_score, r2_score

from tests.cli.test_shell import Captured, assert_refused, snapshot
from tests.report.test_page import Reader
from tests.small import use_as_defaults
from varjepa.cli import shell
from varjepa.cli.evaluate import evaluate
from varjepa.errors import InputError
from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.evaluate import EvaluateSettings, run_evaluation
from varjepa.evaluate.run import Evaluation
from varjepa.evaluate.splits import split_rows
from varjepa.models.inference import LATENT_KINDS
from varjepa.tables import read_table

pytestmark = pytest.mark.filterwarnings("default::UserWarning")  # two epochs do collapse

HOSTILE = ("<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "[red]{{7*7}}")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def make_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("varjepa.evaluate.predictors.MIN_STEPS", 200)
    patch.setattr("varjepa.evaluate.scores.REPEATS", 2)
    for kind in (VarTJEPA, TJEPA):
        use_as_defaults(patch, kind, d=16, ff=32, depth=1, predictor_width=16, predictor_depth=1)


def run(*arguments: object) -> int:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(cls=shell.ListCommand)(evaluate)
    with pytest.raises(SystemExit) as stop:
        shell.run(app, [str(a) for a in arguments])
    return int(stop.value.code or 0)


def wine() -> pd.DataFrame:
    """Class names, a column name and the target's name are hostile."""
    data = load_wine(as_frame=True)
    frame = data.frame.iloc[:, [0, 6, 9, 11, 13]].copy()
    frame["target"] = [HOSTILE[c] for c in frame["target"]]
    return frame.rename(columns={"alcohol": "<img src=y onerror=alert(3)>", "target": "<b>kind"})


def quick(target: str, **others: Any) -> EvaluateSettings:
    basic = {"representations": ("raw", "var_t_jepa"), "predictors": ("linear",)}
    return EvaluateSettings(target, **{"runs": 2, "epochs": 2, **basic, **others})


@pytest.fixture(scope="module")
def wine_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[object]]:
    """A table, a folder with the evaluation of it, and the command."""
    folder = tmp_path_factory.mktemp("wine")
    table, out = folder / "wine <i>.csv", folder / "out"
    wine().to_csv(table, index=False)
    command: list[object] = [table, "--target", "<b>kind", "--out", out, "--epochs", 2, "--runs", 2]
    return table, out, [*command, "--predictors", "mlp", "xgboost"]


@pytest.fixture(scope="module")
def printed(wine_run: tuple[Path, Path, list[object]]) -> str:
    """What the command prints; it has to run before the folder holds anything."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as said:
        make_small(patch)
        assert run(*wine_run[2]) == 0
    return said.getvalue()


def test_classes_start_to_finish(wine_run: tuple[Path, Path, list[object]], printed: str) -> None:
    for words in ("3 classes", "Accuracy", "Gain over raw", "Selective accuracy", "Few labels"):
        assert words in printed
    results = json.loads((wine_run[1] / "evaluate.json").read_text(encoding="utf-8"))
    assert results["target"]["classes"] == sorted(HOSTILE)
    assert results["rows"] == {"train": 124, "validation": 18, "test": 36}
    cells = [(c["representation"], c["predictor"]) for c in results["cells"]]
    assert len(set(cells)) == 10
    assert {("raw", "xgboost"), ("var_t_jepa", "mlp")} <= set(cells)
    keys = {(f["score"], f["coverage"], f["run"]) for f in results["figures"]}
    scores = {*LATENT_KINDS, "confidence", "combined"}
    assert keys == {(s, c, r) for s in scores for c in (1.0, 0.9, 0.8, 0.5) for r in (0, 1)}
    assert len(results["figures"]) == 10 * len(keys)
    assert all(0 <= f[m] <= 1 for f in results["figures"] for m in ("accuracy", "f1_macro"))
    assert {p["labels"] for p in results["low_labels"]} == {50, 100}
    names = {p["representation"] for p in results["low_labels"]}
    assert names == {"raw", "var_t_jepa", "raw+var_t_jepa"}
    assert {"TJEPA", "VarTJEPA"} == results["models"].keys()
    assert results["environment"]["torch"]
    assert results["settings"]["seed"] == 0
    raw = [f for f in results["figures"] if f["representation"] == "raw" and f["coverage"] == 1]
    assert max(f["accuracy"] for f in raw) > results["constant_guess"] + 0.2


def test_the_page_holds_names_as_text_and_loads_nothing(
    wine_run: tuple[Path, Path, list[object]], printed: str
) -> None:
    page = (wine_run[1] / "report.html").read_text(encoding="utf-8")
    reader = Reader(page)
    assert not {"script", "img"} & {tag for tag, _ in reader.elements}
    assert "http" not in page.replace("http-equiv", "")
    assert any("<b>kind" in text for text in reader.text)
    assert any("wine <i>.csv" in text for text in reader.text)
    for heading in ("Accuracy", "Selective weighted F1", "Few labels", "Risk and coverage"):
        assert heading in reader.text
    assert "<svg" in page


def test_a_second_run_fits_nothing_and_finds_the_same(
    wine_run: tuple[Path, Path, list[object]],
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    _, out, command = wine_run
    before = json.loads((out / "evaluate.json").read_text(encoding="utf-8"))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(VarTJEPA, "fit", refuse)
    monkeypatch.setattr(TJEPA, "fit", refuse)
    monkeypatch.setattr("varjepa.evaluate.run.fit_predictor", refuse)
    assert run(*command) == 0
    after = json.loads((out / "evaluate.json").read_text(encoding="utf-8"))
    for name in ("figures", "areas", "thresholds", "low_labels", "chosen_on_validation"):
        assert after[name] == before[name]
    capsys.readouterr()
    content = snapshot(out)
    assert_refused(capsys, run(*command, "--seed", "1"), "other settings (seed 0 there, 1 here)")
    assert snapshot(out) == content


def test_numbers_start_to_finish(tmp_path: Path, capsys: Captured) -> None:
    data = load_diabetes(as_frame=True).frame.iloc[:, [2, 3, 8, 10]]
    data.to_parquet(tmp_path / "diabetes.parquet")
    command = [tmp_path / "diabetes.parquet", "--target", "target", "--out", tmp_path / "out"]
    command += ["--epochs", 2, "--runs", 2, "--predictors", "mlp", "--transductive"]
    command += ["--representations", "raw", "pca", "var_t_jepa"]
    assert run(*command) == 0
    assert "regression" in capsys.readouterr().out
    results = json.loads((tmp_path / "out" / "evaluate.json").read_text(encoding="utf-8"))
    assert results["target"]["task"] == "regression"
    assert {f["score"] for f in results["figures"]} == {*LATENT_KINDS, "disagreement"}
    raw = [f for f in results["figures"] if f["representation"] == "raw" and f["coverage"] == 1]
    assert all(40 < f["rmse"] < results["constant_guess"] and 0.1 < f["r2"] < 0.8 for f in raw)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert {"RMSE", "R²", "Selective RMSE"} <= set(Reader(page).text)


def test_figures_are_those_of_scikit_learn(tmp_path: Path) -> None:
    table = read_table(wine())
    results = run_evaluation(table, "wine", tmp_path, quick("<b>kind"))
    truth = results.target.values[results.split.test]
    for cell in results.cells:
        for run_number, guess in enumerate(cell.guesses(cell.test)):
            full = one(results, cell.representation, run_number, "confidence", 1.0)
            assert full["accuracy"] == pytest.approx(accuracy_score(truth, guess))
            assert full["f1_macro"] == pytest.approx(f1_score(truth, guess, average="macro"))
            sure = np.argsort(-cell.test[run_number].max(-1))[:18]
            half = one(results, cell.representation, run_number, "confidence", 0.5)
            assert half["accuracy"] == pytest.approx(accuracy_score(truth[sure], guess[sure]))
    settings = quick("color_intensity", representations=("raw",), predictors=("mlp",))
    numbers = run_evaluation(table, "wine", tmp_path / "numbers", settings)
    truth = numbers.target.values[numbers.split.test]
    for run_number, guess in enumerate(numbers.cells[0].test):
        values = one(numbers, "raw", run_number, "disagreement", 1.0)
        assert values["rmse"] == pytest.approx(np.sqrt(np.mean((guess - truth) ** 2)), rel=1e-5)
        assert values["r2"] == pytest.approx(r2_score(truth, guess), rel=1e-4)


def one(results: Evaluation, representation: str, run: int, score: str, coverage: float) -> Any:
    place = {"representation": representation, "run": run, "score": score, "coverage": coverage}
    rows = [row for row in results.results["figures"] if place.items() <= row.items()]
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize("others", [{}, {"labels_pick_checkpoint": True}, {"transductive": True}])
def test_no_test_label_reaches_anything(tmp_path: Path, others: dict[str, Any]) -> None:
    frame = wine().rename(columns={"<b>kind": "kind"})
    test = split_rows(len(frame), 0).test
    mixed = frame.copy()
    column = frame.columns.get_loc("kind")
    shuffled = np.random.default_rng(0).permutation(frame["kind"].to_numpy()[test])
    mixed.iloc[test, column] = shuffled
    assert (mixed["kind"] != frame["kind"]).any()
    settings = quick("kind", **others)
    honest, blind = (
        run_evaluation(read_table(f), "wine", tmp_path / name, settings)
        for name, f in (("honest", frame), ("blind", mixed))
    )
    np.testing.assert_array_equal(blind.split.test, test)
    for a, b in zip(honest.cells, blind.cells, strict=True):
        np.testing.assert_array_equal(a.test, b.test)
        np.testing.assert_array_equal(a.validation, b.validation)
    for name in ("thresholds", "chosen_on_validation"):
        assert honest.results[name] == blind.results[name]
    assert honest.results["figures"] != blind.results["figures"]


def test_a_class_of_test_rows_only_counts_as_errors(tmp_path: Path) -> None:
    frame = wine().rename(columns={"<b>kind": "kind"})
    test = split_rows(len(frame), 0).test
    frame.iloc[test[:3], frame.columns.get_loc("kind")] = "never seen"
    with pytest.warns(UserWarning, match="3 of 36 test rows"):
        results = run_evaluation(
            read_table(frame), "wine", tmp_path, quick("kind", representations=("raw",))
        )
    (cell,) = results.cells
    assert cell.classes is not None and len(cell.classes) == 3
    assert (cell.guesses(cell.test)[:, :3] != results.target.values[test[:3]]).all()


def test_rows_without_a_target_are_left_out_or_only_represented(tmp_path: Path) -> None:
    frame = wine().rename(columns={"<b>kind": "kind"})
    frame.iloc[5:15, frame.columns.get_loc("kind")] = None
    seen: list[int] = []
    fit = VarTJEPA.fit

    def spy(self: VarTJEPA, X: pa.Table, y: Any = None) -> VarTJEPA:
        seen.append(X.num_rows)
        assert y is None
        return fit(self, X, y)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VarTJEPA, "fit", spy)
        for number, transductive in enumerate((False, True)):
            with pytest.warns(UserWarning, match="missing in 10 rows"):
                results = run_evaluation(
                    read_table(frame),
                    "wine",
                    tmp_path / str(number),
                    quick("kind", transductive=transductive),
                )
            assert len(results.target.values) == len(frame) - 10
    assert seen == [len(results.split.train), len(frame)]


def test_more_runs_and_predictors_go_on_from_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = read_table(wine())
    first = run_evaluation(table, "wine", tmp_path, quick("<b>kind", predictors=("mlp",)))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(VarTJEPA, "fit", refuse)
    wider = quick("<b>kind", runs=3, predictors=("mlp", "linear"))
    second = run_evaluation(table, "wine", tmp_path, wider)
    assert len(second.cells) == 4
    assert [cell.predictor for cell in second.cells] == ["linear", "mlp"] * 2
    np.testing.assert_array_equal(second.cells[1].test[:2], first.cells[0].test)
    path = tmp_path / "parts" / "raw-linear-0.safetensors"
    path.write_bytes(b"half a file")
    with pytest.raises(InputError, match="damaged"):
        run_evaluation(table, "wine", tmp_path, wider)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("inputs.json", "{", "not a JSON file"),
        ("inputs.json", "[]", "other settings"),
        ("cells.json", "[]", "other settings"),
    ],
)
def test_a_folder_of_something_else_is_refused(
    name: str, content: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=says):
        run_evaluation(read_table(wine()), "wine", tmp_path, quick("<b>kind"))
    assert [file.name for file in (tmp_path / "parts").iterdir()] == [name]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{table}", "--target", "knid"], "did you mean 'kind'?"),
        (["{table}", "--target", "same"], "one class only"),
        (["{table}", "--target", "flat"], "2.5 in every row"),
        (["{table}", "--target", "name"], "choose another column"),
        (["{table}", "--target", "empty"], "no values"),
        (["{table}", "--target", "day"], "dates"),
        (["{table}", "--target", "kind", "--task", "regression"], "not a number"),
        (["{table}", "--target", "kind", "--task", "ranking"], "--task"),
        (["{table}", "--target", "kind", "--rows", "12"], "known for 12 rows"),
        (["{table}", "--target", "kind", "--predictors", "forrest"], "'forrest'"),
        (["{table}", "--target", "kind", "--representations", "umap"], "'umap'"),
        (["{table}", "--target", "kind", "--runs", "0"], "--runs"),
        (["{table}", "--target", "kind", "--epochs", "-1"], "--epochs"),
        (["{table}", "--target", "kind", "--device", "toaster"], "toaster"),
        (["{table}", "--target", "kind", "--seed", "-1"], "--seed"),
        (["{table}", "--target", "kind", "--kind", "shoe=numeric"], "'shoe'"),
        (
            ["{table}", "--target", "kind", "--transductive", "--labels-pick-checkpoint"],
            "--transductive",
        ),
        (["{table}", "--target", "size", "--labels-pick-checkpoint"], "needs classes"),
        (["{lonely}", "--target", "kind"], "no column besides"),
        (["{table}.xls", "--target", "kind"], "cannot read"),
        (["{odd}", "--target", "kind"], "known extensions"),
        (["{table}"], "--target"),
    ],
)
def test_wrong_input(arguments: list[str], says: str, tmp_path: Path, capsys: Captured) -> None:
    rng = np.random.default_rng(0)
    n = 60
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "kind": rng.choice(["a", "b"], n),
            "same": "x",
            "flat": 2.5,
            "name": [f"row {i}" for i in range(n)],
            "empty": pd.Series([None] * n, dtype="float64"),
            "day": pd.date_range("2024-01-01", periods=n),
        }
    )
    data = tmp_path / "data"
    data.mkdir()
    frame.to_parquet(data / "table.parquet")
    frame[["kind"]].to_parquet(data / "lonely.parquet")
    (data / "odd.xls").write_bytes(b"")
    names = {"table": "table.parquet", "lonely": "lonely.parquet", "odd": "odd.xls"}
    places = {name: data / file for name, file in names.items()}
    words = [word.format(**places) for word in arguments]
    before = snapshot(tmp_path)
    assert_refused(capsys, run(*words, "--out", tmp_path / "out"), says)
    assert snapshot(tmp_path) == before
