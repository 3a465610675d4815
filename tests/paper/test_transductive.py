"""Claims about learning from all rows.

1. The labels of test rows change nothing; the probe that picks the moment is fitted on exactly the
   training rows and scored on exactly the validation rows.
2. Features of test rows are learned from: the codec knows a level that only they have.
3. The estimator is built as the setting says, and trained with its warm-up and annealing.
4. What was fitted can be saved, loaded, and embeds as before.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from paper.protocol import build_estimator, fit_on_all_rows
from paper.settings import FULL, Model, pretraining
from tests.paper.tiny import TINY
from varjepa.estimators import TJEPA, VarTJEPA, base, fitting
from varjepa.evaluate.splits import split_rows
from varjepa.training.loop import FilteredProbe

# trained for an epoch or two
pytestmark = pytest.mark.filterwarnings("ignore:the latents have collapsed")

ROWS = 200
SPLIT = split_rows(ROWS, 0)


def small_table() -> tuple[pa.Table, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 2))
    level = np.where(x[:, 0] > 0, "up", "down").astype(object)
    level[SPLIT.test[0]] = "only in a test row"
    return pa.table({"a": x[:, 0], "b": x[:, 1], "c": level}), (x[:, 0] > 0).astype(np.int64)


def fitted(labels: np.ndarray, model: Model = "var_t_jepa") -> Any:
    spec = replace(pretraining("sim", model, "paper", TINY), epochs=2, check_every=1)
    estimator = build_estimator(spec, "cpu").set_params(architecture__d=8)
    fit_on_all_rows(estimator, small_table()[0], labels, SPLIT)
    return estimator


@pytest.mark.parametrize("model", ["t_jepa", "var_t_jepa"])
def test_test_labels_change_nothing(model: Model) -> None:
    _, labels = small_table()
    spoilt = labels.copy()
    spoilt[SPLIT.test] = 1 - spoilt[SPLIT.test]
    honest, other = fitted(labels, model), fitted(spoilt, model)
    assert honest.best_epoch_ == other.best_epoch_
    for name, value in honest.model_.state_dict().items():
        assert torch.equal(value, other.model_.state_dict()[name])


def test_the_probe_sees_exactly_the_training_and_validation_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[FilteredProbe] = []

    class Spy(FilteredProbe):
        def score(self, loss: Any) -> float:
            seen.append(self)
            return super().score(loss)

    monkeypatch.setattr(fitting, "FilteredProbe", Spy)
    table, labels = small_table()
    for model, discard in (("t_jepa", 0.0), ("var_t_jepa", 0.2)):
        seen.clear()
        estimator = fitted(labels, model)  # type: ignore[arg-type]
        probe = seen[0]
        assert len(seen) == 2
        assert probe.train_labels.tolist() == labels[SPLIT.train].tolist()
        assert probe.validation_labels.tolist() == labels[SPLIT.validation].tolist()
        encoded = estimator.codec_.encode(table)
        assert torch.equal(probe.validation.num, encoded.num[SPLIT.validation])
        assert torch.equal(probe.train.num, encoded.num[SPLIT.train])
        assert probe.discard == discard
        assert probe.ranked_by == ("posterior", "q90")  # as the paper ranks rows of SIM


def test_features_of_test_rows_are_learned_from() -> None:
    table, labels = small_table()
    estimator = fitted(labels)
    row = int(SPLIT.test[0])
    assert estimator.codec_.encode(table.slice(row, 1)).observed is None
    assert "only in a test row" in estimator.codec_.categorical[0].levels.texts.to_pylist()


def test_estimators_are_the_settings() -> None:
    var = build_estimator(pretraining("electricity", "var_t_jepa", "paper", FULL), "cpu")
    assert isinstance(var, VarTJEPA)
    a, o, t = var.architecture, var.objective, var.training
    assert a is not None
    assert o is not None
    assert t is not None
    assert (a.depth, a.heads, a.ff, a.predictor_ff) == (6, 4, 64, 128)
    assert (o.context_share, o.target_share) == ((0.15, 0.6), (0.15, 0.9))
    assert (o.alpha_kl_sx, o.alpha_rec, o.alpha_gen) == (1e-6, 0.001, 0.25)
    assert (t.batch_size, t.learning_rate, t.epochs) == (512, 5e-4, 100)
    point = build_estimator(pretraining("mnist", "t_jepa", "paper", FULL, seed=3), "cpu")
    assert isinstance(point, TJEPA)
    known = point.get_params()
    assert known["objective__momentum"] == (0.996, 1.0)
    assert (known["architecture__predictor_width"], known["random_state"]) == (32, 3)


def test_warm_up_and_annealing_reach_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(Exception):  # noqa: N818
        pass

    got: list[Any] = []

    def train(objective: Any, source: Any, settings: Any, *_: Any, **__: Any) -> Any:
        got.append((len(source.rows), settings))
        raise Stop

    monkeypatch.setattr(base, "train", train)
    spec = pretraining("covertype", "var_t_jepa", "paper", FULL)
    estimator = build_estimator(spec, "cpu").set_params(architecture__d=8)
    table, labels = small_table()
    with pytest.raises(Stop):
        fit_on_all_rows(estimator, table, labels, SPLIT)
    rows, settings = got[0]
    assert rows == ROWS  # all of them
    assert settings.epochs == 200
    assert [200 * share for share in settings.anneal_share] == pytest.approx([60, 60, 20])
    assert 200 * settings.warm_up_share == pytest.approx(12)
    known = estimator.get_params()
    assert (known["objective__alpha_rec"], known["objective__alpha_gen"]) == (0.001, 0.5)


@pytest.mark.parametrize("model", ["t_jepa", "var_t_jepa"])
def test_what_was_fitted_can_be_loaded(tmp_path: Path, model: Model) -> None:
    table, labels = small_table()
    estimator = fitted(labels, model)
    estimator.save(tmp_path)
    loaded = type(estimator).load(tmp_path)
    assert (loaded.transform(table) == estimator.transform(table)).all()
