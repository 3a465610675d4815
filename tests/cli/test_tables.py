"""Claims: fit, embed, impute, sample, score and demo do their job on files.

1. Scores of cells have the table's own column names in its own order; `--keep` copies columns;
   `--uncertainty` takes every kind and aggregate that Python has. `fit` says which columns it does
   not learn from, and why; `--forget-rows` keeps none of the rows.
2. Wrong input ends in one sentence and exit code 2, with nothing written; mistyped columns get a
   suggestion. An input is replaced only with --overwrite.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.test_shell import Captured, assert_refused, run, snapshot
from varjepa import VarTJEPA
from varjepa.tables import read_table

pytestmark = pytest.mark.filterwarnings("default::UserWarning")  # one epoch does collapse


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=80),
            "zip": rng.integers(1, 4, 80),
            "colour": rng.choice(["red", "green"], 80),
            "label": rng.choice(["yes", "no"], 80),
        }
    )
    frame.loc[[3, 5], "size"] = np.nan
    path = tmp_path_factory.mktemp("data") / "table.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fitted") / "model"
    arguments = ["fit", table, "--out", out, "--target", "label", "--epochs", "1"]
    assert run(*arguments, "--kind", "zip=categorical") == 0
    return out


def test_fit_writes_a_model_and_its_history(model: Path) -> None:
    names = {path.name for path in model.iterdir()}
    assert names == {
        "README.md", "config.json", "codec.json", "model.safetensors", "manifest.json",
        "history.jsonl",
    }  # fmt: skip
    record = json.loads((model / "history.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert {"epoch", "loss", "rec", "gen", "kl_sx", "kl_z", "kl_sy"} <= record.keys()
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    assert config["selected_by"] == "filtered accuracy"
    assert config["feature_names"] == ["size", "zip", "colour"]
    codec = (model / "codec.json").read_text(encoding="utf-8")
    assert "label" not in codec


def test_fit_can_forget_its_rows(model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    assert (
        run("fit", table, "--out", out, "--leave-out", "label", "--epochs", 1, "--forget-rows") == 0
    )
    kept = [json.loads((one / "config.json").read_bytes())["neighbours"] for one in (model, out)]
    assert [len(rows["cat"]) for rows in kept] == [72, 0]


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather"])
def test_embed(model: Path, table: Path, tmp_path: Path, ending: str, capsys: Captured) -> None:
    out = tmp_path / f"embedding.{ending}"
    assert run("embed", model, table, "--out", out, "--per-column") == 0
    captured = capsys.readouterr()
    assert "80 rows in" in captured.out.replace("\n", " ")
    assert "warning" in captured.err  # the label column is not the model's
    read = {"csv": pd.read_csv, "parquet": pd.read_parquet, "feather": pd.read_feather}[ending]
    frame = read(out)
    assert len(frame) == 80
    assert {"size_0", "uncertainty", "uncertainty:colour"} <= set(frame.columns)
    of_cells = [name for name in frame.columns if name.startswith("uncertainty:")]
    assert np.isfinite(frame.drop(columns=of_cells).to_numpy()).all()
    given = read_table(table).to_pandas()
    for name in of_cells:  # a missing cell contradicts nothing
        assert frame[name].isna().equals(given[name.removeprefix("uncertainty:")].isna())


def test_impute_sample_and_score(model: Path, table: Path, tmp_path: Path) -> None:
    given = pd.read_csv(table).drop(columns="label")
    bare = tmp_path / "bare.csv"
    given.to_csv(bare, index=False)
    assert run("impute", model, bare, "--out", tmp_path / "full.csv") == 0
    full = pd.read_csv(tmp_path / "full.csv")
    assert not full.isna().any().any()
    pd.testing.assert_frame_equal(full.drop(index=[3, 5]), given.drop(index=[3, 5]))
    assert run("impute", model, bare, "--out", tmp_path / "samples.csv", "--samples", "3") == 0
    assert pd.read_csv(tmp_path / "samples.csv")["sample"].value_counts().tolist() == [80, 80, 80]
    assert run("sample", model, "--out", tmp_path / "new.csv", "--rows", "7") == 0
    assert pd.read_csv(tmp_path / "new.csv").shape == (7, 3)
    fixed = tmp_path / "fixed.csv"
    pd.DataFrame({"colour": ["red", "green"]}).to_csv(fixed, index=False)
    assert run("sample", model, fixed, "--out", tmp_path / "given.csv") == 0
    assert pd.read_csv(tmp_path / "given.csv")["colour"].tolist() == ["red", "green"]
    assert run("score", model, bare, "--out", tmp_path / "score.csv") == 0
    scores = pd.read_csv(tmp_path / "score.csv")
    assert {"score", "rec", "kl_sy", "uncertainty_doubtful"} <= set(scores.columns)
    assert np.isfinite(scores.to_numpy()).all()


def test_scores_of_cells_carry_names_order_and_kept_columns(
    model: Path, table: Path, tmp_path: Path
) -> None:
    given = pd.read_csv(table)[["label", "colour", "size", "zip"]]
    path, out = tmp_path / "given.csv", tmp_path / "score.csv"
    given.to_csv(path, index=False)
    some = ["--keep", "label", "zip", "--uncertainty", "nll-balanced", "nll"]
    assert run("score", model, path, "--out", out, "--per-column", *some) == 0
    scores = pd.read_csv(out)
    assert list(scores.columns[:3]) == ["label", "zip", "score"]
    assert list(scores.columns[-5:]) == [
        "uncertainty_nll_balanced",
        "uncertainty_nll",
        "uncertainty:colour",
        "uncertainty:size",
        "uncertainty:zip",
    ]
    assert scores["label"].tolist() == given["label"].tolist()
    assert scores["zip"].tolist() == given["zip"].tolist()
    assert scores["uncertainty:size"].isna().tolist() == given["size"].isna().tolist()
    fitted = VarTJEPA.load(model)
    bare = given.drop(columns="label")
    np.testing.assert_allclose(
        scores["uncertainty_nll_balanced"], fitted.uncertainty(bare, "nll", "balanced"), rtol=1e-6
    )
    cells = fitted.cell_uncertainty(bare, "nll")
    assert {str(kind) for kind in cells.dtypes} == {"float32"}
    np.testing.assert_allclose(scores["uncertainty:colour"], cells["colour"], rtol=1e-6)


def test_a_warning_is_said_once(model: Path, table: Path, tmp_path: Path, capsys: Captured) -> None:
    assert run("score", model, table, "--out", tmp_path / "score.csv", "--per-column") == 0
    assert capsys.readouterr().err.count("ignored columns that the model does not use") == 1


def test_embed_with_an_aggregate(model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.csv"
    options = ["--out", out, "--uncertainty", "nll-balanced", "--keep", "label"]
    assert run("embed", model, table, *options) == 0
    expected = VarTJEPA.load(model).uncertainty(
        pd.read_csv(table).drop(columns="label"), "nll", "balanced"
    )
    np.testing.assert_allclose(pd.read_csv(out)["uncertainty"], expected, rtol=1e-6)


def test_impute_carries_other_columns_along(model: Path, table: Path, tmp_path: Path) -> None:
    assert run("impute", model, table, "--out", tmp_path / "full.csv") == 0
    given, full = pd.read_csv(table), pd.read_csv(tmp_path / "full.csv")
    assert list(full.columns) == list(given.columns)
    assert full["label"].tolist() == given["label"].tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_fit_says_what_it_does_not_learn_from(
    table: Path, tmp_path: Path, ending: str, capsys: Captured
) -> None:
    source, out = tmp_path / "t", tmp_path / "model"
    if ending == "csv":
        source = table
    else:
        source.mkdir()
        pd.read_csv(table).to_parquet(source / "a.parquet")
    arguments = ["fit", source, "--out", out, "--epochs", "1", "--leave-out", "zip"]
    assert run(*arguments, "--leave-out", "colour", "--target", "label") == 0
    shown = capsys.readouterr().err.splitlines()
    assert shown[:2] == [
        "Left out: 'zip', 'colour'.",
        "Not learned from: the target 'label'; it selects the checkpoint.",
    ]
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert config["feature_names"] == ["size"]


def test_fit_says_that_a_number_selects_nothing(
    table: Path, tmp_path: Path, capsys: Captured
) -> None:
    arguments = ["fit", table, "--out", tmp_path / "m", "--epochs", "1", "--target", "size"]
    assert run(*arguments) == 0
    assert "it holds numbers, not classes" in capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fit", "{table}", "--out", "{new}", "--target", "lable"], "did you mean 'label'?"),
        (["fit", "{table}", "--out", "{new}", "--kind", "Zip=numeric"], "did you mean 'zip'?"),
        (["fit", "{table}", "--out", "{new}", "--leave-out", "Zip"], "did you mean 'zip'?"),
        (
            ["fit", "{table}", "--out", "{new}", "--target", "label", "--leave-out", "label"],
            "--target 'label' is never learned from",
        ),
        (["fit", "{table}", "--out", "{new}", "--epochs", "0"], "--epochs"),
        (["fit", "{table}", "--out", "{new}", "--kind", "zip=number"], "--kind"),
        (["fit", "{table}", "--out", "{new}", "--kind", "shoe=numeric"], "'shoe'"),
        (["fit", "{table}", "--out", "{new}", "--device", "toaster"], "toaster"),
        (["fit", "{new}.csv", "--out", "{new}"], "cannot read"),
        (["fit", "{new}.xls", "--out", "{new}"], "cannot read"),
        (["fit", "{model}/history.jsonl", "--out", "{new}"], ".parquet"),
        (["fit", "{new}*.parquet", "--out", "{new}"], "no file matches"),
        (["embed", "{new}", "{table}", "--out", "{new}.csv"], "cannot read the model folder"),
        (["score", "{table}", "{table}", "--out", "{new}.csv"], "not a model folder: it is a file"),
        (["impute", "{data}", "{table}", "--out", "{new}.csv"], "it has no manifest.json"),
        (["embed", "{model}", "{table}", "--out", "{new}.xls"], ".parquet"),
        (["impute", "{model}", "{table}", "--out", "{new}.csv", "--samples", "0"], "--samples"),
        (["sample", "{model}", "--out", "{new}.csv", "--rows", "-3"], "--rows"),
        (
            ["score", "{model}", "{table}", "--out", "{new}.csv", "--keep", "lable"],
            "did you mean 'label'?",
        ),
        (
            ["embed", "{model}", "{table}", "--out", "{new}.csv", "--keep", "Label"],
            "did you mean 'label'?",
        ),
        (
            ["score", "{model}", "{table}", "--out", "{new}.csv", "--uncertainty", "certain"],
            "--uncertainty 'certain' is not one of",
        ),
        (
            ["embed", "{model}", "{table}", "--out", "{new}.csv", "--uncertainty", "nll-sum"],
            "'sum' is not one of mean, q90, balanced",
        ),
        (["embed", "{model}", "{table}", "--out", "{model}"], "is the model folder; name another"),
        (
            ["audit", "{table}", "--model", "{model}", "--out", "{model}", "--overwrite"],
            "is the model folder; name another",
        ),
        (["fit", "{table}", "--out", "{new}", "--seed", "-1"], "--seed"),
        (["fit", "{table}", "--out", "{new}", "--device", "meta"], "meta"),
        (["demo", "--out", "{new}", "--rows", "7"], "--rows"),
        (["demo", "--out", "{new}", "--epochs", "0"], "--epochs"),
    ],
)
def test_wrong_input(
    arguments: list[str], says: str, model: Path, table: Path, tmp_path: Path, capsys: Captured
) -> None:
    places = {"table": table, "data": table.parent, "new": tmp_path / "new", "model": model}
    code = run(*(argument.format(**places) for argument in arguments))
    assert_refused(capsys, code, says)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize("verb", ["embed", "impute", "score", "sample"])
def test_an_input_is_replaced_only_on_request(
    verb: str, model: Path, table: Path, tmp_path: Path, capsys: Captured
) -> None:
    given = pd.read_csv(table).drop(columns="label")
    path = tmp_path / "given.csv"
    given.to_csv(path, index=False)
    before = snapshot(tmp_path)
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    for out in (path, link):
        code = run(verb, model, path, "--out", out)
        assert_refused(capsys, code, "is an input; add --overwrite to replace it")
    link.unlink()
    assert snapshot(tmp_path) == before
    assert run(verb, model, path, "--out", path, "--overwrite") == 0
    assert len(pd.read_csv(path)) == 80


def test_a_file_among_several_inputs_is_not_replaced(
    model: Path, table: Path, tmp_path: Path, capsys: Captured
) -> None:
    given = pd.read_csv(table).drop(columns="label")
    for name in "ab":
        given.to_parquet(tmp_path / f"{name}.parquet")
    for source in (tmp_path, tmp_path / "*.parquet"):
        code = run("embed", model, source, "--out", tmp_path / "b.parquet")
        assert_refused(capsys, code, "is an input; add --overwrite")


def test_a_table_without_a_column_the_model_needs(
    model: Path, tmp_path: Path, capsys: Captured
) -> None:
    pd.DataFrame({"size": [1.0], "zip": [1]}).to_csv(tmp_path / "short.csv", index=False)
    code = run("embed", model, tmp_path / "short.csv", "--out", tmp_path / "e.csv")
    assert_refused(capsys, code, "'colour'")
    pd.DataFrame({"size": [1.0], "zip": [1], "color": ["red"]}).to_csv(
        tmp_path / "other.csv", index=False
    )
    for command in ("embed", "impute"):
        code = run(command, model, tmp_path / "other.csv", "--out", tmp_path / "e.csv")
        assert_refused(capsys, code, "no column 'colour'; did you mean 'color'?")


def test_demo_runs_start_to_finish(tmp_path: Path, capsys: Captured) -> None:
    assert run("demo", "--out", tmp_path, "--rows", "300", "--epochs", "1") == 0
    printed = capsys.readouterr().out
    for title in ("Accuracy", "Selective accuracy", "true ambiguity", "Imputation", "Sampling"):
        assert title in printed
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "Selective accuracy" in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_table_without_rows(model: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "empty.csv").write_text("size,zip,colour\n")
    for verb in ("embed", "impute", "sample", "score"):
        code = run(verb, model, tmp_path / "empty.csv", "--out", tmp_path / "e.csv")
        assert_refused(capsys, code, "empty.csv has no rows")


def test_more_rows_than_memory_holds(model: Path, tmp_path: Path, capsys: Captured) -> None:
    code = run("sample", model, "--out", tmp_path / "s.csv", "--rows", 10**14)
    assert_refused(capsys, code, "not enough memory")


def test_an_empty_argument_is_not_the_current_folder(table: Path, capsys: Captured) -> None:
    assert_refused(capsys, run("fit", table, "--out", ""), "an argument is empty")


def test_options_may_stand_before_the_table(table: Path, tmp_path: Path) -> None:
    arguments = ["--kind", "zip=categorical", "--epochs", "1", table, "--out", tmp_path / "m"]
    assert run("fit", *arguments) == 0
