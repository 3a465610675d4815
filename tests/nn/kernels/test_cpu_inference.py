"""Claims about the blocks that compute without gradients.

1. They equal the plain blocks to 1e-5, masked or not, for all tokens and for the last few, and so
   does pooling; with gradients asked for, or in other precisions, the plain way is taken.
2. So they do for tokens far from mean 0, any weights of the norms, and rows in several parts.
3. Scores far outside of what a power of two can hold give what a softmax gives.
4. A row's result is the same to the last bit, whatever rows come with it and wherever it stands.
5. Nothing of the weights is kept: a changed weight counts at once.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from varjepa.nn.kernels import cpu, reference_only
from varjepa.nn.kernels.cpu import Attention, can_infer
from varjepa.nn.layers import AttentionPooling
from varjepa.nn.transformer import Transformer

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN"
)


def make(width: int = 64) -> tuple[Transformer, Tensor, Tensor]:
    torch.manual_seed(0)
    valid = torch.rand(40, 9) > 0.3
    valid[:, -1] = True
    net = Transformer(width, 3, 4, 2 * width)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_()
    return net, torch.randn(40, 9, width), valid


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("keep", [1, 4, 9])
@pytest.mark.parametrize("width", [16, 64])
@torch.no_grad()
def test_the_plain_block(masked: bool, keep: int, width: int) -> None:
    net, tokens, valid = make(width)
    assert can_infer(tokens)
    ours = net(tokens, valid if masked else None, keep)
    with reference_only():
        theirs = net(tokens, valid if masked else None, keep)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_pooling(masked: bool) -> None:
    _, tokens, valid = make()
    pool = AttentionPooling(64, pooled=3, heads=4)
    ours = pool(tokens, valid if masked else None)
    with reference_only():
        theirs = pool(tokens, valid if masked else None)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1e-3, 30.0, 1e4])
@torch.no_grad()
def test_scores_of_any_size(size: float) -> None:
    _, tokens, valid = make()
    net = Transformer(64, 1, 4, 128)
    net.blocks[0].attention.project_in.weight.mul_(size**0.5)
    ours = net(tokens, valid)
    assert ours.isfinite().all()
    with reference_only():
        torch.testing.assert_close(ours, net(tokens, valid), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_wild_row_leaves_others_alone() -> None:
    torch.manual_seed(0)
    attention = Attention(torch.empty(6, 5, 16), rows=6, length=5, asked=5, heads=2)
    qkv = torch.randn(6, 5, 48)

    def attend() -> Tensor:
        attention.qkv.copy_(qkv.view(30, 48))
        return attention.attend(None).clone().view(6, 5, 16)

    alone = attend()
    qkv[2] *= 1e3
    changed = attend()
    others = [0, 1, 3, 4, 5]
    assert torch.equal(changed[others], alone[others])
    q, k, v = qkv[2].view(5, 3, 2, 8).permute(1, 2, 0, 3)
    expected = (q @ k.mT * math.log(2.0)).softmax(-1) @ v  # (H, S, d_head)
    torch.testing.assert_close(changed[2], expected.transpose(0, 1).reshape(5, 16))


@pytest.mark.parametrize("tokens_together", [1, 100, 250])
@pytest.mark.parametrize("keep", [4, 9])
@torch.no_grad()
def test_rows_in_parts(tokens_together: int, keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net, tokens, valid = make()
    tokens += 5.0
    monkeypatch.setattr(cpu, "TOKENS", tokens_together)  # parts of 16, 16, 32 rows
    rows = 39  # of which the last part has too few of its own
    ours = net(tokens[:rows], valid[:rows], keep)
    order = torch.randperm(rows)
    assert torch.equal(net(tokens[order], valid[order], keep), ours[order])
    with reference_only():
        theirs = net(tokens[:rows], valid[:rows], keep)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_changed_weight_counts_at_once() -> None:
    net, tokens, _ = make()
    before = net(tokens)
    net.blocks[1].mlp[2].bias.data[0] += 1.0  # which no version counter sees
    assert not torch.equal(net(tokens), before)


@torch.no_grad()
def test_a_rows_place_does_not_matter() -> None:
    net, tokens, valid = make()
    order = torch.randperm(len(tokens))
    assert torch.equal(net(tokens[order], valid[order]), net(tokens, valid)[order])
    others = torch.cat([tokens[:7], torch.randn(33, 9, 64)])
    assert torch.equal(net(others)[:7], net(tokens)[:7])


def test_gradients_and_other_numbers_go_the_plain_way() -> None:
    assert not can_infer(torch.zeros(2, 3, 8))
    with torch.no_grad():
        assert can_infer(torch.zeros(2, 3, 8))
        assert not can_infer(torch.zeros(2, 3, 8, dtype=torch.float64))
