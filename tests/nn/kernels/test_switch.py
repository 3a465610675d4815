"""Claims about the one switch of the fast paths.

1. On a CPU: gradients take ``run_block``, inference ``infer_blocks``, long sequences
   ``attend_long``, autocast the reference; pooling follows the same rule.
2. Inside of ``reference_only`` no fast path is taken; afterwards they are, even after an error.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from varjepa.nn import kernels
from varjepa.nn.layers import AttentionPooling
from varjepa.nn.transformer import Transformer

FAST = ("run_block", "infer_blocks", "attend_to_keys", "attend_long")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the fast paths that were taken."""
    names: set[str] = set()

    def record(name: str) -> Any:
        path = getattr(kernels, name)

        def recorded(*arguments: Any, **options: Any) -> Any:
            names.add(name)
            return path(*arguments, **options)

        return recorded

    for name in FAST:
        monkeypatch.setattr(kernels, name, record(name))
    return names


def run(length: int = 5) -> None:
    torch.manual_seed(0)
    Transformer(8, depth=2, heads=2, ff=16)(torch.randn(3, length, 8))


def pool(length: int = 5) -> None:
    AttentionPooling(8, pooled=2, heads=2)(torch.randn(3, length, 8), None)


def test_with_gradients(taken: set[str]) -> None:
    run()
    pool()
    assert taken == {"run_block"}


@torch.no_grad()
def test_without_gradients(taken: set[str]) -> None:
    run()
    assert taken == {"infer_blocks"}
    pool()
    assert taken == {"infer_blocks", "attend_to_keys"}


def test_long_sequences(taken: set[str]) -> None:
    run(kernels.LONG_SEQUENCE)
    pool(kernels.LONG_SEQUENCE)
    assert taken == {"attend_long"}


def test_autocast(taken: set[str]) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        run()
    assert taken == set()


@pytest.mark.parametrize("gradients", [True, False])
def test_the_reference_alone(gradients: bool, taken: set[str]) -> None:
    with torch.set_grad_enabled(gradients):
        with pytest.raises(KeyError), kernels.reference_only():
            for length in (5, kernels.LONG_SEQUENCE):
                run(length)
                pool(length)
            raise KeyError
        assert taken == set()
        run()
    assert taken
