"""Claims about ``varjepa.explore`` and `varjepa explore`.

1. The page holds the table as it is: texts, numbers and dates of every column, those that the model
   does not know included; missing cells are missing. Only the model's columns have atypical cells;
   the page says which columns the model does not use.
2. Uncertainty, outlier score, atypical cells and similar rows are those of the model. Rows
   that are near each other on the map are similar; the same seed draws the same map.
3. Of many rows some are drawn, in order, by the seed, and the page says so.
4. Tables of two rows, of equal rows, and of arrays work; a notebook shows the page in a frame, and
   of a large one a sentence that says how to save it.
5. The command writes the page; what is wrong is refused in one sentence, and nothing is written.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import varjepa
from tests.audit.test_page import data_of
from tests.browser import chromium
from tests.cli.test_shell import Captured, assert_refused, run, snapshot
from tests.estimators.test_similar import SMALL, clusters
from tests.explore.test_page import example
from tests.small import small
from varjepa import VarTJEPA
from varjepa.errors import InputError
from varjepa.explore import ExploreData
from varjepa.explore import run as explore_module


def table() -> pd.DataFrame:
    frame = clusters()
    frame.loc[4, "size"] = np.nan
    return frame.assign(label=np.where(np.arange(60) % 2, "odd", "even"), empty=None)


@pytest.fixture(scope="module")
def model() -> VarTJEPA:
    return small(VarTJEPA, **SMALL).fit(clusters())


@pytest.fixture(scope="module")
def data(model: VarTJEPA) -> ExploreData:
    return varjepa.explore(model, table())


def test_the_page_holds_the_table(data: ExploreData) -> None:
    frame = table()
    by_name = {column.name: column for column in data.columns}
    assert list(by_name) == list(frame.columns)
    kinds = " ".join(column.kind for column in data.columns)
    assert kinds.startswith("numeric numeric categorical datetime categorical")
    assert by_name["colour"].values == tuple(frame["colour"])
    assert by_name["label"].values == tuple(frame["label"])
    sizes = by_name["size"].numbers
    assert sizes is not None
    assert sizes[4] is None
    np.testing.assert_allclose(
        np.array(sizes, dtype=float), frame["size"].to_numpy(), equal_nan=True
    )
    days = by_name["seen"].numbers
    assert days is not None
    assert pd.Series(days).rank().tolist() == frame["seen"].rank().tolist()
    assert str(by_name["seen"].values[0]).startswith(str(frame["seen"][0])[:10])
    assert by_name["size"].atypical is not None
    assert by_name["size"].atypical[4] is None
    assert by_name["label"].atypical is None
    assert by_name["label"].numbers is None
    assert set(by_name["empty"].values) == {None}
    assert [name for name, column in by_name.items() if not column.is_used] == ["label", "empty"]
    assert dict(data.facts)["columns"] == "6, 2 not used by the model"


def test_measures_and_similar_rows_are_those_of_the_model(
    data: ExploreData, model: VarTJEPA
) -> None:
    known = table()[clusters().columns]
    measures = dict(data.measures)
    np.testing.assert_allclose(measures["uncertainty"], model.uncertainty(known), rtol=1e-5)
    near = model.similar(known)
    assert data.similar == tuple(map(tuple, near["row"].to_numpy().reshape(60, 5).tolist()))
    np.testing.assert_allclose(np.ravel(data.distances), near["distance"], rtol=1e-4)
    np.testing.assert_allclose(measures["outlier score"], model.outlier_score(known), rtol=1e-5)
    cells = model.cell_uncertainty(known, "atypical")
    shades = {column.name: column.atypical for column in data.columns}
    for name in ("size", "colour", "seen"):
        found = np.array(shades[name], dtype=float)
        np.testing.assert_allclose(found, cells[name], rtol=1e-4, equal_nan=True)
    again = varjepa.explore(model, table())
    assert (again.x, again.y) == (data.x, data.y)
    places = np.column_stack([data.x, data.y])
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    to_similar = np.mean([apart[i, list(rows)].mean() for i, rows in enumerate(data.similar)])
    assert to_similar < 0.6 * apart.mean()
    assert np.std(data.x) >= np.std(data.y)  # screens are wide


def test_many_rows_are_drawn(model: VarTJEPA, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore_module, "MAX_ROWS", 40)
    first, second = (varjepa.explore(model, clusters(), random_state=s) for s in (0, 1))
    numbers = [int(label) for label in first.labels]
    assert len(numbers) == 40
    assert numbers == sorted(set(numbers))
    assert first.labels != second.labels
    assert dict(first.facts)["rows"].startswith("40 of 60, drawn at random")
    assert first.columns[0].values[0] == str(clusters()["size"][numbers[0]])


def test_odd_tables(model: VarTJEPA) -> None:
    two = varjepa.explore(model, clusters().head(2))
    assert two.similar == ((1,), (0,))
    same = varjepa.explore(model, pd.concat([clusters().head(1)] * 40))
    for some in (two, same):
        assert np.isfinite([*some.x, *some.y]).all()
    array = np.random.default_rng(0).normal(size=(20, 3))
    by_position = small(VarTJEPA, **SMALL).fit(array)
    found = varjepa.explore(by_position, pd.DataFrame(array, columns=["a", "b", "c"]))
    assert [c.name for c in found.columns] == ["a", "b", "c"]
    assert found.columns[2].atypical is not None
    assert all(column.is_used for column in found.columns)


def test_a_notebook_shows_it(data: ExploreData, tmp_path: Path) -> None:
    assert repr(data) == "ExploreData('Rows of a table', 60 rows, 6 columns)"
    page = tmp_path / "notebook.html"
    quoted = replace(data, title="Rows' onload='x'")
    page.write_text(f"<!doctype html><meta charset=utf-8>{quoted._repr_html_()}", "utf-8")
    with chromium(tmp_path) as browser:
        browser.open(page)
        browser.settle()
        assert browser.complaints() == []
        assert browser.evaluate("document.querySelector('iframe').attributes.length") == 4
        for _ in range(50):  # a busy machine draws the frame's page later
            shot = browser.screenshot(tmp_path / "shot.png")
            if shot.stat().st_size > 8000:
                break
            time.sleep(0.1)
    assert shot.stat().st_size > 8000  # an empty frame is smaller


def test_a_notebook_does_not_hold_a_large_page() -> None:
    large = replace(example(10_000, extra=10), title="<b>large</b>")
    shown = large._repr_html_()
    assert len(shown) < 1000
    assert "10,000 rows" in shown
    assert '.save("page.html")' in shown
    assert "<b>large" not in shown


def test_command(model: VarTJEPA, tmp_path: Path, capsys: Captured) -> None:
    folder, rows, out = tmp_path / "model", tmp_path / "rows.csv", tmp_path / "page.html"
    model.save(folder)
    table().to_csv(rows, index=False)
    assert run("explore", folder, rows, "--out", out) == 0
    shown = data_of(out.read_text(encoding="utf-8"))
    assert shown["title"] == "rows.csv"
    assert len(shown["labels"]) == 60
    assert "60 rows" in capsys.readouterr().out
    clusters().head(1).to_csv(tmp_path / "one.csv", index=False)
    table().drop(columns="colour").to_csv(tmp_path / "less.csv", index=False)
    (tmp_path / "folder.html").mkdir()
    before = snapshot(tmp_path)
    for arguments, says in (
        ((folder, rows, "--out", tmp_path / "page.txt"), "page.txt is no .html file"),
        ((folder, rows, "--out", tmp_path / "folder.html"), "is a folder"),
        ((folder, tmp_path / "one.csv", "--out", out), "fewer than two rows"),
        ((folder, tmp_path / "less.csv", "--out", out), "colour"),
        ((folder, tmp_path / "none.csv", "--out", out), "none.csv"),
        ((tmp_path / "none", rows, "--out", out), "none"),
    ):
        assert_refused(capsys, run("explore", *arguments), says)
    assert snapshot(tmp_path) == before


def test_wrong_input(model: VarTJEPA) -> None:
    with pytest.raises(InputError, match="fewer than two rows"):
        varjepa.explore(model, clusters().head(1))
    with pytest.raises(NotFittedError):
        varjepa.explore(VarTJEPA(), clusters())
    with pytest.raises(InputError, match="model must be a VarTJEPA or its folder, not dict"):
        varjepa.explore({"x": [1, 2]}, model)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no column"):
        varjepa.explore(model, pd.DataFrame({"other": [1, 2, 3]}))
