"""How classes and curves look: colours, shapes and dashes that do not rest on colour alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Corners = tuple[tuple[float, float], ...]

# Okabe–Ito, strongest on white first: eight colours that the colour-blind can tell apart
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#000000",
    "#f0e442",
)
GREY = "#8a8f98"


def _star(points: int, turn: float, *, inner: float = 1.0, size: float = 1.0) -> Corners:
    """Corners at radius `size` and `size · inner` in turn; `turn` in eighths of a circle."""
    steps = range(2 * points)
    radii = [size if i % 2 == 0 else size * inner for i in steps]
    angles = [math.pi * (turn / 4 + i / points) for i in steps]
    return tuple(
        (round(r * math.cos(a), 3), round(r * math.sin(a), 3))
        for r, a in zip(radii, angles, strict=True)
    )


DISC = _star(8, 0, size=0.8)
# all of about one area; an inner radius of cos(π/points) makes a star a polygon
_SHAPES = (
    DISC,
    _star(4, 1, inner=math.cos(math.pi / 4)),  # square
    _star(3, 2, inner=0.5, size=1.2),  # triangle
    _star(4, 2, inner=math.cos(math.pi / 4)),  # diamond
    _star(3, -2, inner=0.5, size=1.2),  # triangle pointing down
    _star(4, 1, inner=0.4, size=1.25),  # cross
    _star(5, 2, inner=0.4, size=1.25),  # star
    _star(4, 2, inner=0.4, size=1.25),  # upright cross
)


@dataclass(frozen=True)
class Mark:
    """How the points of one class look; shape and colour both differ, so that grey prints read."""

    colour: str
    """as #rrggbb"""
    corners: Corners
    """polygon around 0 of about two square units, y upwards"""


@dataclass(frozen=True)
class Stroke:
    """How one curve looks; dashes differ as well as colours."""

    colour: str
    """as #rrggbb"""
    dashes: tuple[float, ...]
    """lengths drawn and skipped in turn; empty: solid"""
    width: float
    """in points"""


def class_marks(count: int, *, has_rest: bool) -> list[Mark]:
    """One mark per class, at most eight; the last is grey where it stands for all others."""
    marks = [Mark(c, s) for c, s in zip(COLOURS, _SHAPES, strict=True)][:count]
    if has_rest:
        marks[-1] = Mark(GREY, marks[-1].corners)
    return marks


def curve_strokes(names: Sequence[str]) -> list[Stroke]:
    """One stroke per curve; random and oracle orderings are references, so they stay grey."""
    references = {"random": (5.0, 3.0), "oracle": (1.2, 2.4)}
    patterns = ((), (7.0, 2.5), (2.0, 2.0), (7.0, 2.0, 2.0, 2.0))
    strokes, own = [], 0
    for name in names:
        if name.lower() in references:
            strokes.append(Stroke(GREY, references[name.lower()], 1.6))
        else:
            colour = COLOURS[own % (len(COLOURS) - 1)]  # without yellow, too faint for a line
            strokes.append(Stroke(colour, patterns[own % len(patterns)], 2.0))
            own += 1
    return strokes
