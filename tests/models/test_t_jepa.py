"""Claims about T-JEPA.

1. Shapes; every parameter of context encoder and predictor gets a gradient, none of the target
   encoder does.
2. The prediction does not change when anything of w but its context does; the targets do.
3. The loss is Eq. (tjepa-loss), computed here once more with loops.
4. The moving average is m θ_trg + (1 − m) θ_ctx with m on its way from 0.996 to 1, for a number and
   for a tensor alike; it starts as a copy.
5. Auxiliary tokens take part in the prediction, and none are needed.
6. Missing cells: their stored values change nothing; a row without any observed cell is finite.
7. Places that only fill a recorded step's bucket up change nothing.
8. An embedding is the target encoder's, and does not depend on the other rows.
9. A step reads nothing back from the device, so it can be recorded.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from varjepa.models.masking import FeatureMasks, draw_masks
from varjepa.models.t_jepa import TJepa, embed_points, embed_points_in_blocks
from varjepa.nn.layers import TableShape
from varjepa.randomness import seeded_weights
from varjepa.settings import PointArchitecture, PointObjective
from varjepa.tables.codec import EncodedTable
from varjepa.training.losses import Draw, TJepaLoss

MOMENTUM = PointObjective().momentum
SMALL = PointArchitecture(
    d=8, depth=1, heads=2, ff=16, predictor_width=8, predictor_depth=1, predictor_heads=2,
    predictor_ff=16, n_cls=2, n_aux=3,
)  # fmt: skip
SHAPE = TableShape(3, (3, 5, 40))


def build(shape: TableShape = SHAPE, settings: PointArchitecture = SMALL) -> TJepa:
    with seeded_weights(0):
        return TJepa(shape, settings)


def some_rows(n: int = 12, shape: TableShape = SHAPE, missing: bool = False) -> EncodedTable:
    g = torch.Generator().manual_seed(1)
    num = torch.rand(n, shape.numeric, generator=g)
    columns = [torch.randint(1, levels, (n, 1), generator=g) for levels in shape.levels]
    cat = torch.cat([*columns, torch.empty(n, 0, dtype=torch.long)], dim=1)
    observed = torch.rand(n, shape.features, generator=g) > 0.4 if missing else None
    return EncodedTable(num, cat, observed)


def draw(rows: EncodedTable, bucket: tuple[int, int] | None = None) -> FeatureMasks:
    g = torch.Generator().manual_seed(2)
    return draw_masks(len(rows), SHAPE.features, rows.observed, (2, 3), 2, g, bucket)


def loss_of(model: TJepa, rows: EncodedTable, masks: FeatureMasks) -> torch.Tensor:
    return model.distance(model(rows, masks), embed_points(model, rows), masks)


def test_gradients_reach_everything_but_the_target_encoder() -> None:
    model, rows = build(), some_rows(missing=True)
    masks = draw(rows)
    assert model(rows, masks).shape == (12, 2, 3, 8)
    assert model.s_w(rows).shape == (12, 2 + 6, 8)
    loss_of(model, rows, masks).mean().backward()
    for name, parameter in model.named_parameters():
        if name.startswith("target_encoder."):
            assert not parameter.requires_grad and parameter.grad is None, name
        elif name != "context_encoder.tokenizer.missing":  # a missing cell is never context
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_no_gradient_through_the_targets_even_if_asked() -> None:
    model, rows = build(), some_rows()
    model.target_encoder.requires_grad_(True)
    loss_of(model, rows, draw(rows)).mean().backward()
    assert all(p.grad is None for p in model.target_encoder.parameters())


def test_the_predictor_never_sees_the_targets() -> None:
    model, rows = build(), some_rows()
    masks = draw(rows)
    hidden = torch.ones(12, 6, dtype=torch.bool).scatter(1, masks.context, False)
    other = EncodedTable(
        torch.where(hidden[:, :3], 1 - rows.num, rows.num),
        torch.where(hidden[:, 3:], 1 + rows.cat % 2, rows.cat),
        None,
    )
    assert torch.equal(model(rows, masks), model(other, masks))
    assert not torch.equal(embed_points(model, rows), embed_points(model, other))


@pytest.mark.parametrize("missing", [False, True])
def test_the_loss_is_the_papers(missing: bool) -> None:
    model, rows = build(), some_rows(missing=missing)
    masks = draw(rows)
    s_y, s_w = model(rows, masks).detach(), embed_points(model, rows)
    expected = []
    for i in range(12):
        squares = [
            sum((float(a) - float(b)) ** 2 for a, b in zip(s_y[i, k, m], s_w[i, j], strict=True))
            for k in range(2)
            for m, j in enumerate(masks.target[i, k])
            if masks.target_valid is None or masks.target_valid[i, k, m]
        ]
        expected.append(sum(squares) / max(1, len(squares)))
    torch.testing.assert_close(
        loss_of(model, rows, masks), torch.tensor(expected), rtol=1e-4, atol=1e-5
    )


def test_the_target_encoder_follows() -> None:
    model = build()
    target, context = model.target_encoder.state_dict(), model.context_encoder.state_dict()
    assert all(torch.equal(target[name], context[name]) for name in context)
    with torch.no_grad():
        for parameter in model.context_encoder.parameters():
            parameter.add_(1.0)
    before = {name: value.clone() for name, value in target.items()}

    def moved() -> torch.Tensor:
        return torch.cat([(target[name] - before[name]).flatten() for name in target])

    model.follow(0.0, MOMENTUM)
    torch.testing.assert_close(moved(), torch.full_like(moved(), 0.004))
    model.follow(torch.tensor(0.5), MOMENTUM)  # the distance left is 0.996, the momentum 0.998
    expected = 0.004 + 0.002 * 0.996
    torch.testing.assert_close(moved(), torch.full_like(moved(), expected))
    halfway = moved()
    model.follow(1.0, MOMENTUM)
    assert torch.equal(moved(), halfway)


def test_settings_are_checked() -> None:
    for wrong in (
        {"d": 9}, {"predictor_width": 7}, {"n_cls": 0}, {"n_aux": -1},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"multiple|n_cls|n_aux"):
            replace(SMALL, **wrong)
    with pytest.raises(ValueError, match="momentum"):
        PointObjective(momentum=(1.0, 0.9))


def test_auxiliary_tokens_take_part() -> None:
    model, rows = build(), some_rows()
    masks = draw(rows)
    before = model(rows, masks)
    with torch.no_grad():
        model.predictor.aux[1] += torch.arange(8.0)
    assert not torch.allclose(before, model(rows, masks))
    without = build(settings=replace(SMALL, n_aux=0))
    assert without(rows, masks).isfinite().all()


def test_what_a_missing_cell_stores_changes_nothing() -> None:
    model, rows = build(), some_rows(missing=True)
    assert rows.observed is not None
    rows.observed[3] = False
    masks = draw(rows)
    missing = ~rows.observed
    other = EncodedTable(
        torch.where(missing[:, :3], 7.0, rows.num),
        torch.where(missing[:, 3:], 0, rows.cat),
        rows.observed,
    )
    loss = loss_of(model, rows, masks)
    assert loss.isfinite().all()
    assert torch.equal(loss, loss_of(model, other, masks))
    assert torch.equal(embed_points(model, rows), embed_points(model, other))


def test_room_changes_nothing() -> None:
    model, rows = build(), some_rows(missing=True)
    tight, roomy = draw(rows), draw(rows, bucket=(5, 4))
    assert roomy.context.shape == (12, 5)
    torch.testing.assert_close(loss_of(model, rows, tight), loss_of(model, rows, roomy))


def test_embeddings_are_the_target_encoders_row_by_row() -> None:
    model, rows = build(), some_rows(300)
    whole = embed_points_in_blocks(model, rows)
    assert whole.shape == (300, 6, 8)
    assert torch.equal(whole[17:18], embed_points_in_blocks(model, rows.take(slice(17, 18))))
    with torch.no_grad():
        for parameter in model.context_encoder.parameters():
            parameter.zero_()
    assert torch.equal(whole, embed_points_in_blocks(model, rows))
    with torch.no_grad():
        model.target_encoder.tokenizer.position += torch.randn(6, 8)
    assert not torch.allclose(whole, embed_points_in_blocks(model, rows))


def test_a_step_reads_nothing_back() -> None:
    """Tensors on torch's "meta" device have no values: whoever asks for one fails."""
    rows = some_rows(missing=True)
    masks = draw(rows, bucket=(5, 4))
    model = build().to("meta")
    w, m = (
        type(thing)(*(getattr(thing, field.name).to("meta") for field in fields(thing)))
        for thing in (rows, masks)
    )
    step = TJepaLoss(model, PointObjective()).losses(w, Draw(m, None), torch.ones(3, device="meta"))
    step.descended.mean().backward()
    model.follow(torch.zeros((), device="meta"), MOMENTUM)
    assert step.loss.shape == (12,)


def test_a_table_of_one_column_works() -> None:
    shape = TableShape(1)
    model, rows = build(shape), some_rows(shape=shape)
    g = torch.Generator().manual_seed(2)
    masks = draw_masks(12, 1, None, (0, 1), 2, g)
    assert loss_of(model, rows, masks).isfinite().all()
