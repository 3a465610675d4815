"""Claims about outlier scores and OutlierDetector.

1. The distance is what its formula says: numbers in standard deviations, levels by their rarity, to
   the 20th nearest row; a copy of a kept row lies at 0 from it.
2. On a mixed table with dates, text and missing cells, planted outliers have the highest scores:
   in numbers, in rare levels, in cells that do not go together, and also if ten are alike.
3. Missing cells, unseen levels and rows without any cell raise no score. A row's score does not
   depend on the rows that come with it.
4. A model folder gives the same scores to the last bit. It holds at most 2,048 rows and 131,072
   cells, and nothing of columns that are not modelled. ``forget_rows`` leaves no row in it, and
   the card says none; then the score is "atypical" alone.
5. Kept rows of wrong shape or values are refused in one sentence.
6. OutlierDetector is a scikit-learn outlier detector: its checks pass. ``contamination`` is the
   share of training rows it calls outliers. A frozen model is taken as it is.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.hostile.model_mutations import sign
from tests.small import fit_small, small
from varjepa import OutlierDetector, VarTJEPA
from varjepa.errors import InputError
from varjepa.estimators import calibration
from varjepa.estimators.calibration import (
    FLOOR,
    MAX_CELLS,
    MAX_ROWS,
    Neighbours,
    Units,
    neighbours_from_json,
    rows_to_keep,
)
from varjepa.model_folder import ModelFileError
from varjepa.tables.codec import EncodedTable

SMALL: dict[str, Any] = {
    "d": 8, "depth": 1, "heads": 2, "ff": 8, "predictor_width": 8, "predictor_depth": 1,
    "predictor_heads": 2, "predictor_ff": 8, "device": "cpu", "random_state": 0,
}  # fmt: skip


def table(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """Two numbers that go together, a category, a date and free text; some cells are missing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    frame = pd.DataFrame(
        {
            "x": x,
            "y": x + 0.1 * rng.normal(size=rows),
            "kind": rng.choice(["a", "b", "rare"], rows, p=[0.6, 0.39, 0.01]),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), "D"),
            "note": [f"secret words of person {i} and more" for i in range(rows)],
        }
    )
    for place, name in enumerate(["x", "kind", "day"]):
        frame.loc[(np.arange(rows) % 12 == place) & (np.arange(rows) < 500), name] = None
    return frame


@pytest.fixture(scope="module")
def model() -> VarTJEPA:
    return fit_small(VarTJEPA, table(), **SMALL, max_steps=60)


# --- 1


def encoded(num: Any, cat: Any) -> EncodedTable:
    return EncodedTable(
        torch.tensor(num, dtype=torch.float32), torch.tensor(cat, dtype=torch.long), None
    )


def test_distances_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    units = Units(torch.tensor([2.0]), (torch.tensor([0.0, 1 / 0.9, 1 / 0.1]),))
    kept = Neighbours.keep(np.array([[0.0, 1], [1.0, 1], [4.0, 2]], dtype=np.float32), numeric=1)
    rows = encoded([[0.0], [6.0], [8.0]], [[1], [1], [2]])
    rare = 1 / 0.9 + 1 / 0.1  # squared, for levels that differ
    for place, squared in (
        (1, [0.0, 4.0, 0.0]),
        (2, [1.0, 9.0, 9.0 + rare]),
        (3, [16.0 + rare, 1.0 + rare, 16.0 + rare]),
        (4, [16.0 + rare, 1.0 + rare, 16.0 + rare]),  # fewer rows than asked for: the farthest
    ):
        monkeypatch.setattr(calibration, "NEIGHBOUR", place)
        wanted = np.log(FLOOR + np.sqrt(squared))
        np.testing.assert_allclose(kept.log_distance(rows, units).numpy(), wanted, rtol=1e-5)


def test_a_copy_of_a_training_row_is_near(model: VarTJEPA, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "NEIGHBOUR", 1)
    distance = model.outlier_parts(table())["distance"]
    # nine of ten rows are trained on and kept; kept numbers have five digits
    assert np.mean(distance < np.log(FLOOR + 1e-3)) == pytest.approx(0.9, abs=0.01)


# --- 2


@pytest.mark.parametrize(
    "change",
    [{"x": 8.0, "y": 8.0}, {"kind": "rare"}, {"day": pd.Timestamp("2035-01-01")}],
    ids=["far numbers", "a rare level", "a far day"],
)
def test_planted_outliers_score_high(model: VarTJEPA, change: dict[str, Any]) -> None:
    usual = table(200, seed=1)
    usual["kind"] = usual["kind"].where(usual["kind"] != "rare", "a")
    scores = [model.outlier_score(rows) for rows in (usual, usual.iloc[-50:].assign(**change))]
    flags = np.repeat([0, 1], [200, 50])
    assert roc_auc_score(flags, np.concatenate(scores)) > 0.95


def test_cells_that_do_not_go_together_and_groups_score_high() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    usual = pd.DataFrame({"x": x, "y": x + 0.1 * rng.normal(size=500)})
    odd = pd.DataFrame({"x": np.full(10, 1.5), "y": -1.5 + 0.01 * rng.normal(size=10)})
    rows = pd.concat([usual, odd], ignore_index=True)
    scores = fit_small(VarTJEPA, rows, **SMALL, max_steps=60).outlier_score(rows)
    assert roc_auc_score(np.repeat([0, 1], [500, 10]), scores) > 0.98


# --- 3


def test_missing_cells_raise_no_score(model: VarTJEPA) -> None:
    usual = table(200, seed=1)
    scores = model.outlier_score(usual)
    assert np.isfinite(scores).all()
    with pytest.warns(UserWarning, match="treated as missing"):
        unseen = model.outlier_score(usual.assign(kind="never seen"))
    missing = model.outlier_score(usual.assign(kind=None))
    np.testing.assert_array_equal(unseen, missing)
    nothing = model.outlier_score(pd.DataFrame({name: [None] for name in usual}))
    assert np.isfinite(nothing).all()
    for fewer in (missing, nothing):
        assert fewer.mean() < scores.mean() + scores.std()


def test_rows_are_scored_one_by_one(model: VarTJEPA) -> None:
    """Over two blocks; the second has no missing cell, the first does."""
    rows = table()
    assert not rows.iloc[512:].isna().any().any()
    scores = model.outlier_score(rows)
    for place in (0, 1, 2, 3, 511, 512, 599):
        alone = model.outlier_score(rows.iloc[[place]])[0]
        assert alone == pytest.approx(scores[place], abs=1e-4)


# --- 4


def test_a_folder_gives_the_same_scores(model: VarTJEPA, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = VarTJEPA.load(tmp_path / "model")
    rows = table(100, seed=1)
    np.testing.assert_array_equal(loaded.outlier_score(rows), model.outlier_score(rows))
    content = b"".join(path.read_bytes() for path in (tmp_path / "model").iterdir())
    assert b"secret" not in content
    assert len(json.loads((tmp_path / "model" / "config.json").read_bytes())["neighbours"]["num"])


def test_forgotten_rows_leave_no_trace(model: VarTJEPA, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    forgetful = VarTJEPA.load(tmp_path / "model").forget_rows()
    forgetful.save(tmp_path / "without")
    config = json.loads((tmp_path / "without" / "config.json").read_bytes())
    assert config["neighbours"]["num"] == config["neighbours"]["cat"] == []
    cards = [(tmp_path / name / "README.md").read_text() for name in ("model", "without")]
    assert ["training rows, coded" in card for card in cards] == [True, False]
    loaded, rows = VarTJEPA.load(tmp_path / "without"), table(100, seed=1)
    np.testing.assert_array_equal(loaded.outlier_score(rows), forgetful.outlier_score(rows))
    assert list(loaded.outlier_parts(rows)) == ["atypical"]
    atypical = model.uncertainty(rows, "atypical")
    np.testing.assert_array_equal(np.argsort(loaded.outlier_score(rows)), np.argsort(atypical))
    np.testing.assert_array_equal(loaded.transform(rows), model.transform(rows))


def test_few_rows_are_kept() -> None:
    assert rows_to_keep(1) == rows_to_keep(64) == MAX_ROWS == 2048
    assert rows_to_keep(784) * 784 <= MAX_CELLS
    assert rows_to_keep(10**6) == 1
    X = np.random.default_rng(0).normal(size=(2600, 2))
    kept = fit_small(VarTJEPA, X, **SMALL, max_steps=2).neighbours_
    assert len(kept) == 2048


# --- 5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda n: n["num"].pop(), r"neighbours\.cat must have the shape"),
        (lambda n: n["num"][3].pop(), r"neighbours\.num must have the shape"),
        (lambda n: n["num"][3].append(0.0), r"neighbours\.num must have the shape"),
        (lambda n: n["num"].__setitem__(3, 0.0), r"neighbours\.num\[3\] must be a JSON list"),
        (lambda n: n["num"][3].__setitem__(0, 1e39), r"neighbours\.num must be finite"),
        (lambda n: n["num"][3].__setitem__(0, "x"), r"neighbours\.num\[3\]\[0\] must be a finite"),
        (lambda n: n["cat"][3].__setitem__(0, 99), "levels that the codec does not have"),
        (lambda n: n["cat"][3].__setitem__(0, -1), "levels that the codec does not have"),
        (lambda n: n["cat"][3].__setitem__(0, 0.5), "must be an integer"),
        (lambda n: n.pop("cat"), "neighbours lacks 'cat'"),
        (lambda n: n.update(more=1), "unknown keys"),
        (lambda n: n.update(scale=[]), r"scale must be a JSON object"),
        (lambda n: n["scale"].pop("atypical"), "scale lacks 'atypical'"),
        (lambda n: n["scale"].update(atypical=[0.0]), "a mean and a standard deviation"),
        (lambda n: n["scale"].update(atypical=[0.0, 0.0]), "a mean and a standard deviation"),
        (lambda n: n["scale"].update(distance=[1e300, 1.0]), "a mean and a standard deviation"),
    ],
)
def test_hostile_rows_are_refused(
    model: VarTJEPA, tmp_path: Path, change: Callable[[Any], Any], says: str
) -> None:
    model.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_bytes())
    change(config["neighbours"])
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    sign(tmp_path)
    with pytest.raises(ModelFileError, match=says) as refused:
        VarTJEPA.load(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("numeric", "most"), [(2, MAX_ROWS), (128, MAX_CELLS // 128)])
def test_too_many_rows_are_refused(numeric: int, most: int) -> None:
    check = neighbours_from_json(numeric, ())
    scale = {"distance": [0.0, 1.0], "atypical": [0.0, 1.0]}

    def rows(count: int) -> dict[str, Any]:
        return {"num": [[0.0] * numeric] * count, "cat": [[]] * count, "scale": scale}

    assert len(check(rows(most), "here")) == most
    with pytest.raises(InputError, match=f"here must have at most {most} rows"):
        check(rows(most + 1), "here")


# --- 6


@parametrize_with_checks([OutlierDetector(small(VarTJEPA, **SMALL, epochs=2))])
def test_scikit_learn_checks(
    estimator: OutlierDetector, check: Callable[[OutlierDetector], None]
) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the latents have collapsed")
        check(estimator)


@pytest.mark.parametrize("contamination", [0.01, 0.1, 0.5])
def test_contamination_is_a_share_of_the_training_rows(
    model: VarTJEPA, contamination: float
) -> None:
    rows = table()
    detector = OutlierDetector(FrozenEstimator(model), contamination=contamination).fit(rows)
    found = detector.predict(rows)
    assert np.mean(found == -1) == pytest.approx(contamination, abs=0.005)
    np.testing.assert_array_equal(detector.score_samples(rows), -model.outlier_score(rows))
    np.testing.assert_array_equal(found == -1, detector.decision_function(rows) < 0)


def test_models_of_the_detector(model: VarTJEPA) -> None:
    rows = table(100)
    frozen = OutlierDetector(FrozenEstimator(model)).fit(rows)
    assert frozen.estimator_ is model
    first, again = (
        OutlierDetector(
            small(VarTJEPA, **{**SMALL, "random_state": None}, epochs=2), random_state=s
        )
        for s in (0, 1)
    )
    np.testing.assert_array_equal(
        first.fit(rows).score_samples(rows), clone(first).fit(rows).score_samples(rows)
    )
    assert not np.array_equal(first.score_samples(rows), again.fit(rows).score_samples(rows))
    with pytest.raises(InputError, match="must be a VarTJEPA, not int"):
        OutlierDetector(3).fit(np.zeros((3, 2)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be a VarTJEPA, not IsolationForest"):
        OutlierDetector(IsolationForest()).fit(rows)
    shares: tuple[Any, ...] = (0.0, 0.6, float("nan"), "auto")
    for share in shares:
        with pytest.raises(InputError, match=r"contamination must be in \(0, 0\.5\]"):
            OutlierDetector(contamination=share).fit(rows)
    with pytest.raises(NotFittedError):
        VarTJEPA().outlier_score(rows)
    with pytest.raises(NotFittedError):
        VarTJEPA().forget_rows()
