"""A claim, and whether result rows show it; what is missing is neither for nor against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim about results."""

    claim: str
    holds: bool | None
    """None: open, because cells that would decide it are missing"""
    evidence: str


def at_least(count: int, goal: int, missing: int) -> bool | None:
    """Whether enough cells are for a claim; open as long as missing ones could decide.

    Examples:
        >>> at_least(160, 160, 8), at_least(150, 160, 9), at_least(150, 160, 10)
        (True, False, None)
    """
    if count >= goal:
        return True
    return False if count + missing < goal else None


def at_most(amount: float, goal: float, missing: int) -> bool | None:
    """The same for what may only grow with the missing ones.

    Examples:
        >>> at_most(5, 3, 1), at_most(2, 3, 1), at_most(3, 3, 0)
        (False, None, True)
    """
    if amount > goal:
        return False
    return None if missing else True


def counted(names: Iterable[str]) -> str:
    """How often each name occurs, in their order.

    Examples:
        >>> counted(["sim", "adult", "sim"])
        'sim 2, adult 1'
    """
    return ", ".join(f"{name} {count}" for name, count in Counter(names).items())


def with_missing(evidence: str, missing: int) -> str:
    """Evidence that says how much of it is not there."""
    return f"{evidence}; {missing} missing" if missing else evidence
