"""Claims about the downstream tables' driver.

1. Every representation and coverage leaves one row with the documented columns; trees have one
   seed, representations without an uncertainty only full coverage.
2. A finished cell is never computed again, and a finished study needs neither data nor models.
3. A killed run goes on without retraining: from the embeddings, or from the model folder. Seeds
   that a cell lacks are fitted as those that it has.
4. Files of other settings are refused and damaged ones named, in one sentence.
5. An interruption keeps finished cells; a second writer is refused.
6. Embeddings that would be large are kept in half precision, and a chunk more or less does not
   change them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paper import cells, representations
from paper import downstream as study
from paper import protocol as embeddings
from paper.cells import fit_best
from paper.downstream import DownstreamPlan
from paper.predictors import training
from paper.predictors.training import fit_trees
from paper.settings import CHOICES
from tests.paper.tiny import TINY
from varjepa.errors import InputError, Interrupted
from varjepa.estimators import VarTJEPA

# trained for an epoch or two
pytestmark = pytest.mark.filterwarnings("ignore:the latents have collapsed")

PLAN = DownstreamPlan(
    datasets=("sim",),
    representations=("raw", "var_t_jepa"),
    predictors=("linear_probe",),
    runs=2,
    scale=TINY,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    plan = replace(PLAN, representations=representations.REPRESENTATIONS)
    plan = replace(plan, predictors=("linear_probe", "xgboost"), settings=("paper", "ours"))

    def fit_few(*rows: Any) -> Any:
        return fit_trees(*rows[:-1], replace(rows[-1], trees=5))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "fit_trees", fit_few)
        study.run_downstream(folder, plan, "cpu")
    return folder


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return study.open_downstream(folder, TINY).rows


def test_every_cell_leaves_its_rows(finished: Path) -> None:
    rows = rows_of(finished)
    counts: dict[tuple[str, str, str], int] = {}
    for row in rows:
        key = (row["representation"], row["predictor"], row["setting"])
        counts[key] = counts.get(key, 0) + 1
        assert 0 <= row["f1_macro"] <= 1
        assert 0 <= row["accuracy"] <= 1
        assert row["seconds"] > 0
        assert row["test_rows"] == 32
        assert row["environment"]["torch"]
    ranked = {"var_t_jepa": 4, "raw+var_t_jepa": 4, "t_jepa": 1, "raw": 1, "pca": 1}
    expected = {
        (name, predictor, setting): coverages * (2 if predictor == "linear_probe" else 1)
        for name, coverages in ranked.items()
        for predictor in ("linear_probe", "xgboost")
        for setting in ("paper", "ours")
        if setting == "paper" or "t_jepa" in name or predictor == "xgboost"  # ours has other trees
    }
    assert counts == expected
    scores = {row["uncertainty"] for row in rows if row["representation"] == "var_t_jepa"}
    assert "posterior q90" in scores  # the paper's for SIM
    assert scores <= set(embeddings.SCORES)
    chosen = {row["uncertainty"] for row in rows if row["setting"] == "ours"} - {None}
    assert len(chosen) == 1  # once per embedding, whatever the predictor


def test_trainings_are_recorded_once(finished: Path) -> None:
    rows = representations.open_trainings(finished, TINY).rows
    kinds = [(row["model"], row["setting"]) for row in rows]
    assert kinds == [(m, s) for m in ("t_jepa", "var_t_jepa") for s in ("ours", "paper")]
    for row in rows:
        assert row["seconds"] > 0
        assert row["best_epoch"] == row["epochs"] == 1
        assert row["effective_rank"] > 0


def test_a_finished_study_computes_nothing(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("computed again")

    monkeypatch.setattr(study, "run_cell", never)
    monkeypatch.setattr(representations, "load_dataset", never)
    before = (finished / "downstream.json").read_bytes()
    study.run_downstream(finished, PLAN, "cpu")
    assert (finished / "downstream.json").read_bytes() == before


def test_more_runs_compute_the_new_seeds_from_the_kept_embedding(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(finished, tmp_path)
    trained: list[str] = []
    monkeypatch.setattr(embeddings, "fit_on_all_rows", lambda *_: trained.append("again"))
    asked: list[tuple[str, list[int]]] = []
    compute = study.run_cell

    def spy(bench: Any, about: Any, seeds: list[int], choice: str | None) -> Any:
        asked.append((about["representation"], list(seeds)))
        return compute(bench, about, seeds, choice)

    monkeypatch.setattr(study, "run_cell", spy)
    study.run_downstream(folder, replace(PLAN, runs=3), "cpu")
    assert asked == [("raw", [2]), ("var_t_jepa", [2])]
    assert not trained


def test_seeds_of_one_cell_are_fitted_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(
        PLAN, representations=("var_t_jepa",), predictors=("mlp",), settings=("ours",), runs=1
    )
    study.run_downstream(tmp_path, plan, "cpu")
    found = study.open_downstream(tmp_path, TINY)
    chosen = found.rows[0]["choice"]
    assert chosen in CHOICES["mlp"]
    other = next(name for name in CHOICES["mlp"] if name != chosen)
    found.add([{**row, "choice": other} for row in found.rows])  # as if it had been the better
    asked: list[list[str]] = []

    def spy(kind: Any, inputs: Any, data: Any, split: Any, seeds: Any, choices: Any) -> Any:
        asked.append(list(choices))
        return fit_best(kind, inputs, data, split, seeds, choices)

    monkeypatch.setattr(cells, "fit_best", spy)
    study.run_downstream(tmp_path, replace(plan, runs=3), "cpu")
    rows = rows_of(tmp_path)
    assert asked == [[other]]
    assert {row["choice"] for row in rows} == {other}
    assert {row["seed"] for row in rows} == {0, 1, 2}


def test_lost_embeddings_are_made_again_from_the_model(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    path = folder / "embeddings" / "sim-var_t_jepa-paper-0.safetensors"
    before = path.read_bytes()
    path.unlink()
    said: list[str] = []
    study.run_downstream(folder, replace(PLAN, runs=3), "cpu", said.append)
    assert path.read_bytes() == before
    assert not any("epoch" in line for line in said)


def test_other_settings_are_refused_and_damage_is_named(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    longer = replace(PLAN, scale=replace(TINY, epochs=2))
    with pytest.raises(InputError, match=r"downstream\.json holds results of other settings"):
        study.run_downstream(folder, longer, "cpu")
    for name in ("downstream.json", "representations.json"):
        (folder / name).unlink()
    with pytest.raises(InputError, match=r"safetensors was made with other settings"):
        study.run_downstream(folder, longer, "cpu")
    path = folder / "embeddings" / "sim-var_t_jepa-paper-0.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"safetensors is damaged; delete it"):
        study.run_downstream(folder, PLAN, "cpu")


def test_an_interruption_keeps_finished_cells(tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        if line.startswith("sim, raw"):
            with pytest.raises(InputError, match="another varjepa process"):
                study.run_downstream(tmp_path, PLAN, "cpu")
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        study.run_downstream(tmp_path, PLAN, "cpu", interrupt)
    assert {row["representation"] for row in rows_of(tmp_path)} == {"raw"}
    assert not (tmp_path / "models").exists()


def test_large_embeddings_are_kept_in_half_precision(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = VarTJEPA.load(finished / "models" / "sim-var_t_jepa-paper-0")
    table = representations.first_rows(representations.load_dataset("sim"), 200).table
    whole = embeddings.embed_table(estimator, table)
    scores = embeddings.score_table(estimator, table)
    monkeypatch.setattr(embeddings, "HALF_FROM", 1)
    monkeypatch.setattr(embeddings, "CHUNK", 128)
    half = embeddings.embed_table(estimator, table)
    assert (whole.dtype, half.dtype) == (torch.float32, torch.float16)
    assert torch.equal(half, whole.half())
    again = embeddings.score_table(estimator, table)
    for name in embeddings.SCORES:
        assert (again[name] == scores[name]).all()
    kind, aggregate = "surprise", "q90"
    direct = estimator.uncertainty(table, kind, aggregate)
    assert scores[f"{kind} {aggregate}"] == pytest.approx(direct)


def copied(source: Path, target: Path) -> Path:
    for path in source.rglob("*"):
        if path.is_file():
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    return target
