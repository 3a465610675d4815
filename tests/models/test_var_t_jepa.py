"""Claims about Var-T-JEPA.

1. Shapes; every parameter of every component gets a gradient from the loss.
2. The predictor's output does not change when the target features of w do; z neither.
3. The terms are those of Appendix A.3.1, computed here once more with loops.
4. Missing cells: their stored values change nothing; a row without any observed cell is finite.
5. Permuting columns together with their per-feature parameters permutes the embedding's tokens.
6. An embedding does not depend on the other rows of the batch, to the last bit.
7. A table of one column works.
8. The imputer learns from the rest of the model, and the rest learns nothing from it.
9. Predictions of values see no target: a target's cell changes its own likelihood and no other, and
   no gradient of a predicted distribution reaches it. Cells that nobody asks for count nothing.
10. Latents of the complete row learn a number's value, and nothing from its bins.

2, 4, 6, 7 and 9 hold for numbers in bins and for Gaussian ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from paper.settings import first_version
from varjepa.models.inference import embed_in_blocks
from varjepa.models.masking import FeatureMasks, draw_cells, draw_masks, masks_from_cells
from varjepa.models.var_t_jepa import VarTJepa, draw_latent_noise
from varjepa.nn.layers import TableShape
from varjepa.randomness import seeded_weights
from varjepa.settings import MIN_NOISE_VARIANCE, Architecture
from varjepa.tables.codec import EncodedTable
from varjepa.tables.scaling import Bins
from varjepa.variational.elbo import ElboWeights, weighted_loss
from varjepa.variational.model import LatentNoise

SIZES: dict[str, Any] = {
    "d": 8, "depth": 1, "heads": 2, "ff": 16,
    "predictor_width": 8, "predictor_depth": 1, "predictor_heads": 2,
}  # fmt: skip
GAUSSIAN = first_version(
    Architecture,
    **SIZES, imputer_width=8, imputer_depth=1, imputer_heads=2, imputer_ff=16,
)  # fmt: skip
BINS = Architecture(**SIZES)


def with_bins(numeric: int, levels: tuple[int, ...] = ()) -> TableShape:
    """A shape whose numbers are about uniform between 0 and 1."""
    values = np.random.default_rng(0).random((numeric, 300))
    return TableShape(numeric, levels, tuple(Bins.fit(column, most=8) for column in values))


SHAPE = with_bins(3, (3, 5, 40))

both_kinds = pytest.mark.parametrize("settings", [GAUSSIAN, BINS], ids=["gaussian", "bins"])


def build(shape: TableShape = SHAPE, settings: Architecture = GAUSSIAN) -> VarTJepa:
    """A model whose decoders read their latents, where those of bins begin with weights of 0."""
    with seeded_weights(0):
        model = VarTJepa(shape, settings)
        if settings.numbers == "bins":
            for decoder in (model.context_decoder, model.target_decoder):
                for weight in decoder.parameters():
                    nn.init.normal_(weight, std=0.3)
    return model


def some_rows(n: int = 12, shape: TableShape = SHAPE, missing: bool = False) -> EncodedTable:
    g = torch.Generator().manual_seed(1)
    num = torch.rand(n, shape.numeric, generator=g)
    columns = [torch.randint(1, levels, (n, 1), generator=g) for levels in shape.levels]
    cat = torch.cat([*columns, torch.empty(n, 0, dtype=torch.long)], dim=1)
    observed = torch.rand(n, shape.features, generator=g) > 0.4 if missing else None
    return EncodedTable(num, cat, observed)


def draw(
    model: VarTJepa, rows: EncodedTable, sizes: tuple[int, int] = (2, 3)
) -> tuple[FeatureMasks, LatentNoise]:
    g = torch.Generator().manual_seed(2)
    masks = draw_masks(len(rows), model.shape.features, rows.observed, sizes, 2, g)
    return masks, draw_latent_noise(model, len(rows), sizes[0], g)


@both_kinds
def test_shapes_and_gradients(settings: Architecture) -> None:
    model, rows = build(settings=replace(settings, n_cls=2)), some_rows(missing=True)
    masks, noise = draw(model, rows)
    walk = model(rows, masks, noise)
    assert walk.s_x.shape == (12, 4, 8)
    assert walk.z.shape == (12, 8)
    assert walk.s_w.shape == (12, 6, 8)
    assert walk.p_s_y.mean.shape == (12, 2, 3, 8)
    loss = weighted_loss(model.terms(rows, masks, walk), ElboWeights()).mean()
    loss = loss + model.prediction_loss(rows, masks, walk.p_s_y).mean()
    if model.imputer is not None:
        loss = loss + model.imputation_loss(rows, masks, walk, 1e-3).mean()
    loss.backward()
    for name, parameter in model.named_parameters():
        unused = name == "context_encoder.tokenizer.missing"  # a missing cell is never context
        grad = parameter.grad
        assert unused or (grad is not None and grad.abs().sum() > 0), name


def test_cells_of_several_groups_stand_at_their_features() -> None:
    shape = TableShape(2, (700, 3, 900, 5))
    decoder = build(shape).target_decoder
    assert len(decoder.heads.groups) == 2
    rows = some_rows(shape=shape)
    s = torch.randn(len(rows), 6, 8, generator=torch.Generator().manual_seed(0))
    cells = decoder(s).nll(rows)
    for group in decoder.heads.groups:
        for g, j in enumerate(group.features.tolist()):
            logits = s[:, j] @ group.weight[g] + group.bias[g, 0]
            expected = nn.functional.cross_entropy(
                logits[:, 1 : shape.levels[j - 2]], rows.cat[:, j - 2] - 1, reduction="none"
            )
            torch.testing.assert_close(cells[:, j], expected)


@both_kinds
def test_the_predictor_never_sees_the_target(settings: Architecture) -> None:
    model, rows = build(settings=settings), some_rows()
    masks, noise = draw(model, rows)
    walk = model(rows, masks, noise)
    hidden = torch.ones(12, 6, dtype=torch.bool).scatter(1, masks.context, False)
    changed = EncodedTable(
        torch.where(hidden[:, :3], rows.num + 7.0, rows.num),
        torch.where(hidden[:, 3:], 1 + rows.cat % 2, rows.cat),
        None,
    )
    other = model(changed, masks, noise)
    for name in ("s_x", "z"):
        assert torch.equal(getattr(walk, name), getattr(other, name))
    assert torch.equal(walk.p_s_y.mean, other.p_s_y.mean)
    assert torch.equal(walk.p_s_y.log_var, other.p_s_y.log_var)
    assert not torch.equal(walk.s_w, other.s_w)


@pytest.mark.parametrize("missing", [False, True])
def test_terms_equal_loops(missing: bool) -> None:
    model, rows = build().double(), some_rows(missing=missing)
    rows = EncodedTable(rows.num.double(), rows.cat, rows.observed)
    masks, noise = draw(model, rows)
    noise = LatentNoise(noise.s_x.double(), noise.z.double(), noise.s_y.double())
    walk = model(rows, masks, noise)
    terms = model.terms(rows, masks, walk)

    def nll(decoder: torch.nn.Module, latent: torch.Tensor, row: int, j: int) -> torch.Tensor:
        if j < 3:
            mean = latent @ decoder.heads.weight[j] + decoder.heads.bias[j]
            normal = torch.distributions.Normal(mean, (0.5 * decoder.log_var).exp())
            return -normal.log_prob(rows.num[row, j])
        for group in decoder.heads.groups:
            members = group.features.tolist()
            if j in members:
                g = members.index(j)
                logits = latent @ group.weight[g] + group.bias[g, 0]
                probs = logits[1 : SHAPE.levels[j - 3]].log_softmax(-1)
                return -probs[rows.cat[row, j - 3] - 1]
        raise AssertionError(j)

    for row in range(len(rows)):
        context = [
            (t, j)
            for t, j in enumerate(masks.context[row].tolist())
            if masks.context_valid is None or masks.context_valid[row, t]
        ]
        rec = [nll(model.context_decoder, walk.s_x[row, 1 + t], row, j) for t, j in context]
        cells = (
            range(6) if rows.observed is None else rows.observed[row].nonzero().flatten().tolist()
        )
        gen = [nll(model.target_decoder, walk.s_w[row, j], row, j) for j in cells]
        kl_sx = [walk.q_s_x.kl_to_standard()[row, t] for t in [0, *(1 + t for t, _ in context)]]
        kl_sy = []
        for k in range(2):
            for m, j in enumerate(masks.target[row, k].tolist()):
                if masks.target_valid is None or masks.target_valid[row, k, m]:
                    q, p = walk.q_s_w, walk.p_s_y
                    gap = q.log_var[row, j] - p.log_var[row, k, m]
                    squared = (q.mean[row, j] - p.mean[row, k, m]) ** 2 / p.var[row, k, m]
                    kl_sy.append(0.5 * (gap.exp() - 1 - gap + squared).sum())
        for name, parts in (("rec", rec), ("gen", gen), ("kl_sx", kl_sx), ("kl_sy", kl_sy)):
            expected = torch.stack(parts).mean() if parts else torch.tensor(0.0).double()
            torch.testing.assert_close(getattr(terms, name)[row], expected)


def test_latents_of_the_row_learn_nothing_from_bins_and_their_heads_learn_all() -> None:
    model, rows = build(settings=BINS), some_rows()
    masks, noise = draw(model, rows)
    walk = model(rows, masks, noise)
    gen = model.terms(rows, masks, walk).gen.sum()
    decoder = model.target_decoder
    assert decoder.bins is not None
    full = decoder(walk.s_w).nll(rows).mean(-1).sum()
    torch.testing.assert_close(gen, full)  # the same value, another gradient
    without = full - decoder(walk.s_w).bin_nll(rows).sum() / 6
    ours, theirs, others = (
        torch.autograd.grad(loss, walk.s_w, retain_graph=True)[0] for loss in (gen, without, full)
    )
    torch.testing.assert_close(ours, theirs)
    assert not torch.allclose(ours, others)
    heads = list(decoder.bins.parameters())
    for mine, whole in zip(
        torch.autograd.grad(gen, heads, retain_graph=True),
        torch.autograd.grad(full, heads),
        strict=True,
    ):
        torch.testing.assert_close(mine, whole)


@both_kinds
def test_values_of_missing_cells_do_not_matter(settings: Architecture) -> None:
    model, rows = build(settings=settings), some_rows(missing=True)
    assert rows.observed is not None
    rows.observed[0] = False
    other = EncodedTable(
        torch.where(rows.observed[:, :3], rows.num, 1e6),
        torch.where(rows.observed[:, 3:], rows.cat, 0),
        rows.observed,
    )
    masks, noise = draw(model, rows)
    one = model.terms(rows, masks, model(rows, masks, noise))
    two = model.terms(other, masks, model(other, masks, noise))
    for name in ("rec", "gen", "kl_sx", "kl_z", "kl_sy"):
        torch.testing.assert_close(getattr(one, name), getattr(two, name))
        assert getattr(one, name).isfinite().all()
    assert one.gen[0] == one.rec[0] == one.kl_sy[0] == 0


def test_columns_permute_with_their_parameters() -> None:
    shape = TableShape(4)
    model, rows = build(shape), some_rows(shape=shape)
    order = torch.tensor([2, 0, 3, 1])
    state = model.state_dict()
    for name, value in state.items():
        per_feature = name.endswith(("tokenizer.bias", ".position", "heads.weight", "heads.bias"))
        if per_feature and value.shape[0] == 4:
            state[name] = value[order]
    permuted = build(shape)
    permuted.load_state_dict(state)
    plain = embed_in_blocks(model, rows).mean[:, order]
    moved = embed_in_blocks(permuted, EncodedTable(rows.num[:, order], rows.cat, None)).mean
    torch.testing.assert_close(moved, plain, rtol=1e-4, atol=1e-5)


@both_kinds
@pytest.mark.parametrize("missing", [False, True])
def test_embeddings_do_not_depend_on_the_batch(missing: bool, settings: Architecture) -> None:
    model, rows = build(settings=settings), some_rows(700, missing=missing)
    together = embed_in_blocks(model, rows)
    order = torch.randperm(700, generator=torch.Generator().manual_seed(3))
    shuffled = embed_in_blocks(model, rows.take(order))
    assert torch.equal(shuffled.mean, together.mean[order])
    assert torch.equal(shuffled.log_var, together.log_var[order])
    alone = embed_in_blocks(model, rows.take(slice(5, 6)))
    assert torch.equal(alone.mean[0], together.mean[5])


@both_kinds
def test_a_table_of_one_column(settings: Architecture) -> None:
    for shape in (with_bins(1), TableShape(0, (4,))):
        model, rows = build(shape, settings), some_rows(shape=shape)
        masks, noise = draw(model, rows, sizes=(0, 1))
        terms = model.terms(rows, masks, model(rows, masks, noise))
        loss = weighted_loss(terms, ElboWeights()).mean()
        loss.backward()
        assert loss.isfinite()
        assert (terms.rec == 0).all()
        assert embed_in_blocks(model, rows).mean.shape == (12, 1, 8)


def test_the_noise_floor_holds() -> None:
    decoder = build().target_decoder
    with torch.no_grad():
        decoder.raw_log_var.fill_(-1e6)
    assert decoder.log_var.exp() >= MIN_NOISE_VARIANCE


def test_nothing_but_the_imputer_learns_from_the_imputation() -> None:
    model, rows = build(), some_rows(missing=True)
    masks, noise = draw(model, rows)
    model.imputation_loss(rows, masks, model(rows, masks, noise), 1e-3).mean().backward()
    for name, parameter in model.named_parameters():
        touched = parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
        assert touched == name.startswith("imputer."), name


def test_the_imputers_likelihood_is_the_marginal_one() -> None:
    # −log ∫ N(y; u·s + b, σ²) N(s; m, V) ds against Monte Carlo
    model, rows = build(), some_rows()
    masks, _ = draw(model, rows)
    with torch.no_grad():
        s_x = model.q_s_x(rows, masks).mean
        r = model.r_s_y(s_x, model.q_z(s_x, masks).mean, masks)
        assert model.imputer is not None
        exact = model.predicted_nll(r, rows)[:, :3]
        g = torch.Generator().manual_seed(0)
        draws = torch.stack([r.rsample(g) for _ in range(4000)])  # (S, B, D, d)
        means = torch.stack([model.target_decoder(s).mean for s in draws])
        normal = torch.distributions.Normal(means, (0.5 * model.imputer.log_var).exp())
        sampled = -normal.log_prob(rows.num).logsumexp(0) + torch.tensor(4000.0).log()
    torch.testing.assert_close(exact, sampled, rtol=0.05, atol=0.1)


# --- 9


def changed_cell(rows: EncodedTable, row: int, j: int) -> EncodedTable:
    """Another value in one cell."""
    num, cat = rows.num.clone(), rows.cat.clone()
    if j < 3:
        num[row, j] = 1.0 - num[row, j]
    else:
        cat[row, j - 3] = 1 + cat[row, j - 3] % (SHAPE.levels[j - 3] - 1)
    return EncodedTable(num, cat, rows.observed)


@both_kinds
@pytest.mark.parametrize("missing", [False, True])
def test_a_target_changes_its_own_likelihood_and_no_other(
    settings: Architecture, missing: bool
) -> None:
    model, rows = build(settings=settings), some_rows(missing=missing)
    asked = draw_cells(rows, 6, 0.4, torch.Generator().manual_seed(4))
    with torch.no_grad():
        before = model.nll_of_cells(rows, asked)
        assert before[asked].isfinite().all()
        for row, j in asked.nonzero().tolist()[:8]:
            after = model.nll_of_cells(changed_cell(rows, row, j), asked)
            assert before[row, j] != after[row, j]
            others = asked.clone()
            others[row, j] = False
            assert torch.equal(before[others], after[others])


@both_kinds
def test_no_gradient_of_a_predicted_distribution_reaches_a_target(settings: Architecture) -> None:
    model, rows = build(settings=replace(settings, imputer_depth=0)), some_rows()
    asked = draw_cells(rows, 6, 0.4, torch.Generator().manual_seed(4))
    masks = masks_from_cells(~asked, asked)
    num = rows.num.requires_grad_()
    s_x = model.q_s_x(rows, masks).mean
    r = model.r_s_y(s_x, model.q_z(s_x, masks).mean, masks)
    decoded = model.predicted_values(r.mean)
    parts = [decoded.mean, r.log_var, *(p for _, p in decoded.log_probs)]
    parts += [] if decoded.bin_log_probs is None else [decoded.bin_log_probs]
    (gradient,) = torch.autograd.grad(sum(p[p.isfinite()].square().sum() for p in parts), num)
    assert (gradient[asked[:, :3]] == 0).all()
    assert (gradient[~asked[:, :3]] != 0).any()


@both_kinds
@pytest.mark.parametrize("missing", [False, True])
def test_the_prediction_loss_is_of_the_first_views_cells(
    settings: Architecture, missing: bool
) -> None:
    model, rows = build(settings=settings), some_rows(missing=missing)
    masks, noise = draw(model, rows)
    walk = model(rows, masks, noise)
    found = model.prediction_loss(rows, masks, walk.p_s_y)

    def nll(row: int, t: int) -> Tensor:
        j = int(masks.target[row, 0, t])
        grid = torch.zeros(1, 6, 8)
        grid[0, j] = walk.p_s_y.mean[row, 0, t]
        return model.target_decoder(grid).nll(rows.take(slice(row, row + 1)))[0, j]

    for row in range(len(rows)):
        valid = range(3)
        if masks.target_valid is not None:
            valid = masks.target_valid[row, 0].nonzero().flatten().tolist()
        expected = torch.stack([nll(row, t) for t in valid]).mean() if valid else torch.tensor(0.0)
        torch.testing.assert_close(found[row], expected)


def test_cells_that_are_drawn_are_known_and_one_of_each_row_at_least() -> None:
    rows = some_rows(400, missing=True)
    assert rows.observed is not None
    rows.observed[7] = False
    for share in (0.0, 0.25, 1.0):
        asked = draw_cells(rows, 6, share, torch.Generator().manual_seed(0))
        assert not (asked & ~rows.observed).any()
        assert torch.equal(asked.any(-1), rows.observed.any(-1))
    assert torch.equal(asked, rows.observed)
    asked = draw_cells(some_rows(4000), 6, 0.25, torch.Generator().manual_seed(0))
    none_but_one = 0.75**6 / 6  # a row without any has one
    assert asked.float().mean() == pytest.approx(0.25 + none_but_one, abs=0.01)
    again = draw_cells(some_rows(4000), 6, 0.25, torch.Generator().manual_seed(0))
    assert torch.equal(asked, again)
