"""Claims about distributions of single cells.

1. The central interval of mass m of a binned number holds at least m; without atoms, exactly m. It
   ends on atoms where it meets them, and with m = 1 it is the whole range.
2. A number lies in the central interval of mass m if and only if its own central mass is at most m.
3. Both claims hold for Gaussian numbers.
4. Leaving out columns asks for every known cell once, given known cells of other columns only; the
   parts of a date are left out together, and a wide table takes 32 passes.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from varjepa.models.cells import (
    MAX_PASSES,
    asked_cells,
    central_interval,
    central_mass,
    leave_one_out,
    missing_cells,
)
from varjepa.models.var_t_jepa import CellDistributions
from varjepa.nn.layers import BinHeads
from varjepa.tables.codec import EncodedTable
from varjepa.tables.scaling import Bins

RNG = np.random.default_rng(0)
COLUMNS = {
    "continuous": np.exp(RNG.standard_normal(3000)),
    "spiked": np.where(RNG.random(3000) < 0.6, 0.0, RNG.uniform(0.5, 2.0, 3000)),
    "few": RNG.integers(0, 5, 3000) / 4.0,
}


def binned(rows: int) -> CellDistributions:
    """Three columns with random distributions over their bins."""
    values = [c.astype(np.float32).astype(np.float64) for c in COLUMNS.values()]
    heads = BinHeads([Bins.fit(v) for v in values], d=2)
    with torch.no_grad():
        heads.weight.normal_(generator=torch.Generator().manual_seed(0))
        noise = torch.randn(rows, 3, 2, generator=torch.Generator().manual_seed(1))
        log_probs = heads(noise)
    return CellDistributions(torch.zeros(rows, 3), torch.zeros(3), [], heads, log_probs)


def gaussian(rows: int) -> CellDistributions:
    mean = torch.randn(rows, 3, generator=torch.Generator().manual_seed(1))
    return CellDistributions(mean, torch.tensor([0.0, -2.0, 1.0]), [])


def mass_between(cells: CellDistributions, lower: Tensor, upper: Tensor) -> Tensor:
    """Mass of binned numbers in closed intervals, by summing over bins."""
    assert cells.bins is not None
    assert cells.bin_log_probs is not None
    low, high = cells.bins.low.double(), cells.bins.high.double()
    lower, upper = lower.double().unsqueeze(-1), upper.double().unsqueeze(-1)
    covered = (torch.minimum(high, upper) - torch.maximum(low, lower)).clamp_min(0.0)
    share = torch.where(
        high > low, covered / (high - low), ((lower <= low) & (low <= upper)).double()
    )
    return (share * cells.bin_log_probs.double().exp()).sum(-1)


@pytest.mark.parametrize("mass", [0.01, 0.5, 0.9, 0.999])
def test_intervals_hold_their_mass(mass: float) -> None:
    cells = binned(50)
    lower, upper = central_interval(cells, torch.full((3,), mass))
    held = mass_between(cells, lower, upper)
    assert (held >= mass - 1e-5).all()
    torch.testing.assert_close(held[:, 0], torch.full((50,), mass).double(), atol=1e-4, rtol=0)
    for ends in (lower, upper):
        assert np.isin(ends[:, 2].numpy(), np.float32(COLUMNS["few"])).all()


def test_the_whole_mass_is_the_whole_range() -> None:
    lower, upper = central_interval(binned(4), torch.ones(3))
    for j, column in enumerate(COLUMNS.values()):
        assert (lower[:, j] == np.float32(column.min())).all()
        assert (upper[:, j] == np.float32(column.max())).all()


@pytest.mark.parametrize("make", [binned, gaussian])
@pytest.mark.parametrize("mass", [0.2, 0.5, 0.9, 0.99])
def test_a_number_is_in_the_intervals_from_its_own_mass_on(make: object, mass: float) -> None:
    rows = 2000
    cells = binned(rows) if make is binned else gaussian(rows)
    values = np.column_stack([RNG.choice(c, rows) for c in COLUMNS.values()])
    values[:20] += 0.01  # in the gaps between atoms too
    num = torch.tensor(values, dtype=torch.float32)
    own = central_mass(cells, num)
    lower, upper = central_interval(cells, torch.full((3,), mass))
    inside = (lower <= num) & (num <= upper)
    is_clear = (own - mass).abs() > 1e-4
    assert torch.equal(inside[is_clear], (own <= mass)[is_clear])
    assert is_clear.float().mean() > 0.9


@pytest.mark.parametrize("features", [5, 70])
def test_leaving_out_asks_for_every_known_cell_once(features: int) -> None:
    columns = torch.arange(features)
    columns[1:] -= 1  # the first two features are parts of one date
    observed = torch.rand(9, features, generator=torch.Generator().manual_seed(0)) < 0.8
    rows = EncodedTable(torch.zeros(9, features), torch.zeros(9, 0, dtype=torch.long), observed)
    asked = torch.zeros(9, features, dtype=torch.int)
    passes = list(leave_one_out(rows, columns))
    assert len(passes) == min(MAX_PASSES, features - 1)
    for masks in passes:
        here = asked_cells(masks, features)
        asked += here
        assert masks.context_valid is not None
        known = torch.zeros_like(here).scatter(1, masks.context, masks.context_valid)
        left_out = columns[masks.target[0, 0]]
        assert not known[:, torch.isin(columns, left_out)].any()
        assert torch.equal(known, observed & ~torch.isin(columns, left_out))
    assert torch.equal(asked, observed.int())
    (masks,) = missing_cells(rows)
    assert torch.equal(asked_cells(masks, features), ~observed)
