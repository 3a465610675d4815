"""Claims about cells that a model is asked for one by one:

- the answer is that of a pass that leaves out the column in all rows, to the last bit, with dates,
  missing cells and several columns to a group; cells that are not asked for are 0;
- the networks see a row once for each group that it is asked for, and no more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.audit.conftest import draw
from varjepa import VarTJEPA
from varjepa.audit import asking
from varjepa.audit.asking import ask_cells
from varjepa.models.cells import asked_cells, leave_one_out, predict_distributions
from varjepa.models.masking import FeatureMasks
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.tables.codec import EncodedTable


def medians(model: VarTJepa, rows: EncodedTable, masks: FeatureMasks) -> torch.Tensor:
    return predict_distributions(model, rows, masks).mean


@pytest.mark.parametrize("passes", [32, 3])
def test_answers_are_those_of_whole_passes(
    model: VarTJEPA, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "MAX_PASSES", passes)
    rows = model.encode(draw(40, seed=3))
    numeric = rows.num.shape[1]
    columns: dict[str, int] = {}
    numbers = [columns.setdefault(f.column, len(columns)) for f in model.codec_.features]
    groups = asking.groups_of(np.array(numbers))
    asked = np.random.default_rng(0).random((len(rows), groups.max() + 1)) < 0.3
    seen = []

    def ask(network: VarTJepa, part: EncodedTable, masks: FeatureMasks) -> torch.Tensor:
        seen.append(len(part))
        return medians(network, part, masks)

    found = ask_cells(model, rows, asked, groups, np.arange(numeric), ask)

    def in_passes(network: Any, part: EncodedTable, _: torch.Tensor) -> torch.Tensor:
        total = part.num.new_zeros(len(part), numeric)
        for masks in leave_one_out(part, torch.tensor(numbers), passes, with_missing=True):
            here = asked_cells(masks, len(groups))[:, :numeric]
            total = torch.where(here, medians(network, part, masks), total)
        return total

    whole = model.map_rows(rows, in_passes)
    is_asked = asked[:, groups[:numeric]]
    np.testing.assert_array_equal(found, np.where(is_asked, whole, 0.0))
    assert is_asked.any() and not is_asked.all()
    sizes = np.bincount(groups)
    pairs = [asked[:, sizes == size].sum() for size in np.unique(sizes)]
    assert len(seen) == len(pairs) and max(pairs) <= min(seen)  # a block for each size
