"""What an audit found, as arrays: sums by column, listed cells, row scores."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.audit.repairs import CellDescriptions
from varjepa.audit.scoring import CellScorer, Scores
from varjepa.tables.values import shown_text

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KINDS = {"numeric": "number", "categorical": "category", "datetime": "date"}


@dataclass(slots=True)
class ColumnFacts:
    """Sums over one column's cells."""

    name: str
    kind: str
    entropy: float
    """of the column itself, the mean over a date's parts"""
    features: list[int]
    shares: list[Floats] | None
    """of bins or levels in the training rows; None: drift is not measured"""
    scorer: CellScorer = field(repr=False)
    cells: int = 0
    seen: int = 0
    """cells of which the model says how likely they are"""
    nll: float = 0.0
    flagged: int = 0
    counts: list[Floats] = field(default_factory=list)

    @classmethod
    def of(cls, scorer: CellScorer, name: str, with_drift: bool) -> ColumnFacts:
        features, codec = scorer.features[name], scorer.codec
        numeric = len(codec.numeric)
        shares = [
            np.array(codec.numeric[j].bins.share)
            if j < numeric
            else np.array([0.0, *codec.categorical[j - numeric].marginal.frequencies()])
            for j in features
        ]
        entropies = [float(-(s * np.log(np.maximum(s, 1e-300))).sum()) for s in shares]
        kind = KINDS[scorer.kinds[name]]
        found = cls(
            name, kind, float(np.mean(entropies)), features, shares if with_drift else None, scorer
        )
        found.counts = [np.zeros(len(share)) for share in shares]
        return found

    def add(self, scores: Scores, column: int, p: Floats) -> None:
        known, nll = ~np.isnan(p), scores.nll[:, column]
        self.cells += int(known.sum())
        self.seen += int((~np.isnan(nll)).sum())
        self.nll += float(np.nansum(nll))
        if self.shares is None:
            return
        codec, numeric = self.scorer.codec, len(self.scorer.codec.numeric)
        for counts, j in zip(self.counts, self.features, strict=True):
            if j < numeric:
                unit = scores.numbers[:, j].astype(np.float64)
                codes = codec.numeric[j].bins.index(unit[~np.isnan(unit)])
            else:
                codes = scores.rows.cat[:, j - numeric].cpu().numpy()[known]
            counts += np.bincount(codes, minlength=len(counts))[: len(counts)]

    @property
    def predictable(self) -> float | None:
        """Share of the column's entropy that the other columns explain; None: it has none."""
        if not self.seen or self.entropy < 1e-6 or self.scorer.errors.is_gaussian(self.features[0]):
            return None
        return float(np.clip(1.0 - self.nll / self.seen / self.entropy, 0.0, 1.0))

    @property
    def drift(self) -> float | None:
        """Distance from the training rows: Kolmogorov and Smirnov's, of categories total variation.

        0: the same; 1: nothing in common.
        """
        if self.shares is None or not self.cells:
            return None
        now = [c / max(c.sum(), 1.0) for c in self.counts]
        if self.kind == "category":
            return float(0.5 * np.abs(now[0] - self.shares[0]).sum())
        return max(
            float(np.abs(np.cumsum(a - b)).max(initial=0.0))
            for a, b in zip(now, self.shares, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Findings:
    """Arrays behind the frames and the page."""

    names: list[str]
    """audited columns"""
    cells: CellDescriptions
    places: Integers  # (listed, 2) row and column
    p_values: Floats
    log_odds: Floats
    flagged: NDArray[np.bool_]
    row_scores: Floats
    row_p_values: Floats
    row_cells: NDArray[np.int32]
    worst_p_values: Floats
    """of each row's most suspicious cell"""
    facts: list[ColumnFacts]
    tests: int
    fdr: float
    limit: float | None
    """the largest p-value that is flagged; None: none is"""
    rows: Integers
    """rows of the page, worst first"""
    picked: pa.Table
    """all rows that are shown or have a listed cell"""
    picked_rows: Integers
    picked_p_values: Floats

    def values(self) -> list[str | None]:
        places = np.searchsorted(self.picked_rows, self.places[:, 0])
        texts = {name: shown_text(self.picked[name]) for name in self.names}
        return [
            texts[self.names[j]][int(i)].as_py()
            for i, j in zip(places, self.places[:, 1], strict=True)
        ]
