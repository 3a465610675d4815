"""Claims: a dataset is taken from the folder, else from the cache, else from OpenML, and checked.

1. The argument's folder wins over VARJEPA_DATA, the folder over the cache, the cache over OpenML.
2. What OpenML sent is kept in the cache only if it passes the checks; the second load needs no
   network and gives the same rows in the same order.
3. Rows come in one random order whatever the order of the source.
4. A folder that is not there, a file that is not Parquet and wrong content are refused by name.
5. SIM needs nothing: its columns, labels and u are the generator's, in the generator's order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paper.datasets import loading
from paper.datasets.catalogue import CATEGORY
from paper.datasets.loading import Dataset, load_dataset, locate_dataset
from tests.paper.datasets.small import SHA256, small_info, small_source
from varjepa.demo.sim import draw_sim
from varjepa.errors import InputError


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Only the small dataset exists, nothing is set, and there is no network."""

    def refuse(*_: Any) -> pa.Table:
        raise InputError("no network")

    known = {"small": small_info()}
    original = loading.dataset_info
    monkeypatch.setattr(loading, "dataset_info", lambda name: known.get(name) or original(name))
    monkeypatch.setattr(loading, "fetch_source", refuse)
    monkeypatch.delenv("VARJEPA_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def write(folder: Path, table: pa.Table | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(small_source() if table is None else table, folder / "small.parquet")
    return folder


def same(first: Dataset, second: Dataset) -> bool:
    return first.table.equals(second.table) and bool((first.label == second.label).all())


def test_from_a_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "given")
    dataset = load_dataset("small", folder)
    assert dataset.name == "small"
    assert dataset.sha256 == SHA256
    assert dataset.class_names == ("stays", "goes")
    assert dataset.ambiguity is None
    assert dataset.origin == str(folder / "small.parquet")
    assert dataset.table.column_names == ["size", "colour", "day", "price", "dot"]
    found = {
        (row["size"], row["price"], int(label))
        for row, label in zip(dataset.table.to_pylist(), dataset.label, strict=True)
    }
    assert found == {
        (-5, 0.5, 0),
        (300, -1.25, 1),
        (7, 3.0, 0),
        (7, 1e-6, 0),
        (1, 2.0, 1),
        (0, 0.0, 0),
    }


def test_which_place_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path) -> None:
    assert locate_dataset("small").where == "not here"
    write(home / "varjepa")
    assert locate_dataset("small").where == "cache"
    assert locate_dataset("small", data_home=tmp_path).where == "not here"
    monkeypatch.setenv("VARJEPA_DATA", str(write(tmp_path / "variable")))
    assert locate_dataset("small").path == tmp_path / "variable" / "small.parquet"
    given = write(tmp_path / "given")
    assert locate_dataset("small", given).path == given / "small.parquet"
    (tmp_path / "empty").mkdir()
    assert locate_dataset("small", tmp_path / "empty").where == "cache"


def test_order_does_not_depend_on_the_source(tmp_path: Path) -> None:
    first = load_dataset("small", write(tmp_path / "a"))
    second = load_dataset("small", write(tmp_path / "b", small_source().take([5, 3, 1, 0, 2, 4])))
    assert same(first, second)


def test_openml_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def fetch(info: Any, table: Any, data_home: Path) -> pa.Table:
        asked.append(str(data_home))
        return small_source().take([5, 4, 3, 2, 1, 0])

    monkeypatch.setattr(loading, "fetch_source", fetch)
    fetched = load_dataset("small", data_home=tmp_path / "mine")
    assert fetched.origin == "OpenML 99"
    again = load_dataset("small", data_home=tmp_path / "mine")
    assert again.origin == str(tmp_path / "mine" / "varjepa" / "small.parquet")
    assert asked == [str(tmp_path / "mine")]
    assert same(fetched, again)
    assert same(fetched, load_dataset("small", write(tmp_path / "folder")))


def test_nothing_wrong_is_kept(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(loading, "fetch_source", lambda *_: small_source().slice(1))
    with pytest.raises(InputError, match="OpenML 99 has 5 rows instead of 6"):
        load_dataset("small")
    assert locate_dataset("small").where == "not here"


def test_wrong_places_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^/.*/absent is not a folder"):
        load_dataset("small", tmp_path / "absent")
    monkeypatch.setenv("VARJEPA_DATA", str(tmp_path / "absent"))
    with pytest.raises(InputError, match=r"^VARJEPA_DATA=.*/absent is not a folder"):
        load_dataset("small")
    monkeypatch.setenv("VARJEPA_DATA", "")  # as good as unset
    with pytest.raises(InputError, match="no network"):
        load_dataset("small")
    (tmp_path / "small.parquet").write_text("size,colour\n")
    with pytest.raises(InputError, match=r"small\.parquet is not a Parquet file"):
        load_dataset("small", tmp_path)
    write(tmp_path, small_source().drop_columns(["dot"]))
    with pytest.raises(InputError, match=r"small\.parquet does not have .* 'dot'"):
        load_dataset("small", tmp_path)


def test_sim_needs_nothing() -> None:
    dataset, sim = load_dataset("SIM"), draw_sim()
    assert locate_dataset("sim").where == "built in"
    np.testing.assert_array_equal(dataset.label, sim.label)
    np.testing.assert_array_equal(dataset.ambiguity, sim.ambiguity)
    np.testing.assert_array_equal(dataset.table["x27"].to_numpy(), sim.numeric[:, 27])
    assert dataset.table["c0"].type == CATEGORY
    assert dataset.table["c3"].to_pylist() == sim.categorical[:, 3].tolist()
    assert dataset.table.num_columns == 32
    assert [len(part) for part in (dataset.split(0).train, dataset.split(0).test)] == [7000, 2000]
