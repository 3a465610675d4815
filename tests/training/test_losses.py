"""Claims about the loss of a step.

1. The ELBO of one row in four, each counting four times, is that of all rows in the mean over the
   four choices; so are its gradients. The prediction of values is of all rows in each of them.
2. A batch in slices has the losses that it has as a whole, whatever the slices begin with.
3. Rows that do not count, as padding, are not counted for: the rows of the ELBO stand for the rest.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.training.test_loop import build, table
from varjepa.models.masking import draw_masks
from varjepa.models.var_t_jepa import draw_latent_noise
from varjepa.settings import Objective
from varjepa.tables.codec import EncodedTable
from varjepa.training.losses import Draw, ElboRows, StepLosses, VarTJepaLoss

ROWS, EVERY = 32, 4
RAMPS = torch.ones(3)


def drawn(missing: bool = False) -> tuple[VarTJepaLoss, EncodedTable, Draw]:
    model, rows = build(), table(ROWS)
    g = torch.Generator().manual_seed(0)
    if missing:
        rows = EncodedTable(rows.num, rows.cat, torch.rand(ROWS, 5, generator=g) > 0.3)
    masks = draw_masks(ROWS, 5, rows.observed, (2, 3), 1, g)
    noise = draw_latent_noise(model, ROWS, 2, g)
    return VarTJepaLoss(model, Objective()), rows, Draw(masks, noise)


def gradients(loss: VarTJepaLoss, losses: StepLosses) -> list[Tensor]:
    learned = list(loss.model.parameters())
    found = torch.autograd.grad(losses.descended.mean(), learned, allow_unused=True)
    return [p.new_zeros(p.shape) if g is None else g for p, g in zip(learned, found, strict=True)]


# --- 1


@pytest.mark.parametrize("missing", [False, True])
def test_the_elbo_of_some_rows_is_that_of_all_in_the_mean(missing: bool) -> None:
    loss, rows, draw = drawn(missing)
    whole = loss.losses(rows, draw, RAMPS)
    parts = [
        loss.losses(rows, Draw(draw.masks, draw.noise, ElboRows(EVERY, first, EVERY)), RAMPS)
        for first in range(EVERY)
    ]
    for place, name in enumerate(loss.names):
        each = [part.recorded[place] for part in parts]
        torch.testing.assert_close(torch.stack(each).mean(), whole.recorded[place].mean())
        if name == "prediction":
            assert all(torch.equal(one, each[0]) for one in each)
        else:
            assert all(int((one != 0).sum()) <= ROWS // EVERY for one in each)
    means = [
        torch.stack(all_of).mean(0)
        for all_of in zip(*(gradients(loss, p) for p in parts), strict=True)
    ]
    for mean, exact in zip(means, gradients(loss, whole), strict=True):
        torch.testing.assert_close(mean, exact, rtol=1e-4, atol=1e-5)


# --- 2


@pytest.mark.parametrize("size", [1, 3, 8, 13])
def test_slices_have_the_losses_of_the_batch(size: int) -> None:
    loss, rows, draw = drawn()
    draw = Draw(draw.masks, draw.noise, ElboRows(EVERY, 1, EVERY))
    whole = loss.losses(rows, draw, RAMPS)
    slices = [slice(start, min(ROWS, start + size)) for start in range(0, ROWS, size)]
    parts = [loss.losses(rows.take(here), draw.rows(here), RAMPS) for here in slices]
    torch.testing.assert_close(torch.cat([part.loss for part in parts]), whole.loss)


# --- 3


def test_rows_of_the_elbo_stand_for_those_that_count() -> None:
    shares = torch.full((ROWS,), 1.0 / ROWS)
    assert float(ElboRows.of_batch(EVERY, shares).weight) == pytest.approx(EVERY)
    padded = torch.zeros(ROWS)
    padded[:10] = 0.1  # three of them are in the ELBO: rows 0, 4 and 8
    elbo = ElboRows.of_batch(EVERY, padded)
    values = elbo.spread(torch.ones(ROWS // EVERY), ROWS)
    assert float((values * padded).sum()) == pytest.approx(1.0)
    assert ElboRows.of_batch(1, padded) == ElboRows()
