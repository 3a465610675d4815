"""Claims about the parts.

1. Attention by plain products equals torch's fused kernel, masked or not, values and gradients.
2. What stands at an invalid token changes nothing elsewhere.
3. Pooling does not depend on the order of its tokens.
4. The tokenizer is Eq. (context-tokenization); a missing cell's value does not reach its token.
5. Grouped decoder heads equal a loop over features, and MISSING has probability 0.
6. Permuting columns together with their parameters permutes tokens and heads.
7. A piecewise token is linear between a column's knots and continuous at them; a missing cell has a
   token of its feature's own; an outlier, in a row or in training, changes no other token.
8. Before training, bins have the column's own shares; probabilities add up to 1; every training
   value is found in the bin that counted it.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from varjepa.nn import transformer
from varjepa.nn.layers import (
    FAR,
    SMALL,
    AttentionPooling,
    BinHeads,
    FeatureHeads,
    FeatureTokenizer,
    PiecewiseTokenizer,
    TableShape,
    group_by_size,
)
from varjepa.nn.transformer import Transformer, attend
from varjepa.tables.scaling import Bins


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("masked", [False, True])
def test_plain_attention_is_attention(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (torch.randn(3, 2, n, 4, requires_grad=True) for n in (5, 7, 7))
    valid = torch.rand(3, 7) > 0.3 if masked else None
    if valid is not None:
        valid[:, 0] = True
    with transformer.reference_only():
        plain = attend(q, k, v, valid)
    ours = torch.autograd.grad(plain.square().sum(), (q, k, v))
    monkeypatch.setattr(transformer, "LONG_SEQUENCE", 1)
    fused = attend(q, k, v, valid)
    theirs = torch.autograd.grad(fused.square().sum(), (q, k, v))
    torch.testing.assert_close(plain, fused)
    torch.testing.assert_close(ours, theirs)


def test_invalid_tokens_are_invisible() -> None:
    net = Transformer(8, depth=2, heads=2, ff=16)
    tokens = torch.randn(2, 5, 8)
    valid = torch.tensor([[True, True, True, False, False]] * 2)
    other = torch.where(valid.unsqueeze(-1), tokens, 1e3 * torch.randn(2, 5, 8))
    torch.testing.assert_close(net(tokens, valid)[:, :3], net(other, valid)[:, :3])
    torch.testing.assert_close(net(tokens, valid)[:, :3], net(tokens[:, :3], None))


def test_pooling_ignores_order() -> None:
    pool = AttentionPooling(8, pooled=3, heads=2)
    tokens = torch.randn(2, 6, 8)
    order = torch.randperm(6)
    assert pool(tokens, None).shape == (2, 3, 8)
    torch.testing.assert_close(pool(tokens, None), pool(tokens[:, order], None))


def test_tokens_follow_the_equation() -> None:
    t = FeatureTokenizer(2, [3, 4], 5)
    x_num, x_cat = torch.rand(6, 2), torch.randint(0, 3, (6, 2))
    tokens = t(x_num, x_cat, None)
    numeric = x_num[:, 1:2] * t.weight + t.bias[1] + t.kind[0] + t.position[1]
    categorical = t.embedding[3 + x_cat[:, 1]] + t.kind[1] + t.position[3]
    torch.testing.assert_close(tokens[:, 1], numeric)
    torch.testing.assert_close(tokens[:, 3], categorical)


def test_a_missing_cell_is_its_own_token() -> None:
    t = FeatureTokenizer(2, [3], 5)
    observed = torch.tensor([[True, False, False]])
    one = t(torch.tensor([[0.3, 9.0]]), torch.tensor([[1]]), observed)
    other = t(torch.tensor([[0.3, -5.0]]), torch.tensor([[2]]), observed)
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(one[0, 1], t.missing + t.position[1])


def test_grouped_heads_equal_a_loop() -> None:
    levels = [3, 600, 2, 700, 4]
    heads = FeatureHeads(2, levels, 6)
    assert len(heads.groups) == 2
    s = torch.randn(7, 7, 6)
    torch.testing.assert_close(
        heads.means(s)[:, 1], s[:, 1] @ heads.weight[1] + heads.bias[1], rtol=1e-5, atol=1e-6
    )
    seen = []
    for (features, log_probs), group in zip(heads.log_probs(s), heads.groups, strict=True):
        for g, feature in enumerate(features.tolist()):
            seen.append(feature)
            count = levels[feature - 2]
            logits = s[:, feature] @ group.weight[g] + group.bias[g, 0]
            expected = logits[:, 1:count].log_softmax(-1)
            torch.testing.assert_close(log_probs[:, g, 1:count], expected)
            assert (log_probs[:, g, 0] == -torch.inf).all()
            assert (log_probs[:, g, count:] == -torch.inf).all()
    assert sorted(seen) == [2, 3, 4, 5, 6]


def test_groups_waste_little() -> None:
    levels = [2, 1000, 3, 4, 900, 5, 17]
    groups = group_by_size(levels)
    assert sorted(j for group in groups for j in group) == list(range(7))
    for group in groups:
        sizes = [levels[j] for j in group]
        assert max(sizes) <= 2 * min(sizes) or max(sizes) * len(sizes) <= SMALL
    assert groups == [[0, 2, 3, 5, 6], [1, 4]]  # in feature order, however the sizes are ordered


def test_columns_permute_with_their_parameters() -> None:
    t = FeatureTokenizer(3, [], 4)
    order = torch.tensor([2, 0, 1])
    permuted = FeatureTokenizer(3, [], 4)
    permuted.load_state_dict(
        {**t.state_dict(), "bias": t.bias[order].data, "position": t.position[order].data}
    )
    x, nothing = torch.rand(5, 3), torch.empty(5, 0, dtype=torch.long)
    torch.testing.assert_close(permuted(x[:, order], nothing, None), t(x, nothing, None)[:, order])


def test_widths_that_do_not_divide_are_refused() -> None:
    for build in (lambda: Transformer(10, 1, 3, 8), lambda: AttentionPooling(10, 2, 3)):
        with pytest.raises(ValueError, match="not a multiple"):
            build()
    assert isinstance(Transformer(9, 1, 3, 8), nn.Module)


# --- 7 and 8


def spiked(rows: int = 400) -> torch.Tensor:
    """A skewed column, one of a few values and one with a spike.  # (rows, 3)"""
    g = torch.Generator().manual_seed(3)
    skewed = torch.randn(rows, generator=g).exp()
    few = torch.randint(0, 4, (rows,), generator=g).float()
    spike = torch.where(
        torch.rand(rows, generator=g) < 0.6, torch.zeros(()), torch.rand(rows, generator=g)
    )
    return torch.stack([skewed, few, spike], 1)


def binned(x: torch.Tensor, most: int = 12) -> TableShape:
    bins = tuple(Bins.fit(column.double().numpy(), most) for column in x.T)
    return TableShape(x.shape[1], (4,), bins)


def test_piecewise_tokens_are_continuous_and_linear_between_knots() -> None:
    shape = binned(spiked())
    t = PiecewiseTokenizer(shape, 5, std=0.5)

    def tokens(j: int, values: list[float]) -> torch.Tensor:
        x = torch.zeros(len(values), 3)
        x[:, j] = torch.tensor(values)
        return t(x, torch.ones(len(values), 1, dtype=torch.long), None)[:, j]

    for j, bins in enumerate(shape.bins):
        knots = [k for k in bins.knots if abs(k) < FAR]
        for low, high in pairwise(knots):
            left, middle, right = tokens(j, [low, (low + high) / 2, high])
            torch.testing.assert_close(middle, (left + right) / 2, rtol=1e-4, atol=1e-4)
        for knot in knots:
            before, at, after = tokens(j, [knot - 1e-6, knot, knot + 1e-6])
            torch.testing.assert_close(before, at, rtol=0, atol=5e-3)
            torch.testing.assert_close(after, at, rtol=0, atol=5e-3)
        far, farther = tokens(j, [FAR + max(bins.knots), 1e9])
        torch.testing.assert_close(far, farther)  # an outlier is no louder than a large value


def test_a_missing_cell_has_a_token_of_its_own_in_every_feature() -> None:
    t = PiecewiseTokenizer(binned(spiked()), 5, std=0.5)
    observed = torch.tensor([[True, False, True, False]])
    one = t(torch.tensor([[0.3, 2.0, 0.0]]), torch.tensor([[1]]), observed)
    other = t(torch.tensor([[0.3, 1e6, 0.0]]), torch.tensor([[2]]), observed)
    assert torch.equal(one, other)
    assert torch.equal(one[0, [1, 3]], t.missing[[1, 3]])


def test_an_outlier_changes_no_other_token() -> None:
    # one value of 1e6 among the training values: the others keep their knots, all but the last
    x = spiked()[:, :1]
    spoilt = x.clone()
    spoilt[int(x.argmax())] = 1e6
    shapes = [TableShape(1, (), binned(values).bins) for values in (x, spoilt)]
    assert shapes[0].bins[0].knots[:-1] == shapes[1].bins[0].knots[:-1]
    tokens = []
    for shape in shapes:
        torch.manual_seed(0)
        t = PiecewiseTokenizer(shape, 5, std=0.5)
        tokens.append(t(x, torch.empty(len(x), 0, dtype=torch.long), None))
    inside = x[:, 0] <= shapes[0].bins[0].knots[-2]
    assert inside.float().mean() > 0.9
    assert torch.equal(tokens[0][inside], tokens[1][inside])


def test_bins_begin_with_the_columns_own_distribution() -> None:
    x = spiked()
    shape = binned(x)
    heads = BinHeads(shape.bins, 6)
    s = 10 * torch.randn(7, 4, 6)
    log_probs = heads(s)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(7, 3))
    for j, bins in enumerate(shape.bins):
        expected = torch.tensor(bins.share).expand(7, -1)
        torch.testing.assert_close(log_probs[:, j, : len(bins)].exp(), expected)
        assert (log_probs[:, j, len(bins) :] < -100).all()  # padding
    with torch.no_grad():
        heads.weight.normal_()
    torch.testing.assert_close(heads(s).exp().sum(-1), torch.ones(7, 3))
    assert not torch.allclose(heads(s)[0], heads(s)[1])


def test_every_training_value_is_in_its_bin() -> None:
    x = spiked()
    shape = binned(x)
    heads = BinHeads(shape.bins, 6)
    index = heads.index(x)
    for j, bins in enumerate(shape.bins):
        assert index[:, j].tolist() == bins.index(x[:, j].double().numpy()).tolist()
        counted = torch.bincount(index[:, j], minlength=len(bins)) / len(x)
        torch.testing.assert_close(counted, torch.tensor(bins.share))
        low, high = heads.low[j, index[:, j]], heads.high[j, index[:, j]]
        assert ((low <= x[:, j]) & (x[:, j] <= high)).all()
    outside = heads.index(torch.tensor([[-1e9] * 3, [1e9] * 3]))
    assert outside.tolist() == [[0, 0, 0], [len(b) - 1 for b in shape.bins]]


def test_neighbouring_floats_have_bins_of_their_own() -> None:
    x = [torch.tensor(1.0)]
    for _ in range(4):
        x.append(x[-1].nextafter(torch.tensor(2.0)))
    values = torch.stack(x)
    heads = BinHeads([Bins.fit(values.double().numpy())], 6)
    assert heads.index(values.unsqueeze(1)).flatten().tolist() == [0, 1, 2, 3, 4]


def test_a_feature_without_values_has_finite_probabilities() -> None:
    heads = BinHeads([Bins(), Bins.fit(spiked()[:, 0].double().numpy())], 6)
    assert heads(torch.randn(2, 2, 6)).isfinite().all()
    assert heads.index(torch.zeros(2, 2))[:, 0].tolist() == [0, 0]
