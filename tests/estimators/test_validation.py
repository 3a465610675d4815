"""Claims about what ``fit`` takes besides a table.

1. ``validation`` as a table, as (table, labels) or as row numbers picks the checkpoint; a held-out
   row changes no weight, and the transductive protocol sees features of all rows and no label of
   those without. ``discard_share`` of the labelled rows, the most uncertain, do not count. Of many
   rows the probe learns from some and is scored on some, unless its rows are named.
2. ``on_epoch`` hears every epoch.
3. Labels that are many different integers are numbers: they pick nothing.
4. Embeddings in blocks are the embeddings; samples given a dict are of the fit's frame library.
5. A fit, a transform, an imputation and a save run through at most 30 files of the package, and
   read each table once.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import varjepa
from tests.small import small
from varjepa import TJEPA, Validation, VarTJEPA
from varjepa.errors import InputError
from varjepa.estimators import fitting
from varjepa.training.loop import FilteredProbe

TINY: dict[str, Any] = {
    "d": 8, "depth": 1, "heads": 2, "ff": 8, "predictor_width": 8, "predictor_depth": 1,
    "predictor_heads": 2, "predictor_ff": 8, "epochs": 2, "validate_every": 1, "random_state": 0,
}  # fmt: skip


def frame(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    size = rng.normal(size=rows)
    kind = np.where(size > 0, "large", "small")
    return pd.DataFrame({"size": size, "kind": kind, "noise": rng.normal(size=rows)})


def fit(X: Any, y: Any = None, kind: Any = VarTJEPA, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the latents have collapsed")
        return small(kind, **TINY).fit(X, y, **options)


def weights(model: Any) -> dict[str, Any]:
    return {name: weight.numpy() for name, weight in model.model_.state_dict().items()}


def assert_same_weights(one: Any, other: Any) -> None:
    for name, weight in weights(one).items():
        np.testing.assert_array_equal(weight, weights(other)[name])


# --- 1


def test_a_validation_table_is_not_trained_on() -> None:
    X = frame()
    one, other = (fit(X, validation=frame(20, seed)) for seed in (1, 2))
    assert one.history_[0]["loss"] == other.history_[0]["loss"]
    assert one.history_[0]["held-out cells"] != other.history_[0]["held-out cells"]
    assert one.codec_.to_json() == fit(X).codec_.to_json()


def test_validation_labels_pick_the_checkpoint() -> None:
    X, X_val = frame(), frame(20, 1)
    model = fit(X, X["size"] > 0, validation=(X_val, X_val["size"] > 0))
    assert model.selected_by_ == "filtered accuracy"
    by_rows = fit(
        pd.concat([X, X_val], ignore_index=True),
        np.r_[X["size"] > 0, X_val["size"] > 0],
        validation=Validation(np.arange(60, 80)),
    )
    # the codec of the second saw the validation rows too, so only the roles are the same
    assert by_rows.selected_by_ == model.selected_by_
    assert len(by_rows.history_) == len(model.history_)


def test_a_mask_and_row_numbers_are_the_same_rows() -> None:
    X = frame()
    mask = np.zeros(60, dtype=bool)
    mask[[3, 40, 41]] = True
    assert_same_weights(
        fit(X, validation=Validation(mask)), fit(X, validation=Validation(np.flatnonzero(mask)))
    )


def test_a_probe_of_many_rows_takes_some_of_any_place(monkeypatch: pytest.MonkeyPatch) -> None:
    probes: list[FilteredProbe] = []

    def score(self: FilteredProbe, loss: Any) -> float:
        probes.append(self)
        return 0.5

    monkeypatch.setattr(FilteredProbe, "score", score)
    monkeypatch.setattr(fitting, "SCORED_ROWS", 7)
    X, rows = frame(), np.arange(40, 60)
    for validation in (rows, rows[:7]):
        fit(X, X["kind"], validation=Validation(validation))
    fit(X, X["kind"], validation=Validation(rows, probe_rows=np.arange(40)))
    for probe, scored, learned in zip(probes[::2], (7, 7, 20), (1024, 1024, 8192), strict=True):
        assert len(probe.validation) == len(probe.validation_labels) == scored
        assert probe.probe.rows == learned  # at most
        pairs = zip(probe.validation.cat[:, 0], probe.validation_labels, strict=True)
        assert len({(int(kind), int(label)) for kind, label in pairs}) == 2  # rows keep their own
    assert not torch.equal(probes[0].validation.num, probes[2].validation.num)  # not the first 7


@pytest.mark.parametrize("kind", [VarTJEPA, TJEPA])
def test_the_transductive_protocol(kind: Any) -> None:
    X, y = frame(), (frame()["size"] > 0).to_numpy().astype(object)
    train, held_out, test = np.arange(30), np.arange(30, 45), np.arange(45, 60)
    known = y.copy()
    known[test] = None
    rows = Validation(held_out, probe_rows=train, held_out=False)
    model = fit(X, known, kind, validation=rows)
    every = fit(X, y, kind, validation=rows)  # labels outside both parts change nothing
    assert_same_weights(model, every)
    plain = fit(X, kind=kind, validation=Validation(held_out, held_out=False))
    assert plain.history_[0]["loss"] == model.history_[0]["loss"]  # all rows are trained on


@pytest.mark.parametrize(
    ("validation", "says"),
    [
        (Validation([60]), "row numbers below 60"),
        (Validation([]), "row numbers below 60"),
        (Validation([0.5]), "row numbers below 60"),
        (Validation(np.arange(60)), "leave no row to train on"),
        (Validation([0], probe_rows=[-1]), "probe_rows"),
        ((frame(5), [0, 1, 0, 1, 0]), "give both or none"),
        (frame(5)[["size"]], "no column"),
    ],
)
def test_wrong_validation_rows(validation: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        fit(frame(), validation=validation)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"run": "folder"}, "run must be a Run"),
        ({"validation": (1,)}, "validation must be a table"),
    ],
)
def test_wrong_arguments_of_fit_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        fit(frame(), **options)


# --- 2


def test_every_epoch_is_told() -> None:
    records: list[dict[str, Any]] = []
    model = fit(frame(), on_epoch=records.append)
    assert [record["epoch"] for record in records] == [1, 2]
    assert records == model.history_


def test_discarded_rows_do_not_count() -> None:
    """Accuracy is a multiple of one over the rows that count: 10, or 5 where half is discarded."""
    X, X_val = frame(), frame(10, 1)
    y, y_val = X["noise"] > 0, X_val["noise"] > 0
    for share, name, rows in ((0.0, "accuracy", 10), (0.5, "filtered accuracy", 5)):
        model = small(VarTJEPA, **TINY, discard_share=share)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the latents have collapsed")
            model.fit(X, y, validation=(X_val, y_val))
        assert model.selected_by_ == name
        for record in model.history_:
            assert round(rows * record[name], 4).is_integer()


# --- 3


def test_many_integers_are_not_classes() -> None:
    X = frame()
    model = fit(X, np.arange(60))
    assert model.selected_by_ == "held-out cells"
    assert_same_weights(model, fit(X))
    assert fit(X, np.arange(60) % 3).selected_by_ == "filtered accuracy"


# --- 4


def test_embeddings_in_blocks_are_the_embeddings() -> None:
    X = frame()
    for model in (fit(X), fit(X, kind=TJEPA), fit(X[["size", "noise"]].to_numpy())):
        rows = X if hasattr(model, "feature_names_in_") else X[["size", "noise"]].to_numpy()
        blocks = [block.mean for block in model.embed_blocks(rows, rows=25)]
        assert [len(block) for block in blocks] == [25, 25, 10]
        np.testing.assert_array_equal(np.concatenate(blocks), model.embed(rows).mean)
        with pytest.raises(InputError, match="rows"):
            next(model.embed_blocks(rows, rows=0))


def test_samples_given_a_dict_are_of_the_fits_library() -> None:
    for library in (pd.DataFrame, pl.DataFrame):
        model = fit(library(frame().to_dict("list")))
        assert isinstance(model.sample(3, given={"kind": ["large"]}), library)


# --- 5


def test_one_walk_passes_through_few_files(tmp_path: Path) -> None:
    X = frame()
    X.loc[3, "size"] = np.nan
    root = str(Path(varjepa.__file__).parent)
    files: set[str] = set()
    readings = 0

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            files.add(frame.f_code.co_filename[len(root) + 1 :])
            nonlocal readings
            readings += frame.f_code.co_name == "read_table"

    fit(X)  # imports are not part of the walk
    sys.setprofile(watch)
    try:
        model = fit(X)
        model.transform(X)
        model.impute(X)
        model.save(tmp_path / "model")
    finally:
        sys.setprofile(None)
    assert len(files) <= 30, sorted(files)
    assert readings == 3
