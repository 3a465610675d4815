"""Claims about the transformer.

1. A transformer with torch's attention kernel is the reference, values and gradients, masked or
   not, for all tokens and for the last few; with heads padded to what a GPU wants too.
2. The transformer's gradients agree with finite differences.
3. A transformer asked for its last tokens gives what it gives for all of them.
4. Tokens that nothing attends to are as tokens that are not valid, values and gradients; and none
   of them changes another.
5. Without gradients a row's result is the same to the last bit, wherever it stands in its block.
"""

from __future__ import annotations

import pytest
import torch

from varjepa.nn import transformer
from varjepa.nn.transformer import Transformer, attend_long, reference_only


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("keep", [2, 4])
def test_the_reference(masked: bool, keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "LONG_SEQUENCE", 1)
    torch.manual_seed(0)
    net = Transformer(8, depth=2, heads=2, ff=12).double()
    tokens = torch.randn(5, 4, 8, dtype=torch.float64, requires_grad=True)
    valid = torch.tensor([[True, False, True, True]] * 5) if masked else None
    inputs, weight = (tokens, *net.parameters()), torch.randn(5, keep, 8).double()
    ours = net(tokens, valid, keep)
    gradients = torch.autograd.grad((ours * weight).sum(), inputs)
    assert torch.autograd.gradcheck(lambda x: net(x, valid, keep), (tokens,))
    with reference_only():
        theirs = net(tokens, valid, keep)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradients, torch.autograd.grad((theirs * weight).sum(), inputs))


@torch.no_grad()
def test_a_rows_place_does_not_matter() -> None:
    torch.manual_seed(0)
    net, tokens, valid = Transformer(64, 3, 4, 128), torch.randn(40, 9, 64), torch.rand(40, 9) > 0.3
    valid[:, -1] = True
    order = torch.randperm(len(tokens))
    assert torch.equal(net(tokens[order], valid[order]), net(tokens, valid)[order])
    others = torch.cat([tokens[:7], torch.randn(33, 9, 64)])
    assert torch.equal(net(others)[:7], net(tokens)[:7])


@pytest.mark.parametrize("width", [16, 64])
def test_the_last_tokens_alone(width: int) -> None:
    torch.manual_seed(0)
    net, tokens = Transformer(width, depth=2, heads=4, ff=32), torch.randn(3, 6, width)
    torch.testing.assert_close(net(tokens, keep=2), net(tokens)[:, -2:])
    valid = torch.tensor([[True, False, True, True, True, True]] * 3)
    torch.testing.assert_close(net(tokens, valid, keep=2), net(tokens, valid)[:, -2:])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("keep", [3, 5])
def test_tokens_that_nothing_attends_to(masked: bool, keep: int) -> None:
    torch.manual_seed(0)
    net = Transformer(8, depth=2, heads=2, ff=12).double()
    tokens = torch.randn(4, 5, 8, dtype=torch.float64, requires_grad=True)
    valid = torch.tensor([[True, False], [False, True], [True, True], [False, True]])
    valid = valid if masked else torch.ones_like(valid)
    inputs, weight = (tokens, *net.parameters()), torch.randn(4, keep, 8).double()
    ours = net(tokens, valid if masked else None, keep, known=2)
    theirs = net(tokens, torch.nn.functional.pad(valid, (0, 3), value=False), keep)
    torch.testing.assert_close(ours, theirs)
    gradients = (torch.autograd.grad((y * weight).sum(), inputs) for y in (ours, theirs))
    for own, their in zip(*gradients, strict=True):
        torch.testing.assert_close(own, their)
    changed = tokens.detach().clone()
    changed[:, 3] += 1.0
    after = net(changed, valid if masked else None, keep, known=2)
    assert not torch.equal(after[:, -2], ours[:, -2])
    torch.testing.assert_close(after[:, [-3, -1]], ours[:, [-3, -1]], rtol=0, atol=0)


@pytest.mark.parametrize("masked", [False, True])
def test_long_sequences_with_padded_heads_are_attention(masked: bool) -> None:
    g = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(3, 2, n, 4, generator=g, dtype=torch.float64) for n in (5, 130, 130))
    valid = torch.rand(3, 130, generator=g) > 0.4
    bias = torch.zeros(3, 1, 1, 130, dtype=torch.float64)
    if masked:
        bias = bias.masked_fill(~valid[:, None, None, :], -1e300)
    expected = (q @ k.transpose(-1, -2) / 2.0 + bias).softmax(-1) @ v  # √4
    for multiple in (1, 8):
        found = attend_long(q, k, v, bias if masked else None, multiple)
        torch.testing.assert_close(found, expected)
