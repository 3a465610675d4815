"""Claims about attention over a handful of tokens.

1. Both ways, heads apart and heads together, equal plain attention: values and gradients, masked
   or not, for all queries and for the last few.
2. The hand-written block equals the plain one in every gradient, which agrees with finite
   differences.
3. A transformer asked for its last tokens gives what it gives for all of them.
4. Long sequences, with heads padded to what a GPU wants, are the same attention.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from varjepa.nn.kernels import attend_long, cpu, reference_only
from varjepa.nn.transformer import Transformer, attend


def plain(qkv: Tensor, heads: int, valid: Tensor | None, queries: int) -> Tensor:
    rows, length, _ = qkv.shape
    q, k, v = qkv.view(rows, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
    with reference_only():
        return attend(q[:, :, -queries:], k, v, valid).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("narrow", [0, 99])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("queries", [1, 3, 5])
def test_both_ways_are_attention(
    narrow: int, masked: bool, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "NARROW", narrow)
    g = torch.Generator().manual_seed(0)
    qkv = torch.randn(6, 5, 24, generator=g, dtype=torch.float64)
    valid = torch.rand(6, 5, generator=g) > 0.4 if masked else None
    bias = None
    if valid is not None:
        valid[:, 0] = True
        bias = torch.zeros(6, 5, dtype=torch.float64).masked_fill(~valid, -1e300)
    weight = torch.randn(6, queries, 8, generator=g, dtype=torch.float64)
    ours, kept = cpu.attend_shortly(qkv, 2, bias, queries)
    gradient = cpu.attend_shortly_backward(weight, kept, 2)
    qkv.requires_grad_()
    theirs = plain(qkv, 2, valid, queries)
    torch.testing.assert_close(ours, theirs.detach())
    torch.testing.assert_close(gradient, *torch.autograd.grad((theirs * weight).sum(), qkv))


@pytest.mark.parametrize("narrow", [0, 99])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("keep", [2, 4])
def test_the_block_by_hand(
    narrow: int, masked: bool, keep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "NARROW", narrow)
    torch.manual_seed(0)
    net = Transformer(8, depth=1, heads=2, ff=12).double()
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


@pytest.mark.parametrize("width", [16, 64])
def test_the_last_tokens_alone(width: int) -> None:
    torch.manual_seed(0)
    net, tokens = Transformer(width, depth=2, heads=4, ff=32), torch.randn(3, 6, width)
    torch.testing.assert_close(net(tokens, keep=2), net(tokens)[:, -2:])
    valid = torch.tensor([[True, False, True, True, True, True]] * 3)
    torch.testing.assert_close(net(tokens, valid, keep=2), net(tokens, valid)[:, -2:])


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
