"""Claims about similar rows.

1. Two rows that differ in nothing have distance 0, are each other's nearest, and no row of a table
   is its own neighbour; the same rows in another table do find themselves. Row numbers give what
   all rows give, also where a row has many copies.
2. Neighbours are exact and in order: the same as by all distances, computed by hand. All columns
   count alike whatever their unit, constant ones nothing; a table's rows have a mean squared
   distance of 1. Numbers count by rank, so that a far one changes nothing for the others.
3. Rows of a cluster have neighbours of that cluster; missing cells and unseen levels do no harm.
4. The result is a frame of the query's library with k rows a row.
5. A wrong k, an empty query and a column that is missing are refused in one sentence. The command
   gives the same, for all rows, for one row and for rows of another file, and refuses the rest.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.cli.test_shell import Captured, assert_refused, run
from tests.small import small
from varjepa import VarTJEPA
from varjepa.errors import InputError
from varjepa.estimators.similar import WEIGHTS, nearest_rows, to_ranks, view_scales

SMALL = {
    "d": 8, "depth": 1, "heads": 2, "ff": 8, "predictor_width": 8, "predictor_depth": 1,
    "predictor_heads": 2, "predictor_ff": 8, "epochs": 2, "validate_every": 1, "random_state": 0,
}  # fmt: skip


def clusters(n: int = 60) -> pd.DataFrame:
    """Even rows are low and red, odd ones high and blue; row n − 1 is row n − 3 once more."""
    rng = np.random.default_rng(0)
    side = np.arange(n) % 2
    frame = pd.DataFrame(
        {
            "size": 8.0 * side + rng.normal(size=n),
            "weight": 1e6 * (8.0 * side + rng.normal(size=n)),
            "colour": np.where(side, "blue", "red"),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, n), "D"),
        }
    )
    frame.loc[n - 1] = frame.loc[n - 3]
    return frame


@pytest.fixture(scope="module")
def model() -> VarTJEPA:
    return small(VarTJEPA, **SMALL).fit(clusters())


def test_twins_and_no_row_is_its_own_neighbour(model: VarTJEPA) -> None:
    X = clusters()
    found = model.similar(X, k=3)
    assert (found["query"] != found["row"]).all()
    first = found[found["rank"] == 1].set_index("query")
    assert first.loc[59, "row"] == 57
    assert first.loc[57, "row"] == 59
    assert first.loc[59, "distance"] == pytest.approx(0.0, abs=1e-3)
    pd.testing.assert_frame_equal(found, model.similar(X, X, k=3))
    copies = model.similar(X, X.copy(), k=1)
    twins = {57, 59}
    pairs = zip(copies["query"], copies["row"], strict=True)
    assert all(q == r or {q, r} == twins for q, r in pairs)
    assert copies["distance"].max() < 1e-3


def test_row_numbers_give_what_all_rows_give(model: VarTJEPA) -> None:
    X = clusters()
    every = model.similar(X, k=59)
    for numbers in ([57, 0, 57], range(3), np.array([59])):
        found = model.similar(X, numbers, k=59)
        assert found["query"].tolist() == np.repeat(list(numbers), 59).tolist()
        wanted = pd.concat([every[every["query"] == i] for i in numbers])
        np.testing.assert_allclose(found["distance"], wanted["distance"], atol=1e-5)
        assert (found["query"] != found["row"]).all()
        assert (found.groupby("query")["row"].nunique() == 59).all()
    same = pd.concat([X.head(1)] * 9, ignore_index=True)
    found = model.similar(same, list(range(9)), k=2)
    assert (found["query"] != found["row"]).all()
    assert len(found) == 18


def test_neighbours_are_exact() -> None:
    rng = np.random.default_rng(0)
    views = rng.normal(size=(40, 7)).astype(np.float32)
    distances, rows = nearest_rows(views, None, 5)
    every = np.linalg.norm(views[:, None] - views[None], axis=-1) + np.diag(np.full(40, np.inf))
    np.testing.assert_array_equal(rows, np.argsort(every, axis=1)[:, :5])
    np.testing.assert_allclose(distances, np.sort(every, axis=1)[:, :5], rtol=1e-5)


def test_columns_count_alike() -> None:
    # two numbers and a category of two levels; their expectations; three latents
    rng = np.random.default_rng(0)
    level = rng.integers(0, 2, 500)
    values = np.column_stack([rng.normal(size=500), np.full(500, 3.0), level, 1 - level])
    views = np.column_stack([values, 0.5 * values, rng.normal(size=(500, 3))])
    widths, columns = [1, 1, 2], [0, 1, 2]
    scaled = views * view_scales(views.astype(np.float32), columns, widths)
    total = scaled.var(0)
    share = np.array(WEIGHTS) / (2 * sum(WEIGHTS))
    assert total[:4].sum() == pytest.approx(share[0], rel=1e-4)
    assert total[4:8].sum() == pytest.approx(share[1], rel=1e-4)
    assert total[8:].sum() == pytest.approx(share[2], rel=1e-4)
    assert total[0] == pytest.approx(total[2] + total[3], rel=1e-4)
    assert total[1] == 0.0  # constant
    other_unit = views * np.array([1e5, *[1.0] * 3, 1e5, *[1.0] * 6])
    again = other_unit * view_scales(other_unit.astype(np.float32), columns, widths)
    np.testing.assert_allclose(again, scaled, rtol=1e-3, atol=1e-6)


def test_numbers_count_by_rank() -> None:
    rng = np.random.default_rng(0)
    views = rng.normal(size=(50, 4)).astype(np.float32)
    views[:, 1] = 3.0 + 1e-6 * rng.normal(size=50)  # rounding
    views[10, 0] = views[20, 0]
    far = views.copy()
    far[views[:, 0].argmax(), 0] = 1e6
    found, asked = views.copy(), views[:5].copy()
    to_ranks(found, asked, 2)
    below = (views[:, None, 0] > views[None, :, 0]).mean(1)
    equal = (views[:, None, 0] == views[None, :, 0]).mean(1)
    np.testing.assert_allclose(found[:, 0], below + equal / 2, atol=1e-6)
    np.testing.assert_array_equal(found[:, 1:], views[:, 1:])
    np.testing.assert_array_equal(asked, found[:5])
    to_ranks(far, None, 2)
    np.testing.assert_array_equal(far, found)


def test_neighbours_are_of_the_same_cluster(model: VarTJEPA) -> None:
    X = clusters()
    query = X.iloc[:6].copy()
    query.loc[0, "size"] = np.nan
    query.loc[1, "colour"] = "never seen"
    query.loc[2, "seen"] = pd.NaT
    with pytest.warns(UserWarning, match="colour"):
        found = model.similar(X, query, k=10)
    assert (found["row"] % 2 == found["query"] % 2).mean() > 0.95
    assert np.isfinite(found["distance"]).all()
    assert (found.groupby("query")["distance"].diff().dropna() >= 0).all()
    every = model.similar(X, k=59)
    assert np.mean(every["distance"] ** 2) * 59 / 60 == pytest.approx(1.0, abs=0.02)


def test_frames_of_the_callers_library(model: VarTJEPA) -> None:
    X = clusters()
    pandas = model.similar(X, X.head(4), k=2)
    assert pandas.columns.tolist() == ["query", "rank", "row", "distance"]
    assert pandas["query"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert pandas["rank"].tolist() == [1, 2] * 4
    polars = model.similar(X, pl.from_pandas(X.head(4)), k=2)
    assert isinstance(polars, pl.DataFrame)
    assert polars["row"].to_list() == pandas["row"].tolist()
    arrow = model.similar(X, pa.Table.from_pandas(X.head(4)), k=2)
    assert isinstance(arrow, pa.Table)
    array = np.random.default_rng(0).normal(size=(20, 3))
    found = small(VarTJEPA, **SMALL).fit(array).similar(array, k=4)
    assert found.shape == (80, 4)


def test_wrong_input(model: VarTJEPA) -> None:
    X = clusters()
    with pytest.raises(InputError, match="k is 60, but each row has only 59 other rows"):
        model.similar(X, k=60)
    with pytest.raises(InputError, match="k is 61, but each row has only 60 rows"):
        model.similar(X, X.head(2), k=61)
    with pytest.raises(InputError, match="k"):
        model.similar(X, k=0)
    with pytest.raises(InputError, match="no rows"):
        model.similar(X, X.head(0))
    for numbers in ([], [60], [-1, 3]):
        with pytest.raises(InputError, match="row numbers of X from 0 to 59"):
            model.similar(X, numbers)
    with pytest.raises(InputError, match="colour"):
        model.similar(X, X.head(2).drop(columns="colour"))


@pytest.mark.filterwarnings("default::UserWarning")  # the command shows them
def test_command(model: VarTJEPA, tmp_path: Path, capsys: Captured) -> None:
    X = clusters()
    folder, table, out = tmp_path / "model", tmp_path / "table.parquet", tmp_path / "out.parquet"
    model.save(folder)
    X.assign(id=[f"r{i}" for i in range(60)]).to_parquet(table)
    X.head(3).to_parquet(tmp_path / "query.parquet")
    assert run("similar", folder, table, "-k", 3, "--keep", "id", "--out", out) == 0
    every = pd.read_parquet(out)
    assert every.columns.tolist() == ["query", "rank", "row", "distance", "id"]
    assert every["row"].tolist() == model.similar(X, k=3)["row"].tolist()
    assert every["id"].tolist() == [f"r{i}" for i in every["row"]]
    assert run("similar", folder, table, "--row", 57, "-k", 59, "--keep", "id", "--out", out) == 0
    one = pd.read_parquet(out)
    assert sorted(one["row"]) == [i for i in range(60) if i != 57]
    assert (one["query"] == 57).all()
    assert one["row"][0] == 59
    np.testing.assert_allclose(one["distance"], model.similar(X, [57], k=59)["distance"])
    query = tmp_path / "query.parquet"
    assert run("similar", folder, table, "--query", query, "-k", 1, "--out", out) == 0
    assert "'id'" in capsys.readouterr().err  # not known to the model
    assert pd.read_parquet(out)["row"].tolist() == [0, 1, 2]
    for arguments, says in (
        (("--row", 60), "has rows 0 to 59"),
        (("--row", 1, "--query", query), "exclude each other"),
        (("--query", tmp_path / "none.csv"), "none.csv"),
        (("-k", 60), "k is 60"),
        (("--keep", "colours"), "colours"),
    ):
        code = run("similar", folder, table, "--keep", "id", *arguments, "--out", out)
        assert_refused(capsys, code, says)
