"""Claims about the fused transformer, proved in Triton's interpreter (and on a GPU where one is).

1. Output and every gradient equal the plain transformer's to 1e-5 in float32: with and without
   ``valid``, for odd lengths, every width, several heads, and batches that do not fill a tile.
2. With 16-bit operands they stay within the rounding of those operands.
3. What stands at an invalid token changes nothing elsewhere, and a row without any valid token
   neither breaks itself nor its neighbours in the tile.
4. Weight gradients summed in several splits are the same; the same call gives the same bits.
5. ``can_fuse`` says no where the kernels would not serve; the chosen tile holds a sequence.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from varjepa.nn.kernels import fused_block
from varjepa.nn.kernels.fused_block import Launch, can_fuse, choose_launches, fused_transformer
from varjepa.nn.transformer import Transformer

HALF = 3e-3
"""Relative error allowed with 16-bit float operands: 2⁻¹¹ each, through a few layers."""
BRAIN = 3e-2
"""The same with bfloat16, whose operands are rounded eight times as coarsely."""
SMALL = (Launch(32, chunk=16), Launch(32, chunk=16))

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def interpreted() -> None:
    """Only where Triton was imported as an interpreter, which lasts for the whole process."""
    pytest.importorskip("triton", reason="the fused kernels need triton")
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("runs in the process that test_in_the_interpreter starts")


def test_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="the fused kernels need triton")
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("this is that process")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if "only 0-dimensional arrays can be converted" in done.stdout:
        pytest.skip("this Triton's interpreter cannot work with a numpy as new as this one")
    assert done.returncode == 0, done.stdout
    assert re.search(r"1[2-9] passed", done.stdout), done.stdout


def _net(width: int, heads: int, ff: int, depth: int = 2, device: str = "cpu") -> Transformer:
    """A transformer none of whose parameters is at its zeros and ones."""
    torch.manual_seed(1)
    net = Transformer(width, depth, heads, ff)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net.to(device)


def _batch(
    rows: int, length: int, width: int, masked: bool, device: str = "cpu"
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Tokens, their validity and a weight for each output that counts."""
    torch.manual_seed(2)
    tokens = torch.randn(rows, length, width)
    weight = torch.randn(rows, length, width)
    if not masked:
        return tokens.to(device), None, weight.to(device)
    valid = torch.rand(rows, length) > 0.4
    valid[:, length // 2] = True
    return tokens.to(device), valid.to(device), (weight * valid.unsqueeze(-1)).to(device)


def _errors(
    net: Transformer,
    tokens: Tensor,
    valid: Tensor | None,
    weight: Tensor,
    products: torch.dtype,
    launches: tuple[Launch, Launch] | None = None,
) -> dict[str, float]:
    """‖fused − plain‖ / ‖plain‖ of the output and of each gradient, plain being float64."""
    tokens = tokens.clone().requires_grad_()
    fused = fused_transformer(tokens, valid, net, products, launches)
    ours = torch.autograd.grad((fused * weight).sum(), (tokens, *net.parameters()))
    block = net.blocks[0]
    exact = Transformer(
        tokens.shape[-1],
        len(net.blocks),
        block.attention.heads,  # type: ignore[union-attr, arg-type]
        block.mlp[0].out_features,  # type: ignore[index, union-attr, arg-type]
    ).to(tokens.device, torch.float64)
    exact.load_state_dict(net.state_dict())
    wide = tokens.detach().double().requires_grad_()
    plain = exact(wide, valid)
    theirs = torch.autograd.grad((plain * weight).sum(), (wide, *exact.parameters()))
    names = ["tokens", *(name for name, _ in net.named_parameters())]
    counted = weight != 0
    fused, plain = fused.detach(), plain.detach()
    pairs = {"output": (fused * counted, plain * counted)}
    pairs |= {name: (a, b) for name, a, b in zip(names, ours, theirs, strict=True)}
    # the keys' bias has no gradient at all: a shift of every score changes no softmax
    return {n: float((a - b).norm() / b.norm().clamp_min(1e-6)) for n, (a, b) in pairs.items()}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("rows", "length", "width", "heads", "ff", "tile"),
    [
        (7, 5, 16, 4, 64, 32),  # head dimension 4, six sequences a tile
        (3, 13, 32, 2, 48, 32),  # ff not a power of two
        (4, 20, 64, 4, 64, 64),
        (2, 33, 16, 1, 16, 64),  # one long sequence a tile, one head
    ],
)
def test_float32_is_exact(
    interpreted: None,
    rows: int,
    length: int,
    width: int,
    heads: int,
    ff: int,
    tile: int,
    masked: bool,
) -> None:
    net = _net(width, heads, ff)
    launches = (Launch(tile, chunk=16), Launch(64, chunk=16))
    errors = _errors(net, *_batch(rows, length, width, masked), torch.float32, launches)
    assert max(errors.values()) < 1e-5, errors


def test_16_bit_operands(interpreted: None) -> None:
    # float16, since the interpreter has no products of bfloat16
    errors = _errors(_net(32, 4, 64), *_batch(5, 7, 32, True), torch.float16, SMALL)
    assert 1e-5 < max(errors.values()) < HALF, errors


def test_invalid_tokens_are_invisible(interpreted: None) -> None:
    net = _net(16, 2, 32)
    tokens, valid, _ = _batch(5, 6, 16, masked=True)
    assert valid is not None
    valid[2] = False  # a whole row
    other = torch.where(valid.unsqueeze(-1), tokens, 9.0 * torch.randn_like(tokens))
    one, two = (fused_transformer(t, valid, net, torch.float32, SMALL) for t in (tokens, other))
    torch.testing.assert_close(one[valid], two[valid])
    assert torch.isfinite(two).all()
    torch.testing.assert_close(one, net(tokens, valid))


def test_sums_over_splits(interpreted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    net, batch = _net(16, 4, 32), _batch(11, 9, 16, masked=True)
    monkeypatch.setattr(fused_block, "SPLIT", 40)  # three, the last of 19 tokens
    errors = _errors(net, *batch, torch.float32, SMALL)
    assert max(errors.values()) < 1e-5, errors


def test_same_call_same_bits(interpreted: None) -> None:
    net, (tokens, valid, weight) = _net(16, 4, 32), _batch(11, 9, 16, masked=True)

    def gradients() -> tuple[Tensor, ...]:
        answer = fused_transformer(tokens, valid, net, torch.float32, SMALL)
        return torch.autograd.grad((answer * weight).sum(), tuple(net.parameters()))

    assert all(map(torch.equal, gradients(), gradients()))


def test_inference_keeps_nothing(interpreted: None) -> None:
    net, (tokens, valid, _) = _net(16, 4, 32), _batch(3, 9, 16, masked=True)
    with torch.no_grad():
        answer = fused_transformer(tokens, valid, net, torch.float32, SMALL)
    assert not answer.requires_grad
    torch.testing.assert_close(answer, net(tokens, valid))


@pytest.mark.parametrize("width", fused_block.WIDTHS)
def test_tiles_hold_a_sequence(width: int) -> None:
    for rows, length in itertools.product((1, 512, 100_000), range(1, 65)):
        assert all(launch.tile >= length for launch in choose_launches(rows, length, width))
    assert {choose_launches(512, n, 64)[0].tile for n in (6, 20)} == {16, 64}


def test_refuses_the_cpu() -> None:
    assert not can_fuse(torch.randn(2, 5, 16), _net(16, 4, 32))


@on_gpu
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("rows", "length", "width", "ff"), [(101, 20, 64, 256), (67, 6, 32, 128), (77, 12, 16, 256)]
)
def test_on_a_gpu(rows: int, length: int, width: int, ff: int, masked: bool) -> None:
    pytest.importorskip("triton", reason="the fused kernels need triton")
    net, batch = _net(width, 4, ff, 4, "cuda"), _batch(rows, length, width, masked, "cuda")
    assert can_fuse(batch[0], net)
    assert not can_fuse(batch[0].repeat(1, 64, 1), net)
    errors = _errors(net, *batch, torch.bfloat16)
    assert max(errors.values()) < BRAIN, errors


@on_gpu
def test_float32_on_a_gpu() -> None:
    pytest.importorskip("triton", reason="the fused kernels need triton")
    net, batch = _net(16, 2, 32, 2, "cuda"), _batch(50, 5, 16, True, "cuda")
    # small, since products of float32 compile to long code
    launches = (Launch(16, chunk=16), Launch(16, chunk=16))
    errors = _errors(net, *batch, torch.float32, launches)
    assert max(errors.values()) < 1e-5, errors
