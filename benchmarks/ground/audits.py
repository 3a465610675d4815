"""Cells that are wrong: what an audit finds, and peers that score every cell too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold

from benchmarks.ground.peers import boosting
from benchmarks.ground.scoring import Figures
from benchmarks.ground.tables import Bools, CodedTable, Coder, Floats

FOLDS = 2
LEVEL = 0.05
LEAST = 0.01
"""own probability below which a peer's category counts as flagged"""


@dataclass(frozen=True, slots=True)
class ScoredCells:
    """Scores of all cells, which are flagged, and repairs as text."""

    scores: Floats  # (n, columns); NaN: none
    flagged: Bools
    repairs: Any  # (n, columns) of text or None

    @classmethod
    def empty(cls, frame: pd.DataFrame) -> ScoredCells:
        shape = frame.shape
        return cls(np.full(shape, np.nan), np.zeros(shape, bool), np.full(shape, None, object))


Finder = Callable[[pd.DataFrame, int], ScoredCells]


def by_frequency(frame: pd.DataFrame, seed: int) -> ScoredCells:
    """Rare values are suspicious, and the most frequent value mends them."""
    found = ScoredCells.empty(frame)
    for j, name in enumerate(frame.columns):
        column = frame[name]
        counts = column.map(column.value_counts()).to_numpy(np.float64)
        found.scores[:, j] = -np.log(counts / max(column.notna().sum(), 1))
        found.flagged[:, j] = counts == 1
        if column.notna().any():
            found.repairs[:, j] = str(column.mode().iloc[0])
    return found


def by_boosting(frame: pd.DataFrame, seed: int) -> ScoredCells:
    """Boosting of every column on the others, out of fold.

    A number is scored by its residual in median absolute ones, a category by −log of its own
    probability.
    """
    found = ScoredCells.empty(frame)
    coder = Coder(frame)
    coded = coder(frame)
    for j, is_category in enumerate(coded.is_category):
        known = np.flatnonzero(~np.isnan(coded.values[:, j]))
        if len(known) < 10:
            continue
        for fit, asked in KFold(FOLDS, shuffle=True, random_state=seed).split(known):
            rows = known[fit], known[asked]
            fill = _category if is_category else _number
            fill(coded, j, rows, seed, found)
        if not is_category:
            spread = np.nanmedian(found.scores[:, j]) or np.nanmean(found.scores[:, j]) or 1.0
            found.scores[:, j] /= spread
            found.flagged[:, j] = found.scores[:, j] > 8.0
    return found


def by_cleanlab(frame: pd.DataFrame, seed: int) -> ScoredCells:
    """The package cleanlab on every text column, with boosting's probabilities out of fold.

    Levels of one row, and all but the most frequent, are no class of boosting: their own
    probability is 0, so they are flagged.
    """
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    found = ScoredCells.empty(frame)
    coder = Coder(frame)
    coded = coder(frame)
    for j in np.flatnonzero(coded.is_category).tolist():
        y, others = coded.values[:, j], np.delete(coded.values, j, axis=1)
        codes, counts = np.unique(y[~np.isnan(y)], return_counts=True)
        often = np.argsort(-counts)[:MOST_LEVELS]
        kept = np.sort(codes[often[counts[often] >= FOLDS]])
        rows = np.flatnonzero(np.isin(y, kept))
        if len(kept) < 2:
            continue
        other = ~np.isnan(y) & ~np.isin(y, kept)
        found.scores[other, j], found.flagged[other, j] = -np.log(1e-6), True
        labels = np.searchsorted(kept, y[rows])
        p = np.zeros((len(rows), len(kept)))
        for fit, asked in KFold(FOLDS, shuffle=True, random_state=seed).split(rows):
            model = boosting(True, seed).fit(others[rows[fit]], labels[fit])
            p[np.ix_(asked, model.classes_)] = model.predict_proba(others[rows[asked]])
        found.scores[rows, j] = -np.log(np.maximum(get_label_quality_scores(labels, p), 1e-6))
        found.flagged[rows, j] = find_label_issues(labels, p, n_jobs=1)
        texts = coded.levels[j].to_numpy(object)
        found.repairs[rows, j] = texts[kept[p.argmax(1)].astype(np.int64)]
    return found


def _category(coded: CodedTable, j: int, rows: Any, seed: int, found: ScoredCells) -> None:
    fit, asked = rows
    y, others = coded.values[:, j], np.delete(coded.values, j, axis=1)
    codes, counts = np.unique(y[fit], return_counts=True)
    kept = codes[np.argsort(-counts)][:MOST_LEVELS]  # boosting grows a tree a level and round
    fit = fit[np.isin(y[fit], kept)]
    if len(np.unique(y[fit])) < 2:
        found.scores[asked, j] = np.where(y[asked] == y[fit][0], 0.0, -np.log(1e-3))
        return
    model = boosting(True, seed).fit(others[fit], y[fit])
    p = model.predict_proba(others[asked])
    place = np.searchsorted(model.classes_, y[asked]).clip(max=len(model.classes_) - 1)
    own = np.where(model.classes_[place] == y[asked], p[np.arange(len(asked)), place], 1e-6)
    found.scores[asked, j] = -np.log(np.maximum(own, 1e-6))
    found.flagged[asked, j] = own < LEAST
    texts = coded.levels[j].to_numpy(object)
    found.repairs[asked, j] = texts[model.classes_[p.argmax(1)].astype(np.int64)]


MOST_LEVELS = 60


def _number(coded: CodedTable, j: int, rows: Any, seed: int, found: ScoredCells) -> None:
    fit, asked = rows
    others = np.delete(coded.values, j, axis=1)
    model = boosting(False, seed).fit(others[fit], coded.values[fit, j])
    guess = model.predict(others[asked])
    found.scores[asked, j] = np.abs(coded.values[asked, j] - guess)
    found.repairs[asked, j] = guess.astype(str)


def by_outliertree(frame: pd.DataFrame, seed: int) -> ScoredCells:
    """The package outliertree with its defaults: at most one outlier a row."""
    from outliertree import OutlierTree

    found = ScoredCells.empty(frame)
    found.scores[frame.notna().to_numpy()] = 0.0
    texts = dict.fromkeys(frame.select_dtypes(["str", "string"]), object)  # not known to it
    plain = frame.reset_index(drop=True).astype(texts)
    told = OutlierTree(nthreads=1).fit(plain, outliers_print=0, return_outliers=True)
    for row, one in told.iterrows():
        value = one["suspicious_value"]
        if isinstance(value, dict) and value.get("column") in frame.columns:
            place = int(row), frame.columns.get_loc(value["column"])
            found.scores[place] = 1.0 / max(float(one["outlier_score"]), 1e-9)
            found.flagged[place] = True
    return found


def by_audit(frame: pd.DataFrame, model: Any) -> ScoredCells:
    """Our own, with a model that is not fitted yet."""
    import varjepa

    found = ScoredCells.empty(frame)
    audit = varjepa.audit(frame, model, fdr=LEVEL, top=frame.size)
    cells = audit.cells
    rows = cells["row"].to_numpy()
    columns = frame.columns.get_indexer(cells["column"])
    found.scores[rows, columns] = -np.log(cells["p_value"].to_numpy())
    found.flagged[rows, columns] = cells["flagged"].to_numpy()
    found.repairs[rows, columns] = cells["repair"].to_numpy()
    return found


FINDERS: dict[str, Finder] = {
    "mode": by_frequency,
    "boosting": by_boosting,
    "cleanlab": by_cleanlab,
    "outliertree": by_outliertree,
}


def audit_figures(cells: ScoredCells, is_wrong: Bools, known: Bools, texts: Bools) -> Figures:
    """Average precision over all known cells and over those of text; what was flagged.

    A cell without a score counts as the least suspicious. ``texts (columns,)`` are categories.
    """
    scores = np.where(np.isnan(cells.scores), -np.inf, cells.scores)
    lowest = np.min(scores[np.isfinite(scores)], initial=0.0)
    scores = np.where(np.isfinite(scores), scores, lowest - 1.0)
    flagged, wrong = cells.flagged & known, is_wrong & known
    right = int((flagged & wrong).sum())
    figures: Figures = {
        "average_precision": _precision(wrong[known], scores[known]),
        "wrong": int(wrong.sum()),
        "found": int(flagged.sum()),
        "precision": right / max(1, int(flagged.sum())),
        "recall": right / max(1, int(wrong.sum())),
        "f1": 2 * right / max(1, int(flagged.sum()) + int(wrong.sum())),
    }
    of_text = known & texts
    if texts.any():
        figures["average_precision_text"] = _precision(wrong[of_text], scores[of_text])
    return figures


def _precision(wrong: Bools, scores: Floats) -> float | None:
    return float(average_precision_score(wrong, scores)) if wrong.any() else None


def repair_figures(cells: ScoredCells, truth: pd.DataFrame, is_wrong: Bools) -> Figures:
    """Share of the wrong cells that were flagged whose repair is the true text."""
    asked = np.argwhere(cells.flagged & is_wrong)
    right = [_same(cells.repairs[i, j], truth.iloc[i, j]) for i, j in asked]
    return {"repairs_right": float(np.mean(right)) if right else None}


def _same(repair: Any, truth: Any) -> bool:
    if repair is None or truth is None or repair != repair or truth != truth:
        return False
    try:
        return bool(np.isclose(float(repair), float(truth), rtol=1e-9))
    except ValueError:
        return str(repair) == str(truth)
