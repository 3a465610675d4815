"""Claims about the settings of the paper's experiments on datasets.

1. Both hyperparameter tables of Appendix D.6 are transcribed exactly: some values by hand, and all
   of them against the LaTeX source where it is at hand.
2. The columns of the two sensitivity tables change what the paper's do, starting from Adult's row.
3. Fewer epochs shorten warm-up and annealing alike; more do not stretch them.
4. Changes may be of the schedule and of the estimator's other parameters; others are refused.
5. "ours" differs from "paper" only in what ``OURS`` lists.
6. An unknown name is one sentence that lists the known ones.
7. What neither a table nor a row's record says is the first version's, whatever today's defaults.
"""

from __future__ import annotations

import json

import pytest

from paper.__main__ import known, known_datasets
from paper.datasets.catalogue import DATASETS
from paper.protocol import build_estimator
from paper.settings import (
    FIRST_VERSION,
    FULL,
    OURS,
    PAPER,
    SCHEDULES,
    SENSITIVITY,
    SETTINGS,
    Hyperparameters,
    Scale,
    Setting,
    first_version,
    paper_score,
    pretraining,
)
from paper.store import plain
from tests.paper.latex_tables import number, paper_source, table_lines
from varjepa.errors import InputError
from varjepa.settings import Architecture, Training


def shared_columns(row: Hyperparameters) -> list[float]:
    """The columns that both tables have, in their order."""
    return [
        row.batch,
        row.learning_rate,
        row.warm_up_epochs,
        *row.context_share,
        *row.target_share,
        row.targets,
        row.d,
        row.depth,
        row.heads,
        row.ff,
        row.dropout,
        row.predictor_width,
        row.predictor_heads,
        row.predictor_ff,
        row.predictor_dropout,
    ]


def test_some_hyperparameters_by_hand() -> None:
    adult, mnist, sim = PAPER["adult"], PAPER["mnist"], PAPER["sim"]
    assert (adult.batch, adult.learning_rate, adult.depth, adult.ff) == (512, 1e-3, 8, 256)
    assert (adult.alpha_kl_sx, adult.alpha_kl_z, adult.alpha_kl_sy) == (1e-4, 1e-6, 1e-5)
    assert PAPER["covertype"].anneal_epochs == (60, 60, 20)
    assert PAPER["electricity"].target_share == (0.15, 0.9)
    assert (mnist.batch, mnist.predictor_width, mnist.alpha_gen) == (256, 32, 0.1)
    assert (sim.depth, sim.heads, sim.learning_rate) == (16, 2, 5e-4)
    assert PAPER["credit_default"] == PAPER["bank_marketing"] == adult


def test_all_hyperparameters_against_the_source() -> None:
    source = paper_source()
    shorts = {info.short: name for name, info in DATASETS.items()}
    variational = table_lines(source, "tab:vtjepa_hparams")[1:]
    deterministic = table_lines(source, "tab:tjepa_hparams")[1:]
    assert [line[0] for line in variational] == [line[0] for line in deterministic] == list(shorts)
    for var, point in zip(variational, deterministic, strict=True):
        row = PAPER[shorts[var[0]]]
        weights = [row.alpha_kl_sx, row.alpha_kl_z, row.alpha_kl_sy]
        ends = [*weights, *row.anneal_epochs, row.alpha_rec, row.alpha_gen]
        assert [number(cell) for cell in var[1:]] == [*shared_columns(row), *ends]
        assert [number(cell) for cell in point[1:]] == [*shared_columns(row), row.ema]


def test_sensitivity_columns_against_the_source() -> None:
    source = paper_source()
    names = {
        "weights": ("alpha_kl_sx", "alpha_kl_sy", "alpha_rec", "alpha_gen"),
        "architecture": ("d", "depth", "predictor_ff", "learning_rate", "batch"),
    }
    labels = {
        "weights": "tab:adult_sensitivity_end_weights",
        "architecture": "tab:adult_sensitivity_arch",
    }
    for table, columns in SENSITIVITY.items():
        lines = table_lines(source, labels[table])
        assert lines[0][1:] == list(columns)
        for name, line in zip(names[table], lines[1:], strict=False):
            for cell, changes in zip(line[1:], columns.values(), strict=True):
                assert changes.get(name, getattr(PAPER["adult"], name)) == number(cell)
                assert set(changes) <= set(names[table])


def test_some_sensitivity_columns_by_hand() -> None:
    assert [len(columns) for columns in SENSITIVITY.values()] == [7, 7]
    assert SENSITIVITY["weights"]["Base"] == {}
    both = SENSITIVITY["weights"]["High KL + low recon."]
    assert (both["alpha_kl_sy"], both["alpha_rec"]) == (1e-4, 1e-2)
    assert SENSITIVITY["architecture"]["Narrow"] == {"d": 32, "predictor_ff": 128}


def test_fewer_epochs_shorten_the_schedule_and_more_do_not_stretch_it() -> None:
    whole = pretraining("covertype", "var_t_jepa", "paper", FULL)
    assert (whole.epochs, whole.warm_up_epochs, whole.anneal_epochs) == (200, 12, (60, 60, 20))
    half = pretraining("CO", "var_t_jepa", "paper", Scale(epochs=100))
    assert (half.warm_up_epochs, half.anneal_epochs) == (6, (30, 30, 10))
    more = pretraining("covertype", "var_t_jepa", "paper", Scale(epochs=400))
    assert (more.epochs, more.anneal_epochs) == (400, (60, 60, 20))
    assert pretraining("adult", "t_jepa", "paper", Scale(epochs=2)).check_every == 2


def test_models_depend_on_their_own_columns_only() -> None:
    point = pretraining("adult", "t_jepa", "paper", FULL).hyperparameters
    var = pretraining("adult", "var_t_jepa", "paper", FULL).hyperparameters
    assert point["ema"] == 0.996
    assert "alpha_rec" not in point
    assert "ema" not in var
    assert set(point) - {"ema"} < set(var)


@pytest.mark.parametrize("dataset", list(DATASETS))
def test_ours_differs_only_where_it_says_so(dataset: str) -> None:
    paper, ours = (plain(pretraining(dataset, "var_t_jepa", s, FULL)) for s in ("paper", "ours"))
    ours |= ours.pop("hyperparameters")
    paper |= paper.pop("hyperparameters")
    assert ours.keys() == paper.keys()
    ours |= ours.pop("open_details")
    paper |= paper.pop("open_details")
    changed = json.loads(json.dumps(dict(OURS[dataset])))
    assert {key for key in ours if ours[key] != paper[key]} <= set(changed)
    assert {key: ours[key] for key in changed} == changed


def test_changes_may_be_of_the_schedule_or_of_the_estimator() -> None:
    changes = {"epochs": 300, "depth": 2, "l_pool": 8, "scaling": "standard"}
    spec = pretraining("adult", "var_t_jepa", "paper", FULL, changes=changes)
    assert (spec.epochs, spec.hyperparameters["depth"]) == (300, 2)
    assert (spec.open_details["l_pool"], spec.open_details["scaling"]) == (8, "standard")
    known = build_estimator(spec, "cpu").get_params()
    assert (known["scaling"], known["training__epochs"]) == ("standard", 300)
    assert known["architecture__depth"] == 2
    with pytest.raises(ValueError, match="not a setting of t_jepa: \\['l_pool'\\]"):
        pretraining("adult", "t_jepa", "paper", FULL, changes={"l_pool": 8})


def test_every_dataset_has_a_row_a_schedule_and_a_score() -> None:
    assert set(PAPER) == set(SCHEDULES) == set(OURS) == set(DATASETS)
    assert paper_score("adult") == "posterior mean"
    assert paper_score("mnist") == paper_score("sim") == "posterior q90"


def test_unknown_names_are_one_sentence() -> None:
    assert known("predictor", ["b", "a"], ("a", "b", "c")) == ["a", "b"]
    assert known_datasets(["SIM", "adult"], quick=False) == ["adult", "sim"]
    with pytest.raises(InputError, match=r"^there is no predictor 'd'; known are a, b, c$"):
        known("predictor", ["d"], ("a", "b", "c"))
    with pytest.raises(InputError, match="there is no dataset 'iris'"):
        known_datasets(["iris"], quick=False)


# --- 7


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("dataset", list(DATASETS))
def test_estimators_are_the_first_versions(dataset: str, setting: Setting) -> None:
    said = {
        "batch_size", "epochs", "validate_every", "patience", "predictor_depth", "warm_up_share",
        "anneal_share", "rank_by", "standard_errors",
    }  # fmt: skip
    for model in ("var_t_jepa", "t_jepa"):
        spec = pretraining(dataset, model, setting, FULL)
        recorded = said | {*spec.hyperparameters, *spec.open_details}
        built = build_estimator(spec, "cpu").get_params()
        flat = {name.split("__")[-1]: value for name, value in built.items()}
        others = {name for name in FIRST_VERSION.keys() & flat.keys() if name not in recorded}
        assert {"optimiser", "schedule"} <= others
        assert {n: flat[n] for n in others} == {n: FIRST_VERSION[n] for n in others}
        if model == "var_t_jepa":
            new = {"numbers", "token_std", "latent_log_var", "alpha_prediction"}
            assert new <= others


def test_the_first_versions_defaults_can_be_changed() -> None:
    assert first_version(Training).optimiser == "adamw"
    changed = first_version(Architecture, d=32)
    assert (changed.d, changed.numbers, changed.imputer_depth) == (32, "gaussian", 3)
