"""Claims about the parts.

1. Attention by plain products equals torch's fused kernel, masked or not, values and gradients.
2. What stands at an invalid token changes nothing elsewhere.
3. Pooling does not depend on the order of its tokens.
4. The tokenizer is Eq. (context-tokenization); a missing cell's value does not reach its token.
5. Grouped decoder heads equal a loop over features, and MISSING has probability 0.
6. Permuting columns together with their parameters permutes tokens and heads.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from varjepa.nn import kernels
from varjepa.nn.layers import SMALL, AttentionPooling, FeatureHeads, FeatureTokenizer, group_by_size
from varjepa.nn.transformer import Transformer, attend


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("masked", [False, True])
def test_plain_attention_is_attention(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (torch.randn(3, 2, n, 4, requires_grad=True) for n in (5, 7, 7))
    valid = torch.rand(3, 7) > 0.3 if masked else None
    if valid is not None:
        valid[:, 0] = True
    with kernels.reference_only():
        plain = attend(q, k, v, valid)
    ours = torch.autograd.grad(plain.square().sum(), (q, k, v))
    monkeypatch.setattr(kernels, "LONG_SEQUENCE", 1)
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
