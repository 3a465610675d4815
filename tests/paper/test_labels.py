"""Claims about the study of few labels.

1. Every curve leaves one row per number of labels and seed; raw columns are not made twice for two
   settings; numbers of labels beyond the training rows are left out.
2. The embeddings are those of the downstream study: nothing is trained where it has run.
3. A finished study computes nothing and needs no data; further draws compute the new seeds alone.
4. A model reads the labels it was given and no others; draws are nested.
5. With labels enough a rule that only one representation shows is learned from it.
6. Labels of a single class are guessed, not refused.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paper import downstream, representations
from paper import labels as study
from paper import protocol as embeddings
from paper.downstream import DownstreamPlan
from paper.labels import (
    HELD_OUT,
    STEPS,
    FewLabels,
    LabelsPlan,
    linear_features,
    longer_training,
    standardised,
    take,
    training_of,
)
from paper.predictors.inputs import Inputs, RawFeatures, Tokens
from paper.predictors.training import PREDICTORS
from paper.settings import FULL
from tests.paper.tiny import TINY
from varjepa.errors import InputError, Interrupted
from varjepa.evaluate.predictors import labelled_rows, linear_guesses

# trained for an epoch or two
pytestmark = pytest.mark.filterwarnings("ignore:the latents have collapsed")

PLAN = LabelsPlan(datasets=("sim",), settings=("paper", "ours"), runs=2, scale=TINY)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The downstream study's embeddings, then the curves, with training switched off."""
    folder = tmp_path_factory.mktemp("labels")
    plan = DownstreamPlan(
        datasets=("sim",),
        representations=("var_t_jepa",),
        predictors=("linear_probe",),
        settings=("paper", "ours"),
        runs=1,
        scale=TINY,
    )
    downstream.run_downstream(folder, plan, "cpu")

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("trained again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embeddings, "fit_on_all_rows", never)
        study.run_labels(folder, PLAN, "cpu")
    return folder


def test_every_curve_leaves_its_rows(finished: Path) -> None:
    rows = study.open_labels(finished, TINY).rows
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        counts[row["representation"], row["setting"]] = (
            counts.get((row["representation"], row["setting"]), 0) + 1
        )
        assert row["labels"] in (50, 100)  # of 168 training rows
        assert 0 <= row["accuracy"] <= 1
        assert row["test_rows"] == 32
        assert row["environment"]["torch"]
    each = 3 * 2 * 2  # models, numbers of labels, draws
    assert counts == {
        ("raw", "paper"): each,
        ("var_t_jepa", "paper"): each,
        ("raw+var_t_jepa", "paper"): each,
        ("var_t_jepa", "ours"): each,
        ("raw+var_t_jepa", "ours"): each,
    }
    trees = {row["settings"]["adapter"] for row in rows if row["predictor"] == "xgboost"}
    assert trees == {None, "mean"}


def test_a_finished_study_computes_nothing(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[int]]] = []

    def spy(bench: Any, about: Any, sizes: Any, seeds: list[int]) -> Any:
        asked.append((about["predictor"], list(seeds)))
        raise KeyboardInterrupt

    def never(*_: Any) -> Any:
        raise AssertionError("loaded")

    monkeypatch.setattr(study, "run_curve", spy)
    monkeypatch.setattr(representations, "load_dataset", never)
    before = (finished / study.FILE).read_bytes()
    study.run_labels(finished, PLAN, "cpu")
    assert (finished / study.FILE).read_bytes() == before
    assert not asked
    with pytest.raises(Interrupted):
        study.run_labels(finished, replace(PLAN, runs=3), "cpu")
    assert asked == [("logistic", [2])]
    with pytest.raises(InputError, match=r"low_labels\.json holds results of other settings"):
        study.run_labels(finished, replace(PLAN, scale=replace(TINY, epochs=2)), "cpu")


def world(seed: int = 0) -> tuple[Inputs, np.ndarray, np.ndarray, np.ndarray]:
    """Raw columns say nothing, one coordinate of every token says it all."""
    rng = np.random.default_rng(seed)
    n = 600
    labels = (rng.random(n) < 0.5).astype(np.int64)
    tokens = torch.as_tensor(0.3 * rng.normal(size=(n, 3, 4)), dtype=torch.float32)
    tokens[:, :, 1] += 4.0 * torch.as_tensor(labels)[:, None] + 100.0
    inputs = Inputs(RawFeatures.from_numeric(rng.normal(size=(n, 5))), Tokens(tokens, True))
    rows = np.arange(n)
    return inputs, labels, rows[:400], rows[400:]


def few(labels: np.ndarray, size: int, seed: int = 0) -> tuple[FewLabels, np.ndarray]:
    inputs, _, train, test = world()
    order = labelled_rows(train, size, 0, seed)
    rows = np.concatenate([order, test])
    return FewLabels(take(standardised(inputs, train), rows), labels[rows], size), rows


@pytest.mark.parametrize("predictor", ["mlp", "xgboost"])
def test_only_the_given_labels_are_read(predictor: str) -> None:
    _, labels, _, test = world()
    honest, rows = few(labels, 60)
    guesses = honest.guess(predictor, 40, 0, TINY if predictor == "mlp" else FULL, "cpu")
    lies = labels.copy()
    lies[rows[40:]] = 1 - lies[rows[40:]]
    lied, _ = few(lies, 60)
    scale = TINY if predictor == "mlp" else FULL
    assert (lied.guess(predictor, 40, 0, scale, "cpu") == guesses).all()
    assert len(guesses) == len(test)


@pytest.mark.parametrize("predictor", ["logistic", "mlp", "xgboost"])
def test_what_an_embedding_shows_is_learned(predictor: str) -> None:
    inputs, labels, train, test = world()
    if predictor == "logistic":
        orders = [labelled_rows(train, 50, 0, 0)]
        [[guesses]] = linear_guesses(
            linear_features(inputs, train), labels, "classification", test, orders, [50]
        )
    else:
        guesses = few(labels, 50)[0].guess(predictor, 50, 0, FULL, "cpu")
    assert (guesses == labels[test]).mean() > 0.9


def test_draws_are_nested_and_differ() -> None:
    train = np.arange(500)
    assert (labelled_rows(train, 50, 0, 1) == labelled_rows(train, 100, 0, 1)[:50]).all()
    assert (labelled_rows(train, 50, 0, 1) != labelled_rows(train, 50, 0, 2)).any()


def test_labels_of_one_class_are_guessed() -> None:
    _, labels, _, test = world()
    single, _ = few(np.zeros_like(labels), 50)
    assert (single.guess("xgboost", 50, 0, FULL, "cpu") == np.zeros(len(test))).all()


def test_few_labels_train_as_many_steps() -> None:
    for labels in (50, 1000):
        training = training_of(FULL, labels)
        rows = labels - labels // HELD_OUT
        assert training.epochs * -(-rows // training.batch) >= STEPS
        assert training.epochs >= PREDICTORS["mlp"].training.epochs
    assert training_of(TINY, 50).epochs == 1


def test_few_rows_train_longer_and_many_as_the_paper() -> None:
    for kind in PREDICTORS.values():
        assert longer_training(kind.training, 50_000, 4000) == kind.training
        small = longer_training(kind.training, 100, 4000)
        assert small.batch == 16
        assert small.epochs * 7 >= 4000
        assert small.patience / small.epochs == pytest.approx(16 / kind.training.epochs, rel=0.05)
