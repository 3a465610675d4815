"""Claims about the simulation study's driver.

1. Rows have the documented keys; figure variants also leave a curve per epoch, starting at 0.
2. A finished (variant, run) is never computed again, a missing one is, and the numbers do not
   depend on how a study was cut into sessions.
3. An interruption keeps what was finished.
4. The variants differ from A exactly in what Section 4.1 says.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from paper import simulation as study
from paper.simulation import SIMULATION_VARIANTS, SimulationSettings
from paper.store import Row
from varjepa.errors import InputError, Interrupted

BASE = SimulationSettings()
SMALL = replace(
    BASE,
    train_rows=300,
    evaluation_rows=200,
    training=replace(BASE.training, epochs=2),
    probe=replace(BASE.probe, epochs=2),
)


def numbers(rows: list[Row]) -> list[tuple[object, ...]]:
    names = ("variant", "latent", "run", "accuracy", "kl_aggregate", "sigreg", "mean_norm")
    return [tuple(row[name] for name in names) for row in rows]


def test_rows_have_the_documented_keys(tmp_path: Path) -> None:
    study.run_simulation(tmp_path, ["A", "G"], 2, SMALL)
    table, epochs = study.open_simulation(tmp_path, SMALL)
    assert len(table.rows) == 2 * 2 * 2
    keys = {"variant", "latent", "run", "seed", "accuracy", "kl_aggregate", "sigreg"}
    keys |= {"cov_deviation", "mean_norm", "environment", "seconds"}
    for row in table.rows:
        assert keys <= row.keys()
        assert row["latent"] in ("s_x", "s_y")
        assert 0 <= row["accuracy"] <= 1
        assert row["seconds"] > 0
        assert row["environment"]["torch"]
    assert {row["variant"] for row in epochs.rows} == {"A"}
    for row in epochs.rows:
        assert row["epochs"] == [0, 1, 2]
        assert len(row["coupling"]) == len(row["kl_aggregate_s_x"]) == 3


def test_runs_are_resumed_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[int]]] = []
    compute = study.run_variant

    def spy(
        variant: str,
        seeds: list[int],
        settings: SimulationSettings,
        on_epoch: study.OnEpoch,
    ) -> study.VariantOutcome:
        asked.append((variant, list(seeds)))
        return compute(variant, seeds, settings, on_epoch)

    monkeypatch.setattr(study, "run_variant", spy)
    study.run_simulation(tmp_path / "cut", ["C"], 1, SMALL)
    study.run_simulation(tmp_path / "cut", ["C", "H"], 3, SMALL)
    study.run_simulation(tmp_path / "cut", ["C", "H"], 3, SMALL)
    assert asked == [("C", [0]), ("C", [1, 2]), ("H", [0, 1, 2])]
    study.run_simulation(tmp_path / "whole", ["C", "H"], 3, SMALL)
    cut, whole = (
        numbers(study.open_simulation(tmp_path / name, SMALL)[0].rows) for name in ("cut", "whole")
    )
    for one, other in zip(cut, whole, strict=True):
        assert one[:3] == other[:3]
        assert one[3:] == pytest.approx(other[3:], rel=1e-3)


def test_a_lost_figure_file_is_computed_again(tmp_path: Path) -> None:
    study.run_simulation(tmp_path, ["A"], 1, SMALL)
    (tmp_path / "epoch_diagnostics.json").unlink()
    study.run_simulation(tmp_path, ["A"], 1, SMALL)
    assert (tmp_path / "epoch_diagnostics.json").exists()


def test_an_interruption_keeps_what_is_finished(tmp_path: Path) -> None:
    def interrupt(variant: str, epoch: int) -> None:
        if (variant, epoch) == ("B", 2):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="goes on from there"):
        study.run_simulation(tmp_path, ["A", "B", "G"], 1, SMALL, interrupt)
    table, _ = study.open_simulation(tmp_path, SMALL)
    assert {row["variant"] for row in table.rows} == {"A"}
    assert study.count_waiting(tmp_path, ["A"], 1, SMALL) == 0
    assert study.count_waiting(tmp_path, ["A", "B", "G"], 1, SMALL) == 2


def test_variants_are_the_papers() -> None:
    unit = {"rec": 1, "gen": 1, "kl_sx": 1, "kl_z": 1, "kl_sy": 1}
    no_kl = {"kl_sx": 0, "kl_z": 0, "kl_sy": 0}
    expected = {
        "A": ({}, 0, 0),
        "B": ({}, 10, 0),
        "C": ({}, 0, 10),
        "D": ({}, 10, 10),
        "E": ({"kl_sx": 0}, 0, 0),
        "F": ({"kl_sy": 0}, 0, 0),
        "G": ({"rec": 0, "gen": 0}, 0, 0),
        "H": ({"rec": 0, "gen": 0}, 10, 10),
        "I": (no_kl, 0, 0),
        "J": (no_kl, 10, 10),
    }
    assert list(SIMULATION_VARIANTS) == list(expected)
    for name, (changes, on_s_x, on_s_y) in expected.items():
        objective = SIMULATION_VARIANTS[name].objective
        assert asdict(objective.elbo) == {**unit, **changes}
        assert (objective.sigreg_s_x, objective.sigreg_s_y) == (on_s_x, on_s_y)


def test_two_writers_are_refused(tmp_path: Path) -> None:
    def meanwhile(variant: str, epoch: int) -> None:
        with pytest.raises(InputError, match="another varjepa process"):
            study.run_simulation(tmp_path, ["G"], 1, SMALL)

    study.run_simulation(tmp_path, ["A"], 1, SMALL, meanwhile)
    study.run_simulation(tmp_path, ["G"], 1, SMALL)
    table, _ = study.open_simulation(tmp_path, SMALL)
    assert {row["variant"] for row in table.rows} == {"A", "G"}


def test_the_defaults_are_the_candidate_that_was_chosen() -> None:
    """Of 13 (results/simulation-search.json at 02cf438, LOG.md)."""
    model = BASE.model
    assert (BASE.train_rows, BASE.probe.hidden, BASE.process.map_gains) == (5000, 64, (1.0, 1.0))
    assert (model.hidden_layers, model.activation) == (1, "silu")
    assert (model.scale, model.noise_scale) == ("log_var", "log_std")
