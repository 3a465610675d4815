"""Claims about predicted cells.

1. Frames are of the caller's library, with the table's columns in order; cells that nobody asked
   for are missing. Missing cells are predicted as ``impute`` fills them. ``repr`` is a line and
   says how many cells are predicted.
2. Known cells are predicted from the other columns alone: a cell's own value changes nothing.
3. Intervals of new rows cover what was asked for, and are narrower than the columns' own quantiles.
   Rounded ends hold what the unrounded ones held.
4. Levels have probabilities that sum to 1; the best one has the highest.
5. The calibration is saved, checked when read, and the same after a fit from files. Columns with
   few values lean on the others.
6. Sampled numbers keep what is special about their column: a spike its share and its exact value,
   a discrete column its values, a date its step and weekday. Numbers of half precision and tiny
   ones are sampled as well.
7. Gaussian numbers have intervals too.
8. A row is inconsistent where its columns speak against each other (log p(cell) minus
   log p(cell | others), in units of the column's entropy), doubtful (the default) if its values are
   also unlikely, unpredictable where its cells are undecided, atypical where they are unlikely,
   ambiguous between clusters. What that needs is saved, and checked when read.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.small import fit_small
from varjepa import VarTJEPA
from varjepa.errors import InputError
from varjepa.estimators.calibration import (
    COVERAGES,
    calibrate_levels,
    clusters_from_json,
    fit_clusters,
    level_for,
    levels_from_json,
)
from varjepa.estimators.cells import round_to

ROWS = 1200
NUMBERS = ["pages", "x", "y", "stars", "day"]
SMALL: dict[str, Any] = {
    "d": 32,
    "predictor_width": 32,
    "max_steps": 150,
    "random_state": 0,
    "device": "cpu",
}


def draw_table(rows: int = ROWS) -> pd.DataFrame:
    """A spike, two numbers that go together, a few values, Saturdays, two categories, one level."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=rows)
    saturday = np.datetime64("2020-01-04") + 7 * rng.integers(0, 100, rows)
    return pd.DataFrame(
        {
            "pages": np.where(rng.random(rows) < 0.69, 0.0, np.exp(rng.normal(size=rows) + x)),
            "x": x,
            "side": np.where(x + 0.2 * rng.normal(size=rows) > 0, "left", "right"),
            "y": x + 0.3 * rng.normal(size=rows),
            "stars": rng.choice([1, 2, 3, 4, 7], rows),
            "day": saturday.astype("datetime64[us]"),
            "town": rng.choice(["a", "b", "c"], rows),
            "same": "one",
        }
    )


@pytest.fixture(scope="module")
def model() -> VarTJEPA:
    return fit_small(VarTJEPA, draw_table()[:900], **SMALL)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return draw_table()[900:]


def with_missing(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    hidden = pd.DataFrame(
        np.random.default_rng(1).random(table.shape) < 0.2, table.index, table.columns
    )
    return table.mask(hidden), hidden


def test_missing_cells_are_those_of_impute(model: VarTJEPA, table: pd.DataFrame) -> None:
    asked, hidden = with_missing(table)
    found, filled = model.predict_cells(asked), model.impute(asked)
    for frame in (found.best, found.lower, found.upper, found.probability):
        assert list(frame.columns) == list(table.columns)
        assert frame.index.equals(table.index)
    assert repr(found).startswith(f"CellPredictions({hidden.to_numpy().sum():,} cells; .best")
    pd.testing.assert_frame_equal(found.best.notna(), hidden)
    pd.testing.assert_frame_equal(found.lower[NUMBERS].notna(), hidden[NUMBERS])
    assert found.lower[["side", "town", "same"]].isna().all(axis=None)
    categories = ["side", "town", "same"]
    pd.testing.assert_frame_equal(found.probability[categories].notna(), hidden[categories])
    assert found.probability[NUMBERS].isna().all(axis=None)
    for name in table:
        at = hidden[name]
        if name in ("pages", "x", "y"):
            np.testing.assert_allclose(found.best[name][at], filled[name][at], atol=1e-4)
        else:
            assert (found.best[name][at] == filled[name][at]).mean() > 0.98, name


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_frames_are_of_the_callers_library(model: VarTJEPA, table: pd.DataFrame, kind: str) -> None:
    asked: Any = pa.Table.from_pandas(with_missing(table)[0].head(20), preserve_index=False)
    if kind == "polars":
        asked = pl.from_arrow(asked)
    found = model.predict_cells(asked, cells="all")
    for frame in (found.best, found.lower, found.upper, found.probability, found.levels("town")):
        assert type(frame) is type(asked)
    names = found.best.columns if kind == "polars" else found.best.column_names
    assert list(names) == list(table.columns)


def test_a_known_cell_is_predicted_without_itself(model: VarTJEPA, table: pd.DataFrame) -> None:
    before = model.predict_cells(table.head(8), cells="all")
    other = table.head(8).assign(x=9.0, town="b", day=pd.Timestamp("2021-01-01"))
    for name in ("x", "town", "day"):
        after = model.predict_cells(table.head(8).assign(**{name: other[name]}), cells="all")
        pd.testing.assert_series_equal(before.best[name], after.best[name])
        pd.testing.assert_series_equal(before.upper[name], after.upper[name])
        assert not before.probability["side"].equals(after.probability["side"]) or name != "x"


def test_intervals_cover_and_are_narrow(model: VarTJEPA, table: pd.DataFrame) -> None:
    found = model.predict_cells(table, cells="all")
    inside = (found.lower[NUMBERS] <= table[NUMBERS]) & (table[NUMBERS] <= found.upper[NUMBERS])
    assert 0.84 < inside[["x", "y", "pages", "day"]].mean().mean() < 0.96
    assert inside.mean().min() > 0.82
    width = (found.upper["y"] - found.lower["y"]).mean()
    assert width < 0.6 * (table["y"].quantile(0.95) - table["y"].quantile(0.05))
    narrow = model.predict_cells(table, coverage=0.5, cells="all")
    assert (narrow.upper["y"] - narrow.lower["y"]).mean() < 0.7 * width


def test_a_value_of_many_digits_is_inside_its_interval() -> None:
    rng = np.random.default_rng(0)
    is_high = rng.random(300) < 0.5
    pair = np.where(is_high, 0.050680118739818, -0.044641636506989)
    frame = pd.DataFrame({"pair": pair, "x": is_high + 0.1 * rng.normal(size=300)})
    model = fit_small(VarTJEPA, frame, **SMALL)
    cells = model.predict_cells(frame, cells="all", coverage=0.9)
    inside = (cells.lower["pair"] <= frame["pair"]) & (frame["pair"] <= cells.upper["pair"])
    assert inside.mean() >= 0.9
    width = cells.upper["pair"] - cells.lower["pair"]
    assert (width < 2e-6).mean() > 0.5  # the value itself, to seven digits


def test_ends_are_rounded_outwards_and_short_numbers_kept() -> None:
    values = np.array([0.123456789, 0.05000000004, 0.0, -0.123456789])
    assert round_to(values, 7, np.rint).tolist() == [0.1234568, 0.05, 0.0, -0.1234568]
    assert round_to(values, 7, np.floor).tolist() == [0.1234567, 0.05, 0.0, -0.1234568]
    assert round_to(values, 7, np.ceil).tolist() == [0.1234568, 0.05, 0.0, -0.1234567]


def test_levels_have_probabilities(model: VarTJEPA, table: pd.DataFrame) -> None:
    found = model.predict_cells(table, cells="all")
    levels = found.levels("side")
    assert list(levels.columns) == ["left", "right"]
    np.testing.assert_allclose(levels.sum(axis=1), 1.0, atol=1e-5)
    assert (levels.idxmax(axis=1) == found.best["side"]).all()
    np.testing.assert_allclose(levels.max(axis=1), found.probability["side"], atol=1e-6)
    assert (found.best["side"] == table["side"]).mean() > 0.85
    with pytest.raises(InputError, match="'x' is no categorical column"):
        found.levels("x")


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1.0, float("nan")])
def test_a_coverage_that_cannot_be_is_refused(model: VarTJEPA, coverage: float) -> None:
    with pytest.raises(InputError, match="coverage must be above 0 and below 1"):
        model.predict_cells(draw_table(10), coverage=coverage)
    with pytest.raises(InputError, match="cells must be one of"):
        model.predict_cells(draw_table(10), cells="some")  # type: ignore[arg-type]


def test_the_calibration_is_saved_and_checked(model: VarTJEPA, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = VarTJEPA.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.calibration_, model.calibration_)
    assert loaded.calibration_.shape == (len(model.codec_.numeric), len(COVERAGES))
    config = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    good = config["calibration"]
    for bad, sentence in [
        (good[1:], "5 levels for each number"),
        ([one[1:] for one in good], "5 levels for each number"),
        ([one[::-1] for one in good], "ascending"),
        ([[2.0] * 5 for _ in good], "between 0 and 1"),
        ({}, "must be a JSON list"),
    ]:
        with pytest.raises(InputError, match=rf"config\.calibration.*{sentence}"):
            levels_from_json(len(good))(bad, "config.calibration")


def test_a_fit_from_files_calibrates_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from varjepa.estimators import fitting

    folder = tmp_path / "parts"
    folder.mkdir()
    pq.write_table(pa.Table.from_pandas(draw_table(300)), folder / "a.parquet", row_group_size=50)
    short = {**SMALL, "d": 8, "predictor_width": 8, "max_steps": 5}
    in_memory = fit_small(VarTJEPA, folder, **short)
    monkeypatch.setattr(fitting, "MAX_CELLS_IN_MEMORY", 10)
    streamed = fit_small(VarTJEPA, folder, **short)
    for fitted in (in_memory, streamed):
        assert fitted.calibration_.shape == (len(fitted.codec_.numeric), len(COVERAGES))
        assert ((fitted.calibration_ >= 0) & (fitted.calibration_ <= 1)).all()


def test_columns_with_few_values_lean_on_the_others() -> None:
    rng = np.random.default_rng(0)
    scores = np.full((2000, 3), np.nan)
    scores[:, 0] = rng.random(2000) ** 0.5  # a model that is too sure: .9 takes a level of .95
    scores[:3, 1] = 0.1
    levels = calibrate_levels(scores)
    at = COVERAGES.index(0.9)
    assert levels[0, at] == pytest.approx(0.95, abs=0.01)
    assert 0.8 < levels[1, at] < levels[0, at]
    assert levels[2, at] == pytest.approx(levels[0, at], abs=0.01)
    np.testing.assert_allclose(calibrate_levels(scores[:, 2:])[0], COVERAGES)
    np.testing.assert_allclose(level_for(levels, 0.9), levels[:, at])
    assert calibrate_levels(np.empty((5, 0))).shape == (0, len(COVERAGES))


def test_samples_keep_spikes_values_and_steps(model: VarTJEPA) -> None:
    drawn, real = model.sample(1500), draw_table()[:900]
    assert (drawn["pages"] == 0.0).mean() == pytest.approx((real["pages"] == 0.0).mean(), abs=0.05)
    assert set(drawn["stars"]) <= {1, 2, 3, 4, 7}
    assert (drawn["day"].dt.day_name() == "Saturday").all()
    assert (drawn["day"] == drawn["day"].dt.normalize()).all()
    assert (drawn["same"] == "one").all()


@pytest.mark.parametrize(
    ("kind", "unit"), [("float16", 1.0), ("float32", 1e-36), ("float64", 1e-300)]
)
def test_samples_of_short_and_tiny_numbers(kind: str, unit: float) -> None:
    values = np.random.default_rng(0).normal(size=(60, 2)) * unit
    frame = pd.DataFrame(values, columns=["a", "b"]).astype(kind)
    drawn = fit_small(VarTJEPA, frame, **{**SMALL, "max_steps": 2}).sample(40)
    assert list(drawn.dtypes) == list(frame.dtypes)
    assert not drawn.isna().any().any()
    assert drawn["a"].nunique() > 20
    assert drawn["a"].between(frame["a"].min(), frame["a"].max()).all()


def test_gaussian_numbers_have_intervals(table: pd.DataFrame) -> None:
    gaussian = fit_small(
        VarTJEPA, draw_table()[:900], **{**SMALL, "max_steps": 80}, numbers="gaussian"
    )
    found = gaussian.predict_cells(table, cells="all")
    inside = (found.lower["x"] <= table["x"]) & (table["x"] <= found.upper["x"])
    assert 0.82 < inside.mean() < 0.97


# --- uncertainty that answers a question


def test_the_default_asks_how_doubtful_a_row_is(model: VarTJEPA, table: pd.DataFrame) -> None:
    default = model.uncertainty(table)
    np.testing.assert_array_equal(default, model.uncertainty(table, "doubtful"))
    parts = (("inconsistent", "q75", 2), ("nll", "mean", 8))
    total = np.zeros(len(table))
    for kind, over, splits in parts:
        mean, std = model.doubt_[kind]
        part = model.uncertainty(table, kind, over, splits)  # type: ignore[arg-type]
        assert abs(float(part.mean()) - mean) < 0.3 * std  # rows that training did not have
        total += (part - mean) / std
    np.testing.assert_allclose(default, total, atol=1e-4)
    pd.testing.assert_frame_equal(
        model.cell_uncertainty(table), model.cell_uncertainty(table, "inconsistent")
    )
    wrong = table.assign(y=-2.5 * np.sign(table["x"]))
    assert model.uncertainty(wrong).mean() > default.mean() + 0.5


def test_columns_of_an_inconsistent_row_speak_against_each_other(
    model: VarTJEPA, table: pd.DataFrame
) -> None:
    default = model.uncertainty(table, "inconsistent")
    np.testing.assert_array_equal(default, model.uncertainty(table, "inconsistent", "q75"))
    mean = model.uncertainty(table, "inconsistent", "mean")
    assert mean.mean() < 0.0  # columns go together
    wrong = table.assign(y=-2.5 * np.sign(table["x"]))
    assert model.uncertainty(wrong, "inconsistent").mean() > default.mean() + 0.05
    cells = model.cell_uncertainty(table, "inconsistent")
    assert abs(cells["town"].mean()) < 0.1  # nothing speaks for or against it
    assert cells["side"].mean() < -0.2
    assert np.corrcoef(cells.drop(columns="same").mean(axis=1), mean)[0, 1] > 0.95
    assert model.cell_uncertainty(table.assign(x=np.nan), "inconsistent")["x"].isna().all()


@pytest.mark.parametrize("numbers", ["bins", "gaussian"])
def test_inconsistent_is_atypical_less_what_the_column_alone_says(numbers: str) -> None:
    few = draw_table(400)[["x", "stars", "side"]]
    model = fit_small(VarTJEPA, few, **SMALL | {"max_steps": 30}, numbers=numbers)
    less = model.cell_uncertainty(few, "atypical") - model.cell_uncertainty(few, "inconsistent")

    def relative(column: str) -> pd.Series:
        """−log share of each value, in units of the column's entropy."""
        nll = -np.log(few[column].map(few[column].value_counts(normalize=True)))
        return nll / nll.mean()

    np.testing.assert_allclose(less["side"], relative("side"), atol=0.1)
    if numbers == "gaussian":  # −log of a standard normal density, in units of its entropy
        off = (few["x"] - few["x"].mean()) / few["x"].std()
        normal = 0.5 * (off**2 + np.log(2 * np.pi)) / (0.5 * np.log(2 * np.pi * np.e))
        np.testing.assert_allclose(less["x"], normal, atol=0.15)
    else:  # five values, which are bins of their own
        np.testing.assert_allclose(less["stars"], relative("stars"), atol=0.15)


def test_a_row_is_unpredictable_where_its_cells_are_undecided(
    model: VarTJEPA, table: pd.DataFrame
) -> None:
    cells = model.cell_uncertainty(table, "unpredictable")
    assert list(cells.columns) == list(table.columns)
    assert cells["town"].mean() > 0.9  # nothing says which
    assert cells["side"].mean() < 0.7
    assert 0.0 < cells["y"].mean() < 0.95
    undecided = table.assign(x=np.nan, y=np.nan)
    known = model.uncertainty(table, "unpredictable")
    assert model.uncertainty(undecided, "unpredictable").mean() > known.mean() + 0.02


def test_wrong_cells_are_atypical(model: VarTJEPA, table: pd.DataFrame) -> None:
    wrong = table.assign(y=-2.5 * np.sign(table["x"]))
    assert model.uncertainty(wrong, "atypical").mean() > model.uncertainty(table, "atypical").mean()
    cells = model.cell_uncertainty(wrong, "atypical")
    assert cells["y"].mean() > 1.5 * model.cell_uncertainty(table, "atypical")["y"].mean()
    assert model.cell_uncertainty(table.assign(x=np.nan), "atypical")["x"].isna().all()


def test_rows_between_clusters_are_ambiguous() -> None:
    rng = np.random.default_rng(0)
    centres = 4.0 * rng.normal(size=(5, 8))
    points = centres[rng.integers(0, 5, 1000)] + rng.normal(size=(1000, 8))
    clusters = fit_clusters(points.astype(np.float32), 0)
    assert [len(mixture.log_weight) for mixture in clusters.mixtures] == [5, 8, 12, 20]
    between = torch.tensor((centres[:-1] + centres[1:]) / 2).unsqueeze(1)
    inside = clusters.ambiguity(torch.tensor(points).unsqueeze(1))
    assert ((inside >= 0.0) & (inside <= 1.0)).all()
    first = replace(clusters, mixtures=clusters.mixtures[:1])
    assert first.ambiguity(torch.tensor(points).unsqueeze(1)).median() < 0.01
    assert clusters.ambiguity(between).median() > inside.median()


def test_ambiguity_is_a_rows_alone(model: VarTJEPA, table: pd.DataFrame) -> None:
    assert model.uncertainty(table, "ambiguous").shape == (len(table),)
    with pytest.raises(InputError, match="kind must be one of"):
        model.cell_uncertainty(table, "ambiguous")


def test_questions_come_back_from_a_model_folder(
    model: VarTJEPA, table: pd.DataFrame, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    loaded = VarTJEPA.load(tmp_path / "model")
    several = [("ambiguous", "mean"), ("doubtful", "mean"), ("atypical", "q90"), ("nll", "mean")]
    for kind, over in several:
        np.testing.assert_array_equal(
            loaded.uncertainty(table, kind, over), model.uncertainty(table, kind, over)
        )
    both = model.uncertainties(table, several)
    np.testing.assert_array_equal(both["atypical q90"], model.uncertainty(table, "atypical", "q90"))
    config = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    good = config["clusters"]
    for bad in (
        {**good, "centre": good["centre"][1:]},
        {**good, "components": []},
        {**good, "components": good["components"][1:]},
        {**good, "mixtures": good["mixtures"] * 5},
        {**good, "mixtures": [{**good["mixtures"][0], "mean": [[0.0]]}]},
        {**good, "mixtures": [{**good["mixtures"][0], "log_weight": [0.0]}]},
        {**good, "more": 1},
    ):
        with pytest.raises(InputError, match=r"config\.clusters"):
            clusters_from_json(SMALL["d"])(bad, "config.clusters")


def test_few_rows_have_no_clusters() -> None:
    few = fit_clusters(np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32), 0)
    assert few.mixtures == ()
    assert (few.ambiguity(torch.zeros(3, 2, 4)) == 0.0).all()
    alike = fit_clusters(np.ones((200, 4), dtype=np.float32), 0)
    assert alike.ambiguity(torch.ones(3, 2, 4)).isfinite().all()
