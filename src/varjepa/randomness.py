"""Seeds: every random number comes from a generator that somebody passed in.

One seed serves several purposes (data, initial weights, noise); each gets its own stream, so that
drawing more of one never shifts another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def generator_for(seed: int, purpose: str) -> torch.Generator:
    """An independent stream for one purpose of one seed, the same on every machine."""
    digest = hashlib.sha256(f"{seed}:{purpose}".encode()).digest()
    # manual_seed takes 64 bits, of which the sign bit is best left alone
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@contextmanager
def seeded_weights(seed: int) -> Iterator[None]:
    """Build torch modules with initial weights fixed by the seed.

    torch.nn draws initial weights from the global generator only; it is borrowed and put back.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator_for(seed, "weights").initial_seed())
        yield
