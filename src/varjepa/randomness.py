"""Seeds: every random number comes from a generator that somebody passed in.

One seed serves several purposes (data, initial weights, noise); each gets its own stream, so that
drawing more of one never shifts another.
"""

from __future__ import annotations

import hashlib

import torch


def generator_for(seed: int, purpose: str) -> torch.Generator:
    """An independent stream for one purpose of one seed, the same on every machine."""
    digest = hashlib.sha256(f"{seed}:{purpose}".encode()).digest()
    # manual_seed takes 64 bits, of which the sign bit is best left alone
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
