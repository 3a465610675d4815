"""Claims about the reference step.

1. With the noise tied across k and no dropout, its losses and every gradient equal ours to 1e-5 in
   float32, for mixed and numeric tables, with the CLS latents in the context and without.
2. With a draw per k, its loss is ours averaged over those draws.
3. One argsort per mask draws the masks that ours draws.
4. Its embeddings equal ours.
"""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from benchmarks.reference import ReferenceStep, draw_masks_plainly
from paper.settings import first_version
from varjepa.models.inference import embed_in_blocks
from varjepa.models.masking import draw_masks
from varjepa.models.var_t_jepa import VarTJepa, draw_latent_noise
from varjepa.nn.layers import TableShape
from varjepa.settings import Architecture
from varjepa.tables.codec import EncodedTable
from varjepa.variational.elbo import ElboTerms, ElboWeights, weighted_loss
from varjepa.variational.model import LatentNoise

VIEWS, ROWS, SIZES = 3, 64, (2, 3)
MIXED = TableShape(3, (4, 12, 3))


def build(shape: TableShape) -> tuple[VarTJepa, EncodedTable]:
    torch.manual_seed(0)
    settings = first_version(
        Architecture, d=64, depth=2, heads=4, ff=96, n_cls=2,
        predictor_width=16, predictor_depth=2, predictor_ff=64,
    )  # fmt: skip
    g = torch.Generator().manual_seed(1)
    num = torch.rand(ROWS, shape.numeric, generator=g)
    cat = torch.empty(ROWS, 0, dtype=torch.long)
    if shape.levels:
        cat = torch.stack([torch.randint(1, n, (ROWS,), generator=g) for n in shape.levels], 1)
    return VarTJepa(shape, settings), EncodedTable(num, cat, None)


def gradients(model: VarTJepa, terms: ElboTerms) -> dict[str, torch.Tensor]:
    model.zero_grad()
    weighted_loss(terms, ElboWeights()).mean().backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("shape", [MIXED, TableShape(6)])
def test_losses_and_gradients_equal_ours(shape: TableShape) -> None:
    model, rows = build(shape)
    g = torch.Generator().manual_seed(2)
    masks = draw_masks(ROWS, shape.features, None, SIZES, VIEWS, g)
    noise = draw_latent_noise(model, ROWS, SIZES[0], g)
    tied = LatentNoise(noise.s_x, noise.z, noise.s_y.unsqueeze(1).expand(-1, VIEWS, -1, -1))

    theirs = ReferenceStep(model)(rows, masks, tied)
    expected = gradients(model, theirs)
    ours = model.terms(rows, masks, model(rows, masks, noise))
    found = gradients(model, ours)
    for field in fields(ElboTerms):
        torch.testing.assert_close(
            getattr(ours, field.name), getattr(theirs, field.name), rtol=1e-5, atol=1e-5
        )
    for name in found.keys() | expected.keys():  # no gradient and a gradient of 0 are the same
        gradient = expected.get(name, torch.zeros(()))
        gap = (found.get(name, torch.zeros(())) - gradient).norm()
        assert gap <= 1e-5 * gradient.norm() + 1e-9, (name, gap / gradient.norm())


def test_a_draw_per_view_averages_ours() -> None:
    model, rows = build(MIXED)
    g = torch.Generator().manual_seed(2)
    masks = draw_masks(ROWS, 6, None, SIZES, VIEWS, g)
    noise = draw_latent_noise(model, ROWS, SIZES[0], g)
    each = torch.randn(ROWS, VIEWS, *noise.s_y.shape[1:], generator=g)
    theirs = ReferenceStep(model)(rows, masks, LatentNoise(noise.s_x, noise.z, each))
    ours = [
        model.terms(
            rows, masks, model(rows, masks, LatentNoise(noise.s_x, noise.z, each[:, k]))
        ).gen
        for k in range(VIEWS)
    ]
    torch.testing.assert_close(torch.stack(ours).mean(0), theirs.gen)


def test_one_sort_per_mask_draws_the_same() -> None:
    theirs = draw_masks_plainly(50, 9, SIZES, VIEWS, torch.Generator().manual_seed(5))
    ours = draw_masks(50, 9, None, SIZES, VIEWS, torch.Generator().manual_seed(5))
    assert torch.equal(theirs.context, ours.context)
    assert torch.equal(theirs.target, ours.target)


def test_embeddings_equal_ours() -> None:
    model, rows = build(MIXED)
    theirs, ours = ReferenceStep(model).eval().embed(rows), embed_in_blocks(model, rows)
    torch.testing.assert_close(ours.mean, theirs.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.log_var, theirs.log_var, rtol=1e-4, atol=1e-5)
