"""Claims about ``python -m paper all``, with the studies themselves replaced.

1. The studies run in the order in which later ones find the embeddings of earlier ones, each with
   its part of the datasets; --quick reaches all of them; the last step is the page.
2. What the last study would refuse is refused before the first one runs.
3. Ctrl-C ends with one sentence and exit code 130; the same command goes on, and finished studies
   compute nothing.
4. Really run, on a few hundred rows, no embedding is trained twice.
5. Help answers without torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paper import __main__ as commands
from paper import downstream, labels, sensitivity, simulation, uncertainty
from paper.datasets import loading
from paper.datasets.loading import Whereabouts
from paper.protocol import fit_on_all_rows
from paper.settings import FULL, QUICK
from tests.paper.test_report_page import run
from tests.paper.test_simulation_findings import paper_rows
from tests.paper.tiny import TINY, sim_under_any_name

STUDIES = {
    downstream: "run_downstream",
    labels: "run_labels",
    uncertainty: "run_uncertainty",
    sensitivity: "run_sensitivity",
}
REAL = {module: getattr(module, name) for module, name in STUDIES.items()}

Captured = pytest.CaptureFixture[str]
Calls = list[tuple[str, Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Replace the studies: each notes what it was asked, the simulation leaves rows."""
    noted: Calls = []

    def simulate(folder: Path, variants: Any, runs: int, *_: Any) -> None:
        noted.append(("simulation", (len(variants), runs)))
        folder.mkdir(exist_ok=True)
        simulation.open_simulation(folder)[0].add(paper_rows())

    def tabular(name: str) -> Any:
        def study(folder: Path, plan: Any, device: str, log: Any) -> None:
            assert device == "cpu"
            noted.append((name, plan))

        return study

    monkeypatch.setattr(simulation, "run_simulation", simulate)
    for module, name in STUDIES.items():
        monkeypatch.setattr(module, name, tabular(name.removeprefix("run_")))
    monkeypatch.setattr(loading, "load_dataset", lambda name: noted.append(("load", name)))
    places = {"mnist": Whereabouts("not here")}
    monkeypatch.setattr(
        loading, "locate_dataset", lambda name, *_: places.get(name, Whereabouts("built in"))
    )
    return noted


def test_the_studies_share_what_is_trained(tmp_path: Path, calls: Calls, capsys: Captured) -> None:
    assert run("all", "--out", tmp_path, "--device", "cpu") == 0
    names = [name for name, _ in calls]
    studied = ["simulation", "downstream", "downstream", "labels"]
    assert names == ["load", *studied, "uncertainty", "uncertainty", "sensitivity"]
    assert calls[0] == ("load", "mnist")  # what is not here is fetched before anything runs
    assert calls[1][1] == (10, 5)
    first, seeds = calls[2][1], calls[3][1]
    assert len(first.datasets) == 7
    assert (first.runs, first.embeddings, first.scale) == (5, 1, FULL)
    assert list(first.settings) == ["paper", "ours", "default"]
    assert list(seeds.datasets) == ["adult", "credit_default", "sim"]
    assert (seeds.embeddings, list(seeds.representations)) == (3, ["var_t_jepa"])
    few = calls[4][1]
    assert (set(few.datasets), list(few.settings)) == (set(first.datasets), list(first.settings))
    assert (few.runs, list(few.sizes), few.scale) == (5, [50, 100, 200, 500, 1000], FULL)
    ranked, several = calls[5][1], calls[6][1]
    assert (set(ranked.datasets), ranked.embeddings) == ({"sim", "mnist"}, 1)
    assert (list(several.datasets), several.embeddings) == (["sim"], 3)
    assert sum(map(len, calls[7][1].columns.values())) == 14
    # every embedding of the uncertainty study is one of the downstream study
    for plan in (ranked, several):
        before = first if plan.embeddings == 1 else seeds
        assert set(plan.datasets) <= set(before.datasets)
        assert list(plan.settings) == list(before.settings)
        assert (plan.embeddings, plan.scale) == (before.embeddings, before.scale)
    tables = {"simulation.md", "downstream.md", "uncertainty.md", "sensitivity.md", "labels.md"}
    assert {*tables, "tables.md", "report.html"} <= {path.name for path in tmp_path.iterdir()}
    assert "1 of 7: simulation" in capsys.readouterr().out


def test_help_answers_without_torch() -> None:
    code = "import sys, paper.__main__ as m; assert 'torch' not in sys.modules; m.main(['--help'])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in ("simulation", "downstream", "uncertainty", "sensitivity", "labels", "report"):
        assert name in said.stdout


def test_quick_and_datasets_reach_every_study(tmp_path: Path, calls: Calls) -> None:
    options = ["--out", tmp_path, "--device", "cpu", "--quick"]
    assert run("all", *options) == 0
    assert [name for name, _ in calls] == [
        "simulation",
        "downstream",
        "labels",
        "uncertainty",
        "sensitivity",
    ]
    assert calls[0][1] == (6, 2)
    assert all(plan.scale == QUICK for _, plan in calls[1:])
    assert list(calls[1][1].datasets) == ["adult", "sim"]
    calls.clear()
    only = ["--out", tmp_path / "b", "--device", "cpu", "--datasets", "EL", "--settings", "ours"]
    assert run("all", *only) == 0
    assert [name for name, _ in calls] == ["simulation", "downstream", "labels"]
    assert calls[1][1].datasets == ["electricity"]
    assert calls[1][1].settings == ["ours"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["--datasets", "iris"], "there is no dataset 'iris'"),
        (["--settings", "theirs"], "there is no setting 'theirs'"),
        (["--device", "tpu"], "device 'tpu'"),
    ],
)
def test_wrong_options_start_nothing(
    tmp_path: Path, calls: Calls, capsys: Captured, wrong: list[str], says: str
) -> None:
    assert run("all", "--out", tmp_path / "new", *wrong) == 2
    error = capsys.readouterr().err.strip()
    assert says in error
    assert len(error.splitlines()) == 1
    assert not calls
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["sensitivity.json", "uncertainty_rows.json", "low_labels.json"])
def test_a_file_that_the_last_study_would_refuse(
    tmp_path: Path, calls: Calls, capsys: Captured, name: str
) -> None:
    (tmp_path / name).write_text(json.dumps([{"mine": 1}]), encoding="utf-8")
    assert run("all", "--out", tmp_path, "--device", "cpu") == 2
    assert name in capsys.readouterr().err
    assert not calls


def test_an_interruption_and_the_same_command_again(
    tmp_path: Path, calls: Calls, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    command = ["all", "--out", tmp_path, "--device", "cpu", "--datasets", "sim"]
    with monkeypatch.context() as patch:
        patch.setattr(uncertainty, "run_uncertainty", REAL[uncertainty])
        patch.setattr(uncertainty, "Workbench", interrupt)
        assert run(*command) == 130
    error = capsys.readouterr().err.strip()
    assert error.endswith("and the same command goes on from there")
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()
    before = ["simulation", "downstream", "downstream", "labels"]
    assert [name for name, _ in calls] == before
    calls.clear()
    assert run(*command) == 0
    assert [name for name, _ in calls][-2:] == ["uncertainty", "uncertainty"]
    assert (tmp_path / "report.html").exists()
    with monkeypatch.context() as patch:
        patch.setattr(commands, "report", interrupt)
        assert run(*command) == 130


def test_finished_studies_compute_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real simulation, with its rows already there."""
    table, epochs = simulation.open_simulation(tmp_path)
    table.add(paper_rows())
    curves = ("kl_aggregate", "sigreg", "cov_deviation")
    series = {f"{c}_{s}": [1.0, 2.0] for c in curves for s in ("s_x", "s_y")}
    epochs.add(
        [
            {"variant": v, "run": r, "epochs": [0, 1], "coupling": [1.0, 2.0], **series}
            for v in "AEIJ"
            for r in range(2)
        ]
    )

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("computed again")

    monkeypatch.setattr(simulation, "run_variant", never)
    for module, name in STUDIES.items():
        monkeypatch.setattr(module, name, lambda *_: None)
    before = (tmp_path / "simulation.json").read_bytes()
    command = ["--out", tmp_path, "--device", "cpu", "--quick", "--datasets", "sim"]
    assert run("all", *command) == 0
    assert (tmp_path / "simulation.json").read_bytes() == before
    assert "Latent distributions" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:the latents have collapsed")  # one epoch learns nothing
def test_no_embedding_is_trained_twice(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def train(estimator: Any, *rest: Any) -> None:
        trained.append(type(estimator).__name__)
        fit_on_all_rows(estimator, *rest)

    monkeypatch.setattr("paper.protocol.fit_on_all_rows", train)
    for module, name in STUDIES.items():
        monkeypatch.setattr(module, name, REAL[module])
    monkeypatch.setattr("paper.settings.QUICK", TINY)
    monkeypatch.setattr(commands, "QUICK_PREDICTORS", ["linear_probe"])
    monkeypatch.setattr(commands, "QUICK_RUNS", 1)
    sim_under_any_name(monkeypatch)
    command = ["all", "--out", tmp_path, "--device", "cpu", "--quick"]
    assert run(*command) == 0
    # of each table both models; sensitivity's first column is Adult's, its second is not
    assert sorted(trained) == ["TJEPA"] * 2 + ["VarTJEPA"] * 3
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "not run yet" not in page
    assert "Not the full study" in page
    trained.clear()
    assert run(*command) == 0
    assert not trained
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
