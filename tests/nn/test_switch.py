"""Claims about the one switch of the fast paths.

1. On a CPU long sequences take ``attend_long``, with and without gradients, in pooling too; short
   ones take the reference.
2. Inside of ``reference_only`` no fast path is taken; afterwards they are, even after an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from varjepa.nn import transformer
from varjepa.nn.layers import AttentionPooling
from varjepa.nn.transformer import Transformer


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the fast paths that were taken."""
    names: set[str] = set()
    path = transformer.attend_long

    def recorded(*arguments: Any, **options: Any) -> Any:
        names.add("attend_long")
        return path(*arguments, **options)

    monkeypatch.setattr(transformer, "attend_long", recorded)
    return names


def run(length: int = 5) -> None:
    torch.manual_seed(0)
    Transformer(8, depth=2, heads=2, ff=16)(torch.randn(3, length, 8))


def pool(length: int = 5) -> None:
    AttentionPooling(8, pooled=2, heads=2)(torch.randn(3, length, 8), None)


@pytest.mark.parametrize("use", [run, pool])
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("length", [5, transformer.LONG_SEQUENCE])
def test_on_a_cpu(
    use: Callable[[int], None], gradients: bool, length: int, taken: set[str]
) -> None:
    with torch.set_grad_enabled(gradients):
        use(length)
    assert taken == ({"attend_long"} if length == transformer.LONG_SEQUENCE else set())


@pytest.mark.parametrize("gradients", [True, False])
def test_the_reference_alone(gradients: bool, taken: set[str]) -> None:
    with torch.set_grad_enabled(gradients):
        with pytest.raises(KeyError), transformer.reference_only():
            for length in (5, transformer.LONG_SEQUENCE):
                run(length)
                pool(length)
            raise KeyError
        assert taken == set()
        run(transformer.LONG_SEQUENCE)
    assert taken
