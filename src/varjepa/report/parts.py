"""What a report page holds: numbers, curves, maps, tables and doubtful rows, checked for length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Headline:
    """One number that the reader should take home."""

    label: str
    """what is measured"""
    value: str
    """the number, formatted"""
    note: str = ""
    """what to compare it with"""


@dataclass(frozen=True)
class TrainingCurve:
    """How the loss and its terms went, a panel each."""

    epochs: Sequence[int]
    """one number per step along the horizontal axis"""
    series: Mapping[str, Sequence[float | None]]
    """by name, a value per epoch; None: not measured there (the line runs on), NaN or infinite:
    diverged (the line breaks)"""

    def __post_init__(self) -> None:
        for name, values in self.series.items():
            _check_lengths(f"series {name}", len(values), "epochs", len(self.epochs))


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Every row's embedding, brought to two dimensions."""

    x: Floats
    """(N,)"""
    y: Floats
    """(N,)"""
    classes: Sequence[str] | None
    """N names, or None where there is no target"""
    uncertainty: Floats
    """(N,)"""

    def __post_init__(self) -> None:
        _check_lengths("y", len(self.y), "x", len(self.x))
        _check_lengths("uncertainty", len(self.uncertainty), "x", len(self.x))
        if self.classes is not None:
            _check_lengths("classes", len(self.classes), "x", len(self.x))


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Risk among the rows kept when the most uncertain are left out."""

    coverage: Floats
    """(C,) shares kept, in [0, 1]"""
    risk: Mapping[str, Floats]
    """(C,) by name; the one to look at first, then those to compare with. ``random`` and
    ``oracle`` are drawn as grey references"""

    def __post_init__(self) -> None:
        for name, values in self.risk.items():
            _check_lengths(f"risk {name}", len(values), "coverage", len(self.coverage))


@dataclass(frozen=True)
class UncertainCell:
    """One value of an uncertain row."""

    column: str
    """its column's name"""
    value: str
    """as the table has it"""
    uncertainty: float
    """comparable between the cells of a page"""


@dataclass(frozen=True)
class UncertainRow:
    """A row that the model is unsure of, and why."""

    row: int
    """its place in the table, counted from 0"""
    uncertainty: float
    """of the whole row"""
    cells: Sequence[UncertainCell]
    """in the order to show them, the most uncertain first"""


@dataclass(frozen=True)
class ResultTable:
    """Any table of words and numbers; columns that hold only numbers are set flush right."""

    title: str
    """a heading"""
    columns: Sequence[str]
    """names"""
    rows: Sequence[Sequence[str]]
    """a cell per column"""
    note: str = ""
    """what to read off"""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            _check_lengths(f"row {number} of {self.title}", len(row), "columns", len(self.columns))


@dataclass(frozen=True, eq=False)
class LineChart:
    """Means with error bars over a few places of a log axis, a line each."""

    title: str
    """a heading"""
    x: Sequence[float]
    """(P,) places, positive; each is a tick"""
    x_label: str
    """what they are; our own words, since matplotlib writes them"""
    y_label: str
    """what is measured; our own words"""
    series: Mapping[str, Sequence[tuple[float, float]]]
    """by name, a (mean, error) for each place"""
    note: str = ""
    """what to read off"""

    def __post_init__(self) -> None:
        for name, values in self.series.items():
            _check_lengths(f"line {name}", len(values), "places", len(self.x))


@dataclass(frozen=True, eq=False)
class ReportPage:
    """A page; whatever is empty or None is left out."""

    title: str
    """heading, and title of the window"""
    subtitle: str = ""
    """a sentence below it"""
    headlines: Sequence[Headline] = ()
    """large numbers at the top"""
    tables: Sequence[ResultTable] = ()
    """plain tables, a section each"""
    charts: Sequence[LineChart] = ()
    """line charts, a section each"""
    curve: TrainingCurve | None = None
    """how training went"""
    map: EmbeddingMap | None = None
    """embeddings by class and by uncertainty"""
    risk_coverage: RiskCoverage | None = None
    """what leaving out uncertain rows buys"""
    uncertain_rows: Sequence[UncertainRow] = ()
    """rows to look at, the most uncertain first"""
    footer: Mapping[str, str] = field(default_factory=dict)
    """environment: versions, seed, seconds"""


def _check_lengths(what: str, length: int, other: str, expected: int) -> None:
    if length != expected:
        raise ValueError(f"{what}: {length} values, but {expected} {other}")
