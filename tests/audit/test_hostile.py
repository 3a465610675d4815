"""Claims: whatever table of the hostile corpus is audited, by a model of its own or by that of a
healthy table, the result is finite p-values in [0, 1], a repaired table with the same columns and
finite numbers for the page; or an InputError of one line. No other warning than ours.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import varjepa
from tests.estimators.test_scikit_learn import SMALL
from tests.hostile.corpus import CORPUS
from tests.hostile.spoiling import HostileTable, healthy
from tests.hostile.test_hostile_tables import OURS
from tests.small import small
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.tables import read_table

TINY = {**SMALL, "epochs": 1, "random_state": 0}


@pytest.fixture(scope="module")
def model() -> VarTJEPA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return small(VarTJEPA, **TINY).fit(healthy())


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_finite_or_one_sentence(case: HostileTable, model: VarTJEPA, tmp_path: Path) -> None:
    table = case.build(tmp_path)
    for given in (small(VarTJEPA, **TINY), model):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                check(varjepa.audit(table, given, top=50), table)
            except InputError as error:
                assert len(str(error).splitlines()) == 1
                assert len(str(error)) < 500
        for warning in caught:
            assert any(start in str(warning.message) for start in OURS), warning.message


def check(audit: varjepa.Audit, table: Any) -> None:
    cells, rows = read_table(audit.cells), read_table(audit.rows)
    for name in ("p_value", "log_odds"):
        assert np.isfinite(cells[name].to_numpy()).all()
    for frame in (cells, rows):
        p = frame["p_value"].to_numpy()
        assert ((p >= 0.0) & (p <= 1.0)).all()
    if not isinstance(table, np.ndarray):
        fixed = read_table(audit.repaired(0.0))
        assert fixed.schema.names == read_table(table).schema.names
    page = audit.page_data()
    assert all(math.isfinite(row.score) for row in page.rows)
    for detail in page.details.values():
        numbers = (detail.log_odds, detail.p_value, *detail.edges, *detail.masses)
        assert all(map(math.isfinite, numbers))
