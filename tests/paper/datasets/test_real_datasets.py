"""Claims, where the six files are (VARJEPA_DATA, or ../shared/data): the real datasets load.

1. Sizes, kinds and classes are the catalogue's; the codec sees the same kinds without being told.
2. The rows drawn, their order and MNIST's corruption are the ones results were computed with.
3. The random rows keep the class shares of the whole.
4. Missing cells are Adult's "?" and nothing else; "unknown" is a level of Bank's.
5. OpenML's form of the same data (other names, row order, class codes) gives the same dataset.
6. MNIST is float32 images, blank in the corners but for noise that follows u, and readable.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paper.datasets import loading as openml
from paper.datasets.catalogue import DATASETS, dataset_info
from paper.datasets.loading import Dataset, load_dataset
from tests.paper.datasets.small import real_folder
from varjepa.tables import TableCodec

NAMES = tuple(name for name in DATASETS if name != "sim")

DRAWN = {
    "adult": "92cd7027b785860a",
    "covertype": "05fc860671b8401e",
    "electricity": "18046aa599b6ac98",
    "credit_default": "1b2226dd5055af2b",
    "bank_marketing": "7a837899f9aa78f9",
    "mnist": "fc2d946b04b338b8",
}


@cache
def loaded(name: str) -> Dataset:
    return load_dataset(name, real_folder(name))


def drawn(dataset: Dataset) -> str:
    """A checksum that sees every cell, label, u and their order; floats to four decimals."""
    digest = hashlib.sha256()
    for column in dataset.table.columns:
        if pa.types.is_floating(column.type):
            digest.update(np.rint(column.to_numpy() * 1e4).astype("<i8").tobytes())
        else:
            digest.update("\n".join(map(str, column.to_pylist())).encode())
    digest.update(dataset.label.astype("<i8").tobytes())
    if dataset.ambiguity is not None:
        digest.update(np.rint(dataset.ambiguity * 1e6).astype("<i8").tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("name", NAMES)
def test_sizes_kinds_and_classes(name: str) -> None:
    dataset, info = loaded(name), dataset_info(name)
    assert dataset.table.shape == (info.rows, len(info.columns))
    assert dataset.table.column_names == list(info.columns)
    assert np.unique(dataset.label).tolist() == list(range(len(info.classes)))
    assert len(dataset.class_names) == len(info.classes)
    # more columns than these would only repeat MNIST's pixels
    codec = TableCodec.fit(dataset.table.select(dataset.table.column_names[:60]))
    kinds = [column.kind == "categorical" for column in codec.schema.columns]
    assert kinds == [pa.types.is_dictionary(kind) for kind in dataset.table.schema.types[:60]]
    assert sum(kinds) == info.categorical


@pytest.mark.parametrize("name", NAMES)
def test_the_draws_are_frozen(name: str) -> None:
    assert drawn(loaded(name)) == DRAWN[name]


@pytest.mark.parametrize("name", NAMES)
def test_random_rows_keep_the_class_shares(name: str) -> None:
    dataset, info = loaded(name), dataset_info(name)
    whole = np.array(info.class_rows) / info.source_rows
    # the whole, a subset, and the head of it: rows are in random order
    for rows in (info.rows, 4_000):
        found = np.bincount(dataset.label[:rows], minlength=len(whole)) / rows
        error = np.sqrt(whole * (1 - whole) / rows)
        assert (np.abs(found - whole) < 4 * error).all()


def test_missing_cells() -> None:
    for name in NAMES:
        table = loaded(name).table
        missing = {c: table[c].null_count for c in table.column_names if table[c].null_count}
        expected = {"workclass": 2_799, "occupation": 2_809, "native-country": 857}
        assert missing == (expected if name == "adult" else {})
    for column in ("job", "education", "contact", "poutcome"):
        assert "unknown" in loaded("bank_marketing").table[column].unique().to_pylist()


def as_openml(source: pa.Table, nominal: list[str], classes: dict[str, str]) -> SimpleNamespace:
    """What scikit-learn's fetcher returns: floats, places in lists of names, backwards."""
    features, categories, columns = source.drop_columns(["target"]), {}, []
    for j, name in enumerate(features.column_names):
        column = features[name].combine_chunks()
        if name in nominal:
            coded = column.cast(pa.string()).dictionary_encode()
            categories[f"V{j}"] = coded.dictionary.to_pylist()
            column = coded.indices
        columns.append(column.cast(pa.float64()).to_numpy(zero_copy_only=False)[::-1])
    target = [classes.get(str(value), str(value)) for value in source["target"].to_pylist()]
    return SimpleNamespace(
        data=np.stack(columns, axis=1),
        target=np.array(target[::-1], dtype=object),
        categories=categories,
        feature_names=[f"V{j}" for j in range(features.num_columns)],
    )


@pytest.mark.parametrize("name", ["adult", "electricity", "credit_default", "bank_marketing"])
def test_openml_gives_the_same(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected, table = loaded(name), dataset_info(name).openml
    assert table is not None
    source = pq.read_table(real_folder(name) / f"{name}.parquet")
    classes = {ours: theirs for theirs, ours in (table.classes or {}).items()}
    nominal = [
        column
        for column, kind in dataset_info(name).columns.items()
        if pa.types.is_dictionary(kind) and name != "credit_default"  # which has codes throughout
    ]
    answer = as_openml(source, nominal, classes)
    asked: list[int] = []

    def fetch(data_id: int, **_: Any) -> SimpleNamespace:
        asked.append(data_id)
        return answer

    monkeypatch.delenv("VARJEPA_DATA", raising=False)
    monkeypatch.setattr(openml, "fetch_openml", fetch)
    for origin in (f"OpenML {table.data_id}", str(tmp_path / "varjepa" / f"{name}.parquet")):
        found = load_dataset(name, data_home=tmp_path)
        assert found.origin == origin
        assert found.table.equals(expected.table)
        np.testing.assert_array_equal(found.label, expected.label)
    assert asked == [table.data_id]


def test_mnist_is_images_of_digits() -> None:
    dataset = loaded("mnist")
    assert set(dataset.table.schema.types) == {pa.float32()}
    assert dataset.ambiguity is not None
    pixels = np.stack([column.to_numpy() for column in dataset.table.columns], axis=1)
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    # the corners are blank but for the noise, α/2 on average
    corner = pixels[:, [0, 1, 26, 27, 28, 755, 756, 782, 783]].mean(axis=1)
    assert np.corrcoef(corner, dataset.ambiguity)[0, 1] > 0.85
    # the clean ones are still digits: the nearest class mean reads most of them
    clean = dataset.ambiguity < 0.3
    means = np.stack([pixels[clean & (dataset.label == c)].mean(axis=0) for c in range(10)])
    nearest = ((pixels[clean, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == dataset.label[clean]).mean() > 0.75
