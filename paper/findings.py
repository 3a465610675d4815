"""What the results say of the paper's claims and of our goals.

What the downstream rows say: the goals that were set before any run, each true, false or open.

A cell that is not there counts as missing, never as reached; a claim is open while missing cells
could still decide it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from paper.datasets.catalogue import DATASETS
from paper.protocol import SCORES
from paper.published import (
    PAPER_PREDICTORS,
    Quoted,
    downstream_paper_value,
    uncertainty_paper_value,
)
from paper.results import (
    Finding,
    Row,
    Summary,
    at_least,
    at_most,
    counted,
    group,
    is_reached,
    summarise,
    with_missing,
)
from paper.uncertainty import BALANCED, COMBINED, DOUBTS, LATENT, OWN, POSTHOC
from varjepa.metrics.selective import COVERAGES

REAL_TABLES = ("adult", "covertype", "electricity", "credit_default", "bank_marketing")

REACHED_GOAL, EXCEEDED_GOAL = 160, 120
"""of the 7 · 6 · 4 accuracies of Var-T-JEPA"""
BEATEN_GOAL = 26
"""of the 30 full-coverage cells of the five real tables; the paper's own count"""
SECONDS_GOAL = 1800.0
"""of the seven Var-T-JEPA trainings together, on one GPU"""
PAPER_COST = "under 2 to less than 24 hours each on an A100"

Cells = Mapping[tuple[Any, ...], Summary]
"""by dataset, representation, predictor, coverage"""


def downstream_findings(
    rows: Sequence[Row], setting: str, trainings: Sequence[Row] = ()
) -> list[Finding]:
    """The goals on the embeddings of one setting; none where it has no rows at all."""
    cells = accuracy_cells(rows, setting)
    if not any(name == "var_t_jepa" for _, name, _, _ in cells):
        return []
    of_paper = accuracy_cells(rows, "paper")
    others = {**of_paper, **cells}  # raw columns have no setting
    return [
        *_against_the_paper(cells),
        _rising(cells),
        _beats_t_jepa(cells, of_paper, setting),
        _against_raw(cells, others),
        cost_finding(trainings, setting),
    ]


def accuracy_cells(rows: Sequence[Row], setting: str) -> Cells:
    """Means over seeds on the first embedding of a setting."""
    mine = [r for r in rows if r["setting"] == setting and r["embedding_seed"] == 0]
    groups = group(mine, "dataset", "representation", "predictor", "coverage")
    return {key: summarise(here, "accuracy") for key, here in groups.items()}


def paper_accuracy(dataset: str, name: str, predictor: str, coverage: float = 1.0) -> Quoted:
    """A cell that the paper has."""
    found = downstream_paper_value("accuracy", dataset, name, predictor, coverage)
    assert found is not None, (dataset, name, predictor, coverage)
    return found


def reached_cells(cells: Cells, dataset: str) -> tuple[int, int]:
    """(how many accuracies of Var-T-JEPA reach the paper's, how many there are)."""
    there = [
        is_reached(cells[key], paper_accuracy(*key))
        for predictor in PAPER_PREDICTORS
        for coverage in COVERAGES
        if (key := (dataset, "var_t_jepa", predictor, coverage)) in cells
    ]
    return sum(there), len(there)


def _against_the_paper(cells: Cells) -> list[Finding]:
    wanted = [
        (dataset, "var_t_jepa", predictor, coverage)
        for dataset in DATASETS
        for predictor in PAPER_PREDICTORS
        for coverage in COVERAGES
    ]
    there = {key: (cells[key], paper_accuracy(*key)) for key in wanted if key in cells}
    missing = len(wanted) - len(there)
    reached = {key: is_reached(*pair) for key, pair in there.items()}
    exceeded = {key: ours.mean > paper[0] for key, (ours, paper) in there.items()}

    def judge(claim: str, good: Mapping[tuple[Any, ...], bool], goal: int) -> Finding:
        count = sum(good.values())
        short = counted(key[0] for key, is_good in good.items() if not is_good)
        evidence = f"{count} of {len(wanted)}" + (f"; not: {short}" if short else "")
        return Finding(claim, at_least(count, goal, missing), with_missing(evidence, missing))

    return [
        judge(
            f"Var-T-JEPA reaches the paper's accuracy in {REACHED_GOAL} of {len(wanted)} cells",
            reached,
            REACHED_GOAL,
        ),
        judge(
            f"Var-T-JEPA is above the paper's mean in {EXCEEDED_GOAL} of {len(wanted)} cells",
            exceeded,
            EXCEEDED_GOAL,
        ),
    ]


def _rising(cells: Cells) -> Finding:
    """Per dataset over the predictors that have both coverages."""
    shown: list[str] = []
    judged: list[bool | None] = []
    for dataset in DATASETS:
        pairs = [
            (cells[full].mean, cells[half].mean)
            for predictor in PAPER_PREDICTORS
            if (full := (dataset, "var_t_jepa", predictor, COVERAGES[0])) in cells
            and (half := (dataset, "var_t_jepa", predictor, COVERAGES[-1])) in cells
        ]
        if not pairs:
            shown.append(f"{dataset} missing")
            judged.append(None)
            continue
        gain = statistics.fmean(half - full for full, half in pairs)
        is_integer = len(pairs) == len(PAPER_PREDICTORS)
        of = "" if is_integer else f" ({len(pairs)} of {len(PAPER_PREDICTORS)} predictors)"
        shown.append(f"{dataset} {gain:+.3f}{of}")
        judged.append(gain > 0 if is_integer else None)
    return Finding(
        "in every dataset accuracy, averaged over predictors, rises when the most uncertain half "
        "is left out",
        False if False in judged else None if None in judged else True,
        ", ".join(shown),
    )


def _beats_t_jepa(cells: Cells, of_paper: Cells, setting: str) -> Finding:
    """T-JEPA counts with the better of its settings: changes that help us may help it too."""
    wanted = [(dataset, predictor) for dataset in REAL_TABLES for predictor in PAPER_PREDICTORS]

    def best(dataset: str, predictor: str) -> float | None:
        key = (dataset, "t_jepa", predictor, 1.0)
        return max((here[key].mean for here in (cells, of_paper) if key in here), default=None)

    won = {
        (dataset, predictor): cells[ours].mean > theirs
        for dataset, predictor in wanted
        if (ours := (dataset, "var_t_jepa", predictor, 1.0)) in cells
        and (theirs := best(dataset, predictor)) is not None
    }
    missing, count = len(wanted) - len(won), sum(won.values())
    lost = counted(dataset for (dataset, _), is_won in won.items() if not is_won)
    evidence = f"{count} of {len(wanted)}" + (f"; not: {lost}" if lost else "")
    if won and setting != "paper":
        both = any((dataset, "t_jepa", predictor, 1.0) in cells for dataset, predictor in won)
        evidence += "; T-JEPA in " + (
            "the better of its settings" if both else "the paper's setting"
        )
    return Finding(
        f"Var-T-JEPA beats T-JEPA in {BEATEN_GOAL} of the {len(wanted)} full-coverage cells of the "
        "five real tables",
        at_least(count, BEATEN_GOAL, missing),
        with_missing(evidence, missing),
    )


def _against_raw(cells: Cells, others: Cells) -> Finding:
    """Where embeddings lose, said plainly; the paper loses too."""
    wanted = [(dataset, predictor) for dataset in DATASETS for predictor in PAPER_PREDICTORS]
    there = [
        (dataset, predictor)
        for dataset, predictor in wanted
        if (dataset, "var_t_jepa", predictor, 1.0) in cells
        and (dataset, "raw", predictor, 1.0) in others
    ]
    lost = [
        dataset
        for dataset, predictor in there
        if cells[dataset, "var_t_jepa", predictor, 1.0].mean
        < others[dataset, "raw", predictor, 1.0].mean
    ]
    paper = sum(
        paper_accuracy(dataset, "var_t_jepa", predictor)[0]
        < paper_accuracy(dataset, "raw", predictor)[0]
        for dataset, predictor in wanted
    )
    missing = len(wanted) - len(there)
    evidence = f"loses in {len(lost)}" + (f": {counted(lost)}" if lost else "")
    return Finding(
        f"Var-T-JEPA loses to raw columns with the same predictor in no more than the paper's "
        f"{paper} of {len(wanted)} cells",
        at_most(len(lost), paper, missing),
        with_missing(evidence, missing),
    )


def cost_finding(trainings: Sequence[Row], setting: str) -> Finding:
    """The seven Var-T-JEPA trainings of a setting, together and each."""
    mine = {row["dataset"]: row for row in first_trainings(trainings, "var_t_jepa", setting)}
    there = [name for name in DATASETS if name in mine]
    total = sum(mine[name]["seconds"] for name in there)
    missing = len(DATASETS) - len(there)
    devices = dict.fromkeys(
        str(mine[name].get("environment", {}).get("device", "unknown device")) for name in there
    )
    each = ", ".join(f"{name} {mine[name]['seconds']:.0f} s" for name in there)
    evidence = f"{total / 60:.1f} min"
    if there:
        evidence += f" on {' and '.join(devices)}: {each}"
    return Finding(
        f"the seven Var-T-JEPA trainings together take at most {SECONDS_GOAL / 60:.0f} minutes "
        f"(the paper's: {PAPER_COST})",
        at_most(total, SECONDS_GOAL, missing),
        with_missing(evidence, missing),
    )


def first_trainings(trainings: Sequence[Row], model: str, setting: str) -> list[Row]:
    """Those that the tables are about: one per dataset, from the first seed."""
    wanted = (model, setting, 0)
    return [row for row in trainings if (row["model"], row["setting"], row["seed"]) == wanted]


# --- What the uncertainty rows say: the goals on SIM and MNIST, each true, false or open.

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
