"""Claims about the uncertainty study.

1. A run leaves every score on one shared classifier, and the paper's five each on its own.
2. On the shared classifier all scores have one error rate; random abstention and the oracle bound
   them; in the paper's arrangement the three of the probe share its error.
3. What needs the truth is None where there is none.
4. The rows behind the figures are the test rows, in both settings.
5. Finished runs are not computed again.
6. A regression that is told u finds it, where there is something to find, and only then.
7. The balanced score is there once per embedding; results that lack it get it, and nothing else is
   computed for it; never from another model than the embeddings'.
8. A combined score that learned from errors beats its parts where they carry different news.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paper import uncertainty as scores
from paper import uncertainty as study
from paper.predictors.inputs import RawFeatures
from paper.protocol import SCORES
from paper.store import write_rows
from paper.uncertainty import Scored, UncertaintyPlan, example_images, told_ambiguity
from tests.paper.tiny import TINY, sim_under_any_name
from varjepa.errors import InputError
from varjepa.evaluate.splits import split_rows
from varjepa.metrics.ambiguity import spearman
from varjepa.metrics.selective import aurc

# trained for an epoch or two
pytestmark = pytest.mark.filterwarnings("ignore:the latents have collapsed")

PLAN = UncertaintyPlan(datasets=("sim",), settings=("paper", "ours"), runs=1, scale=TINY)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    study.run_uncertainty(folder, PLAN, "cpu")
    return folder


def test_every_score_is_there_in_both_arrangements(finished: Path) -> None:
    table, _ = study.open_uncertainty(finished, TINY)
    for setting in ("paper", "ours"):
        rows = [row for row in table.rows if row["setting"] == setting]
        shared = [row for row in rows if row["arrangement"] == "shared"]
        assert sorted(r["score"] for r in shared) == sorted(scores.SHARED_SCORES)
        paper = {r["score"]: r for r in rows if r["arrangement"] == "paper"}
        assert set(paper) == set(scores.PAPER_SCORES)
        assert len({r["error_rate"] for r in shared}) == 1
        by_probe = ("latent", "probe entropy", "probe msp")
        assert len({paper[name]["error_rate"] for name in by_probe}) == 1
        by_name = {r["score"]: r for r in shared}
        assert by_name["random"]["aurc"] == pytest.approx(by_name["random"]["error_rate"])
        assert by_name["oracle"]["aurc"] == min(r["aurc"] for r in shared)
        assert by_name["oracle"]["spearman"] is None
        assert by_name["random"]["auroc"] == 0.5
        asked = {r["score"] for r in shared if r["validation_spearman"] is not None}
        assert asked == set(SCORES)
        latent = paper["latent"]
        assert latent["spearman"] == by_name[latent["latent"]]["spearman"]
    latents = {r["setting"]: r["latent"] for r in table.rows if r["score"] == "latent"}
    assert latents["paper"] == "posterior q90"
    assert latents["ours"] in SCORES


def test_the_bound_is_there_once_per_setting(finished: Path) -> None:
    table, _ = study.open_uncertainty(finished, TINY)
    bounds = [row for row in table.rows if row["arrangement"] == "bound"]
    assert [row["setting"] for row in bounds] == ["ours", "paper"]
    assert {row["score"] for row in bounds} == {scores.TOLD}


def test_the_balanced_score_is_there_once_per_embedding(finished: Path) -> None:
    table, _ = study.open_uncertainty(finished, TINY)
    found = [row for row in table.rows if row["arrangement"] == "balanced"]
    assert [(row["setting"], row["score"]) for row in found] == [
        ("ours", scores.BALANCED),
        ("paper", scores.BALANCED),
    ]
    for row in found:
        assert None not in (row["spearman"], row["auroc"], row["validation_spearman"])
        assert row["error_rate"] is None


def test_a_run_that_lacks_only_its_balanced_score_gets_it(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As results have it that are older; without asking any classifier again."""
    folder = tmp_path / "older"
    shutil.copytree(finished, folder)
    table, _ = study.open_uncertainty(folder, TINY)
    write_rows(table.path, [row for row in table.rows if row["arrangement"] != "balanced"])

    def never(*_: Any) -> Any:
        raise AssertionError("computed again")

    monkeypatch.setattr(study, "Study", never)
    study.run_uncertainty(folder, PLAN, "cpu")
    again, _ = study.open_uncertainty(folder, TINY)
    assert again.rows == table.rows


def test_the_model_of_kept_embeddings_is_not_trained_anew(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "older"
    shutil.copytree(finished, folder)
    table, _ = study.open_uncertainty(folder, TINY)
    write_rows(table.path, [row for row in table.rows if row["arrangement"] != "balanced"])
    shutil.rmtree(folder / "models")
    with pytest.raises(InputError, match="is there but its model"):
        study.run_uncertainty(folder, PLAN, "cpu")


def test_who_is_told_the_ambiguity_finds_it_in_the_columns_that_have_it() -> None:
    rng = np.random.default_rng(0)
    u, split = rng.random(600), split_rows(600, 0)
    noise = rng.normal(size=600)
    telling, silent = (
        RawFeatures.from_numeric(np.column_stack([noise, other]).astype(np.float32))
        for other in (np.abs(u - 0.5) + 2 * (u > 0.5), rng.normal(size=600))
    )
    assert spearman(told_ambiguity(telling, u, split), u[split.test]) > 0.95
    assert abs(spearman(told_ambiguity(silent, u, split), u[split.test])) < 0.3


def test_the_rows_behind_the_figures(finished: Path) -> None:
    _, per_row = study.open_uncertainty(finished, TINY)
    assert [row["setting"] for row in per_row.rows] == ["ours", "paper"]
    for row in per_row.rows:
        assert len(row["uncertainty"]) == len(row["ambiguity"]) == len(row["wrong"]) == 32
        assert set(row["wrong"]) <= {0, 1}
        assert "images" not in row


def test_finished_runs_are_kept(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("computed again")

    monkeypatch.setattr(study, "Study", never)
    study.run_uncertainty(finished, PLAN, "cpu")


def test_without_the_truth_only_errors_are_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim_under_any_name(monkeypatch)
    monkeypatch.setattr(study, "PASSES", 2)
    bench = study.Workbench(tmp_path, "adult", TINY, "cpu")
    bench.data = replace(bench.data, ambiguity=None)
    one = study.Study(bench, "paper", 0)
    assert one.latent == "posterior mean"
    rows = one.run(0)
    assert all(row["spearman"] is None and row["auroc"] is None for row in rows)
    assert all(row["aurc"] is not None for row in rows)
    assert one.per_row()["ambiguity"] is None


def test_combined_scores_learn_from_validation_rows() -> None:
    rng = np.random.default_rng(0)

    def scored(rows: int) -> Scored:
        names = (*SCORES, *scores.POSTHOC, *scores.OWN, *scores.DOUBTS)
        drawn = {name: rng.normal(size=rows) for name in names}
        chance = 1 / (1 + np.exp(2 - 2 * drawn["nll mean"] - 2 * drawn["own msp"]))
        return Scored(drawn, (rng.random(rows) < chance).astype(float))

    held_out, test = scored(2000), scored(4000)
    found = scores.combine(held_out, test)
    assert set(found) == set(scores.COMBINED)
    best = min(aurc(test.wrong, score) for score in test.scores.values())
    for score in found.values():
        assert aurc(test.wrong, score) < 0.9 * best


def test_examples_are_the_digits_nearest_to_each_level() -> None:
    u = np.linspace(0, 1, 50)
    table = pa.table({f"px{j}": np.full(50, j / 783) for j in range(784)})
    rows = np.arange(0, 50, 2)
    images = example_images(table, u, rows, per_level=2)
    assert [image["level"] for image in images[::2]] == [0.0, 0.2, 0.4, 0.6, 0.8, 0.99]
    assert images[0]["u"] == 0.0
    assert all(abs(image["u"] - image["level"]) < 0.07 for image in images)
    assert images[0]["pixels"][0] == 0
    assert images[0]["pixels"][783] == 255
