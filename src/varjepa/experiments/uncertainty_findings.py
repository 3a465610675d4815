"""What the uncertainty rows say: the goals on SIM and MNIST, each true, false or open."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from varjepa.experiments.embeddings import SCORES
from varjepa.experiments.findings import Finding
from varjepa.experiments.results import Row
from varjepa.experiments.summaries import group
from varjepa.experiments.tabular_paper import uncertainty_paper_value
from varjepa.experiments.uncertainty_scores import BALANCED, COMBINED, DOUBTS, LATENT, OWN, POSTHOC

PAPER_DATASETS = ("mnist", "sim")

Groups = Mapping[tuple[Any, ...], Sequence[Row]]
"""by dataset, arrangement, score"""


def uncertainty_findings(rows: Sequence[Row], setting: str) -> list[Finding]:
    """The goals on the first embedding of one setting; none where it has no rows at all."""
    mine = [r for r in rows if r["setting"] == setting and r["embedding_seed"] == 0]
    if not mine:
        return []
    groups = group(mine, "dataset", "arrangement", "score")
    found = [_finds_ambiguity(groups, dataset, setting) for dataset in PAPER_DATASETS]
    datasets = dict.fromkeys([*PAPER_DATASETS, *(row["dataset"] for row in mine)])
    return found + [_finds_errors(groups, d, score) for score in COMBINED for d in datasets]


def metric_mean(rows: Sequence[Row] | None, metric: str) -> float | None:
    """Over runs; None where a run has none or there are no runs."""
    values = [row.get(metric) for row in rows or ()]
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


BASELINES = (*POSTHOC, *OWN)
"""the paper's, and the classifier's own; the doubts are parts of the combined scores"""


def best_of(
    groups: Groups, dataset: str, scores: Sequence[str] = BASELINES
) -> tuple[str, float] | None:
    """The score with the least AURC on the shared classifier's errors.

    None unless all are there: the best of those that happen to be is an easier bar.
    """
    found = {score: metric_mean(groups.get((dataset, "shared", score)), "aurc") for score in scores}
    known = {score: value for score, value in found.items() if value is not None}
    if len(known) < len(found):
        return None
    best = min(known, key=known.__getitem__)
    return best, known[best]


def ambiguity_score(groups: Groups, dataset: str, setting: str) -> tuple[str, Sequence[Row]] | None:
    """The latent score that is to find ambiguous rows, with its rows.

    The paper's own; in "ours" the one that agrees best with u on the validation rows.
    """
    if setting == "paper":
        rows = groups.get((dataset, "paper", LATENT))
        return (rows[0]["latent"], rows) if rows else None
    places = [*(("shared", name) for name in SCORES), ("balanced", BALANCED)]
    found = {
        place: metric_mean(groups.get((dataset, *place)), "validation_spearman") for place in places
    }
    known = {place: value for place, value in found.items() if value is not None}
    if not known:
        return None
    best = max(known, key=known.__getitem__)
    return best[1], groups[dataset, *best]


def _finds_ambiguity(groups: Groups, dataset: str, setting: str) -> Finding:
    goals = {m: uncertainty_paper_value(m, dataset, LATENT) or 0.0 for m in ("spearman", "auroc")}
    claim = (
        f"{dataset}: a latent score finds ambiguous rows as the paper's does (Spearman "
        f"{goals['spearman']:.3f}, AUROC {goals['auroc']:.3f})"
    )
    found = ambiguity_score(groups, dataset, setting)
    name, rows = found or ("", ())
    ours = {metric: metric_mean(rows, metric) for metric in goals}
    known = {metric: value for metric, value in ours.items() if value is not None}
    if len(known) < len(ours):
        return Finding(claim, None, "missing")
    return Finding(
        claim,
        all(value >= goals[metric] for metric, value in known.items()),
        f"{name}: Spearman {known['spearman']:.3f}, AUROC {known['auroc']:.3f}",
    )


def _finds_errors(groups: Groups, dataset: str, score: str) -> Finding:
    claim = f"{dataset}: AURC of the score {score!r} is at or below the best post-hoc baseline's"
    ours = metric_mean(groups.get((dataset, "shared", score)), "aurc")
    best = best_of(groups, dataset)
    if ours is None or best is None:
        return Finding(claim, None, "missing")
    evidence = f"{ours:.4f}; {best[0]} {best[1]:.4f}"
    part = best_of(groups, dataset, tuple(DOUBTS))
    if part is not None:  # what it owes to one of its parts
        evidence += f"; {part[0]} alone {part[1]:.4f}"
    return Finding(claim, ours <= best[1], evidence)
