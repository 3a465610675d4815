"""Claims about TJEPA.

1. It is a scikit-learn transformer, with no expected failures.
2. Same seed, same weights; save → load → identical embeddings, and no other estimator's folder.
3. Training lowers the loss; embeddings are the target encoder's, which has moved.
4. Labels pick the checkpoint by plain accuracy; without, the held-out objective does.
5. The history shows scale and spread of the targets; a planted collapse rings the alarm.
6. Skipped steps leave every weight finite.
7. Column order does not matter; missing cells, a row without any, and single columns work.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.small import small
from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.metrics.collapse import diagnose_collapse
from varjepa.model_folder import ModelFileError
from varjepa.models.t_jepa import TJepa, embed_points
from varjepa.nn.layers import TableShape
from varjepa.randomness import seeded_weights
from varjepa.settings import PointArchitecture, PointObjective, Training
from varjepa.tables.codec import EncodedTable
from varjepa.training.loop import HeldOutLoss, Selection, train
from varjepa.training.losses import TJepaLoss

SMALL: dict[str, Any] = {
    "d": 8, "depth": 1, "heads": 2, "ff": 8, "predictor_width": 8, "predictor_depth": 1,
    "predictor_heads": 2, "predictor_ff": 8, "epochs": 2, "validate_every": 1,
}  # fmt: skip


@parametrize_with_checks([small(TJEPA, **SMALL)])
def test_scikit_learn_checks(estimator: TJEPA, check: Callable[[TJEPA], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def frame(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    size = rng.normal(size=n)
    return pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, size),
            "twice": 2 * size,
            "sign": np.where(size > 0, "plus", "minus"),
            "colour": rng.choice(["red", "green", None], n),
        }
    )


def fitted(X: Any, y: Any = None, **more: Any) -> TJEPA:
    return small(TJEPA, **{**SMALL, "random_state": 0, **more}).fit(X, y)


@pytest.fixture(scope="module")
def model() -> TJEPA:
    return fitted(frame())


@pytest.mark.parametrize(("output", "width"), [("flat", 32), ("mean", 8), ("cls", 8)])
def test_names_match_columns(output: str, width: int) -> None:
    model = fitted(frame(), output=output).set_output(transform="pandas")
    table = model.transform(frame())
    assert table.shape == (80, width)
    assert list(table.columns) == list(model.get_feature_names_out())
    assert len(set(table.columns)) == width


def test_tokens(model: TJEPA) -> None:
    tokens = model.embed(frame())
    assert tokens.mean.shape == (80, 4, 8)
    assert tokens.features == tuple(feature.name for feature in model.codec_.features)
    np.testing.assert_array_equal(tokens.mean.reshape(80, -1), model.transform(frame()))


def test_embeddings_come_from_the_target_encoder(model: TJEPA) -> None:
    inner = model.model_
    assert not torch.equal(inner.target_encoder.cls, inner.context_encoder.cls)
    changed = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        for parameter in changed.model_.context_encoder.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(changed.transform(frame()), model.transform(frame()))
    with torch.no_grad():
        changed.model_.target_encoder.cls.add_(torch.arange(8.0))
    assert not np.allclose(changed.transform(frame()), model.transform(frame()))


def test_same_seed_same_weights(model: TJEPA) -> None:
    again = fitted(frame())
    for name, weight in model.model_.state_dict().items():
        assert torch.equal(weight, again.model_.state_dict()[name]), name
    other = fitted(frame(), random_state=1)
    assert not np.array_equal(other.transform(frame()), model.transform(frame()))


def test_saved_models_answer_the_same(model: TJEPA, tmp_path: Path) -> None:
    model.save(tmp_path)
    loaded = TJEPA.load(tmp_path)
    np.testing.assert_array_equal(loaded.transform(frame()), model.transform(frame()))
    assert loaded.objective.momentum == (0.996, 1.0)
    assert loaded.model_.settings == model.model_.settings
    assert loaded.collapse_ == model.collapse_
    assert loaded.history_ == model.history_
    with pytest.raises(ModelFileError, match="holds a TJEPA, not a VarTJEPA"):
        VarTJEPA.load(tmp_path)


def test_training_lowers_the_loss() -> None:
    model = fitted(frame(200), epochs=30, validate_every=30, learning_rate=3e-3)
    losses = [record["loss"] for record in model.history_]
    assert losses[-1] < 0.5 * losses[0]
    for name in ("scale", "spread"):
        assert all(record[name] > 0 for record in model.history_)


def test_labels_pick_the_checkpoint_by_plain_accuracy() -> None:
    X = frame()
    by_probe, by_objective = fitted(X, X["sign"]), fitted(X, X["twice"])
    assert by_probe.selected_by_ == "accuracy"
    assert by_objective.selected_by_ == "held-out objective"
    scores = [record["accuracy"] for record in by_probe.history_]
    assert scores[by_probe.best_epoch_ - 1] == max(scores)


def test_column_order_does_not_matter(model: TJEPA) -> None:
    X = frame()
    np.testing.assert_array_equal(model.transform(X[X.columns[::-1]]), model.transform(X))


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}),
        pd.DataFrame({"a": np.arange(30.0)}),
        pd.DataFrame({"k": list("abc") * 10}),
        pd.DataFrame({"a": [np.nan] * 30, "b": np.arange(30), "c": [None] * 30}),
        pd.DataFrame({"a": [np.nan, *range(29)], "b": [np.nan, *range(29)]}),
    ],
    ids=["two rows", "one number", "one category", "all missing", "an empty row"],
)
def test_odd_tables(table: pd.DataFrame) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(fitted(table).transform(table)).all()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"output": "round"}, "output must be one of"),
        ({"d": 7}, "must be a multiple"),
        ({"momentum": (0.9, 1.1)}, "momentum"),
        ({"n_aux": -1}, "n_aux"),
    ],
)
def test_wrong_parameters_are_named(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fitted(frame(), **wrong)


SHAPE = TableShape(4)
SETTINGS = Training(epochs=20, batch_size=64, learning_rate=3e-3, validate_every=5)


def objective(seed: int = 0, momentum: tuple[float, float] = (0.996, 1.0)) -> TJepaLoss:
    settings = PointArchitecture(
        d=8, depth=1, heads=2, ff=16, predictor_width=8, predictor_depth=1, predictor_heads=2,
        predictor_ff=16,
    )  # fmt: skip
    with seeded_weights(seed):
        return TJepaLoss(TJepa(SHAPE, settings), PointObjective(targets=4, momentum=momentum))


def unrelated(n: int = 256) -> EncodedTable:
    num = torch.rand(n, 4, generator=torch.Generator().manual_seed(0))
    return EncodedTable(num, torch.empty(n, 0, dtype=torch.long), None)


def test_a_planted_collapse_rings_and_is_diagnosed() -> None:
    """Unrelated columns and a target that follows at once: the best answer is a constant one."""
    rows, settings = unrelated(), replace(SETTINGS, epochs=100, learning_rate=1e-2, patience=99)

    class Latest(Selection):
        name = "latest"
        looks = 0.0

        def score(self, loss: Any) -> float:
            self.looks += 1
            return self.looks

    healthy, planted = objective(), objective(momentum=(0.5, 0.5))
    kept = train(healthy, rows, replace(settings, epochs=1), Latest(), 0)
    assert not kept.collapse.collapsed, kept.collapse
    lost = train(planted, rows, settings, Latest(), 0)
    assert lost.collapse.collapsed, lost.collapse
    assert lost.history[-1]["spread"] < 0.1 * lost.history[0]["spread"]
    before, after = (
        diagnose_collapse(embed_points(o.model, rows).numpy()) for o in (healthy, planted)
    )
    assert before.silent_share == 0.0
    assert after.silent_share > 0.5
    assert after.varying_share < 0.1 * before.varying_share
    assert after.scale == pytest.approx(before.scale, rel=0.5)  # it is not a matter of scale


def test_skipped_steps_leave_finite_weights() -> None:
    rows = unrelated()
    rows.num[7, 1] = float("nan")
    trained = objective()
    selection = HeldOutLoss(unrelated(), 0)
    result = train(trained, rows, replace(SETTINGS, epochs=3), selection, 0)
    assert result.skipped_steps == 3  # one batch of each epoch holds the row
    assert all(p.isfinite().all() for p in trained.model.parameters())
