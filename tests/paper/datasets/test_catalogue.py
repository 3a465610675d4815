"""Claims: the catalogue is the paper's dataset table, but for the kinds of columns we say differ.

1. Samples, features and classes of all seven are those of the paper's table, in its order.
2. Numeric and categorical counts are the paper's, except where the source declares categories that
   the paper counts as numbers: Electricity 1, Credit 3, Bank 9, each named.
3. Datasets are found by name and by abbreviation; an unknown one is refused with the known names.
4. Nothing about SIM's generator disagrees with its entry.
"""

from __future__ import annotations

import re

import pytest

from paper.datasets.catalogue import CATEGORY, DATASETS, dataset_info
from varjepa.demo.sim import SimSettings
from varjepa.errors import InputError

PAPER = {  # samples, features, (numeric, categorical), classes
    "AD": (48_842, 14, (6, 8), 2),
    "CO": (10_000, 54, (54, 0), 7),
    "EL": (45_312, 8, (8, 0), 2),
    "CC": (30_000, 23, (23, 0), 2),
    "BM": (45_211, 16, (16, 0), 2),
    "MNIST": (10_000, 784, (784, 0), 10),
    "SIM": (10_000, 32, (28, 4), 3),
}
DECLARED_NOMINAL = {
    "EL": ["day"],
    "CC": ["SEX", "EDUCATION", "MARRIAGE"],
    "BM": [
        *("job", "marital", "education", "default", "housing"),
        *("loan", "contact", "month", "poutcome"),
    ],
}


def test_samples_features_and_classes_are_the_papers() -> None:
    ours = {
        info.short: (info.rows, len(info.columns), len(info.classes)) for info in DATASETS.values()
    }
    assert ours == {short: (n, d, c) for short, (n, d, _, c) in PAPER.items()}
    assert list(ours) == list(PAPER)


@pytest.mark.parametrize("short", PAPER)
def test_kinds_are_the_papers_or_declared(short: str) -> None:
    info = dataset_info(short)
    numeric, categorical = PAPER[short][2]
    moved = DECLARED_NOMINAL.get(short, [])
    assert (info.numeric, info.categorical) == (numeric - len(moved), categorical + len(moved))
    if moved:
        assert [name for name, kind in info.columns.items() if kind == CATEGORY] == moved


def test_names_and_abbreviations_find_a_dataset() -> None:
    for info in DATASETS.values():
        assert dataset_info(info.name) is dataset_info(info.short) is info
    assert dataset_info("cc").name == "credit_default"
    with pytest.raises(InputError, match=r"'iris'; known are adult, .*, sim$"):
        dataset_info("iris")


def test_entries_can_be_checked_against() -> None:
    for info in DATASETS.values():
        assert re.fullmatch("[0-9a-f]{64}", info.sha256)
        assert len(info.class_rows) == len(info.classes)
        assert info.rows <= info.source_rows
        assert (info.openml is None) == (info.name == "sim")


def test_sim_is_the_generators() -> None:
    info, settings = dataset_info("sim"), SimSettings()
    assert info.rows == info.source_rows == settings.rows
    assert (info.numeric, info.categorical) == (settings.numeric, settings.binned)
    assert len(info.classes) == settings.classes
