"""Claims about padded and recorded steps.

1. Padding changes no term and no gradient: what is not valid is nowhere.
2. Rooms hold every size that can be drawn, and there are few of them.
3. A padded training learns as an unpadded one; rows that fill up the last batch count nothing.
4. On a GPU, a recorded training ends with the weights of the same training without recordings.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.test_loop import SETTINGS, WEIGHTS, build, table
from varjepa.models.masking import draw_mask_sizes, draw_masks, largest_mask_sizes
from varjepa.models.var_t_jepa import draw_latent_noise
from varjepa.settings import MaskSettings, Objective
from varjepa.tables.codec import EncodedTable
from varjepa.training.cuda_graphs import CapturedStepper, PaddedStepper, bucket_for
from varjepa.training.loop import HeldOutLoss
from varjepa.training.losses import Draw, VarTJepaLoss
from varjepa.training.step import Stepper
from varjepa.variational.model import LatentNoise

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def some_missing(rows: EncodedTable) -> EncodedTable:
    g = torch.Generator().manual_seed(4)
    return EncodedTable(rows.num, rows.cat, torch.rand(len(rows), 5, generator=g) > 0.3)


@pytest.mark.parametrize("missing", [False, True])
def test_padding_changes_no_term_and_no_gradient(missing: bool) -> None:
    model, rows = build(), table(32)
    rows = some_missing(rows) if missing else rows
    m_ctx, sizes, bucket = 2, (2, 1), (4, 3)
    g = torch.Generator().manual_seed(0)
    exact = draw_masks(32, 5, rows.observed, sizes, 2, g)
    g = torch.Generator().manual_seed(0)
    padded = draw_masks(32, 5, rows.observed, torch.tensor(sizes).unbind(), 2, g, bucket)
    assert torch.equal(padded.context[:, :m_ctx], exact.context)
    noise = draw_latent_noise(model, 32, m_ctx, g)
    more = torch.cat([noise.s_x, torch.full((32, 2, 8), 1e3)], dim=1)  # CLS, context, padding

    objective = VarTJepaLoss(model, Objective())
    found = []
    for masks, s_x in ((exact, noise.s_x), (padded, more)):
        model.zero_grad()
        drawn = LatentNoise(s_x, noise.z, noise.s_y)
        losses = objective.losses(rows, Draw(masks, drawn), torch.ones(3))
        losses.descended.mean().backward()
        found.append((losses, [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    (plain, gradients), (filled, others) = found
    torch.testing.assert_close(filled.loss, plain.loss, rtol=1e-5, atol=1e-5)
    for one, other in zip(plain.recorded, filled.recorded, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)
    for one, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


@given(st.integers(1, 900), st.integers(0, 2**31))
def test_buckets_hold_what_is_drawn(features: int, seed: int) -> None:
    masks = MaskSettings()
    g = torch.Generator().manual_seed(seed)
    largest = largest_mask_sizes(features, masks)
    for _ in range(20):
        sizes = draw_mask_sizes(features, masks, g)
        bucket = bucket_for(sizes, features, masks)
        assert all(s <= r <= m for s, r, m in zip(sizes, bucket, largest, strict=True))


def test_buckets_are_few() -> None:
    masks = MaskSettings()
    buckets = {bucket_for((c, t), 784, masks) for c in range(1, 705) for t in range(1, 471)}
    assert len(buckets) == 9
    assert {bucket_for((c, 3), 14, masks) for c in range(1, 13)} == {(8, 8), (12, 8)}


def test_a_padded_training_learns_as_an_unpadded_one() -> None:
    rows = table(200)  # three batches of 64 and one of 8
    settings, last = replace(SETTINGS, epochs=10), []
    untrained = HeldOutLoss(rows, 0).score(VarTJepaLoss(build(), WEIGHTS))
    for kind in (Stepper, PaddedStepper):
        stepper = kind(VarTJepaLoss(build(), WEIGHTS), rows, settings, 0)
        for _ in range(settings.epochs):
            stepper.begin_epoch()
            for _ in range(stepper.steps_per_epoch):
                stepper.step()
        last.append(HeldOutLoss(rows, 0).score(stepper.evaluated))
        assert stepper.done == stepper.total
        stepper.close()
    assert last[0] > untrained + 1
    assert last[1] == pytest.approx(last[0], abs=0.05)


def test_filling_rows_count_nothing() -> None:
    rows = table(65)  # the last batch is one row and 63 copies of it
    settings = replace(SETTINGS, epochs=1)
    stepper = PaddedStepper(VarTJepaLoss(build(), WEIGHTS), rows, settings, 0)
    stepper.begin_epoch()
    assert stepper.table_share.sum(1).tolist() == [64.0, 1.0]
    assert stepper.table_index.flatten()[:65].sort().values.tolist() == list(range(65))
    stepper.close()


def test_gradients_do_not_see_filling_rows() -> None:
    rows, found = table(65), []
    for filler in (None, 7, 23):
        objective = VarTJepaLoss(build(), WEIGHTS)
        with PaddedStepper(objective, rows, replace(SETTINGS, epochs=1), 0) as stepper:
            stepper.begin_epoch()
            if filler is not None:
                stepper.table_index[-1, 1:] = filler
            stepper.cursor.fill_(1)  # the last batch
            stepper.take_line((4, 3))
            gradients = [p.grad for p in objective.model.parameters() if p.grad is not None]
            found.append(torch.cat([g.flatten() for g in gradients]))
            assert stepper.tally.sums[0] == stepper.row_loss[0]  # the mean is the one row's
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-5, atol=1e-7)


@CUDA
def test_a_recording_is_the_same_training() -> None:
    settings = replace(SETTINGS, epochs=4, precision="float32")
    ends = []
    for kind in (PaddedStepper, CapturedStepper, CapturedStepper):
        rows = table(200)
        rows = EncodedTable(rows.num.cuda(), rows.cat.cuda(), None)
        stepper = kind(VarTJepaLoss(build().cuda(), WEIGHTS), rows, settings, 0)
        for _ in range(settings.epochs):
            stepper.begin_epoch()
            for _ in range(stepper.steps_per_epoch):
                stepper.step()
        ends.append(torch.cat([p.detach().flatten() for p in stepper.loss.model.parameters()]))
        if isinstance(stepper, CapturedStepper):
            assert stepper.graphs
            assert not stepper.gave_up
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-3, atol=1e-3)
    assert torch.equal(ends[1], ends[2])  # the same seed, the same weights
