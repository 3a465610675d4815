"""How similar a sampled table is to a real one: columns, pairs of columns, whole rows.

    columns   Kolmogorov–Smirnov distance of numbers, total variation of categories; their mean
    pairs     half of Σ abs(p − q) of the joint distribution, numbers cut at the real deciles
    rows      AUROC of a classifier that separates sampled rows from real ones, on held-out rows

The best values are 0, 0 and .5. Two references: a second sample of the same real table says how
near two samples of this size are; shuffled columns say what ignoring all relations gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.stats import ks_2samp
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

Codes = NDArray[np.int64]

BINS = 10
"""Numbers are cut into this many cells of equal real frequency for pairs."""


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Distances between two tables of the same columns."""

    marginal: float
    """mean distance of a column"""
    pairwise: float
    """mean distance of a pair of columns; NaN for a single column"""
    auroc: float
    """of a classifier that separates the two; .5: it cannot"""


def fidelity(real: pa.Table, sampled: pa.Table, seed: int = 0) -> Fidelity:
    """Compare two tables of the same columns; a missing value is a value of its own.

    Examples:
        >>> real = pa.table({"x": [0.0, 1.0, 2.0, 3.0], "c": ["a", "a", "b", "b"]})
        >>> fidelity(real, real).marginal
        0.0
    """
    pairs = [
        _columns(real[name], sampled[name].cast(real[name].type)) for name in real.column_names
    ]
    numeric = [values for values, _ in pairs if values is not None]
    marginal = [
        _total_variation(*codes) if values is None else _ks(*values) for values, codes in pairs
    ]
    joint = [_joint_variation(first, second) for (_, first), (_, second) in combinations(pairs, 2)]
    categorical = [codes for values, codes in pairs if values is None]
    return Fidelity(
        float(np.mean(marginal)),
        float(np.mean(joint)) if joint else float("nan"),
        _auroc(numeric, categorical, seed),
    )


def shuffle_columns(table: pa.Table, seed: int) -> pa.Table:
    """Every column in an order of its own: right columns, no relation between them."""
    rng = np.random.default_rng(seed)
    columns = [column.take(pa.array(rng.permutation(table.num_rows))) for column in table.columns]
    return pa.table(columns, schema=table.schema)


Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
CodePair = tuple[Codes, Codes]


def _columns(real: pa.ChunkedArray, sampled: pa.ChunkedArray) -> tuple[Pair | None, CodePair]:
    """Values of a numeric column (else None), and codes of either kind, real first."""
    if pa.types.is_integer(real.type) or pa.types.is_floating(real.type):
        values = _floats(real), _floats(sampled)
        edges = np.unique(np.nanquantile(values[0], np.linspace(0, 1, BINS + 1)[1:-1]))
        return values, (_binned(values[0], edges), _binned(values[1], edges))
    both = [column.cast(pa.string()).fill_null("") for column in (real, sampled)]
    texts = [np.array(column.to_pylist(), dtype=np.str_) for column in both]
    _, codes = np.unique(np.concatenate(texts), return_inverse=True)
    return None, (codes[: len(texts[0])], codes[len(texts[0]) :])


def _floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    return column.cast(pa.float64()).to_numpy()  # a missing cell becomes NaN


def _binned(values: NDArray[np.float64], edges: NDArray[np.float64]) -> Codes:
    cells = np.searchsorted(edges, values, side="right")
    return np.where(np.isnan(values), len(edges) + 1, cells)


def _ks(real: NDArray[np.float64], sampled: NDArray[np.float64]) -> float:
    known = real[~np.isnan(real)], sampled[~np.isnan(sampled)]
    if not len(known[0]) or not len(known[1]):
        return float(len(known[0]) != len(known[1]))
    return float(ks_2samp(*known, method="asymp").statistic)


def _total_variation(real: Codes, sampled: Codes) -> float:
    size = int(max(real.max(), sampled.max())) + 1
    shares = [np.bincount(codes, minlength=size) / len(codes) for codes in (real, sampled)]
    return 0.5 * float(np.abs(shares[0] - shares[1]).sum())


def _joint_variation(first: CodePair, second: CodePair) -> float:
    """Total variation of two columns' joint distribution."""
    width = int(max(codes.max() for codes in second)) + 1
    real, sampled = (a * width + b for a, b in zip(first, second, strict=True))
    _, codes = np.unique(np.concatenate([real, sampled]), return_inverse=True)
    return _total_variation(codes[: len(real)], codes[len(real) :])


def _auroc(numeric: list[Pair], categorical: list[CodePair], seed: int) -> float:
    """A classifier is fitted on half of the rows and evaluated on the other half."""
    parts = [np.column_stack([pair[side] for pair in (*numeric, *categorical)]) for side in (0, 1)]
    features = np.concatenate(parts).astype(np.float64)
    is_sampled = np.repeat([0, 1], [len(part) for part in parts])
    order = np.random.default_rng(seed).permutation(len(features))
    train, test = np.split(order, [len(order) // 2])
    classifier = HistGradientBoostingClassifier(random_state=seed)
    classifier.fit(features[train], is_sampled[train])
    return float(roc_auc_score(is_sampled[test], classifier.predict_proba(features[test])[:, 1]))
