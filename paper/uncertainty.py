"""Appendix B.3: which uncertainty finds ambiguous rows, and which finds errors (Figures 3 and 5)?

    python -m paper uncertainty --out DIR [--datasets sim mnist]

Latent scores and post-hoc baselines on the same frozen embeddings, in four arrangements:

``shared``    every score on the errors of one perceptron. AURCs can be compared only so; of the
              latent scores also Spearman's ρ with u on validation rows, to choose by. Beyond the
              paper: all latent scores, the perceptron's own entropy and confidence, two scores that
              are combined from others on the validation rows, random abstention, and an oracle.
``paper``     each score on the errors of its own classifier: the linear probe's for the latent
              score, entropy and MSP; the vote of 20 dropout passes; the vote of the ensemble.
``balanced``  by the true ambiguity u alone: how unlikely a row's values are given its other
              columns, numbers and categories in equal parts, over many splits; beyond the paper.
``bound``     by u alone, and no score of ours: boosted trees that are told the u of the training
              rows. A score that never sees u can hardly be expected to find it better.

A run takes five perceptrons of its own: the ensemble, whose first member is the shared classifier
and the one with dropout.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import roc_curve

from paper.cells import fit_on, fit_options, fit_probe_of_figure, predictor_settings, wrong_rows
from paper.compare import (
    MISSING,
    Block,
    Figure,
    Finding,
    Groups,
    group,
    mean_text,
    metric_cell,
    short,
)
from paper.figures import DARK, LIGHT, panels, save_svg
from paper.predictors.inputs import Inputs, RawEncoder, RawFeatures, Tokens
from paper.predictors.training import FIGURE_PROBE, PREDICTORS
from paper.protocol import ANSWER_SCORES, SCORES, Embedded
from paper.published import uncertainty_paper_value
from paper.representations import Workbench
from paper.settings import FULL, SETTINGS, Scale, Setting, training_for
from paper.store import Job, Log, ResultStore, Row, no_log, plain, run_jobs
from varjepa.environment import describe_environment
from varjepa.estimators import VarTJEPA
from varjepa.evaluate.splits import Split
from varjepa.files import study_folder
from varjepa.metrics.ambiguity import auroc_of_ambiguous, spearman
from varjepa.metrics.combination import fit_combined_score
from varjepa.metrics.confidence import (
    chance_of_another,
    mean_probabilities,
    one_minus_msp,
    predictive_entropy,
)
from varjepa.metrics.selective import aurc, risk_coverage, selective_scores
from varjepa.models.inference import LATENT_KINDS, default_aggregate
from varjepa.report.tables import Cell, Table
from varjepa.settings import pick_device

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

FILE, ROWS_FILE = "uncertainty.json", "uncertainty_rows.json"
ABOUT = ("dataset", "setting", "embedding_seed")
KEY = (*ABOUT, "arrangement", "score", "seed")

WITH_TRUTH = ("sim", "mnist")
"""datasets whose rows have their true ambiguity; the paper's two"""
MIXED = ("sim",)
"""of these, those whose columns are of both kinds"""

MEMBERS = 5
"""perceptrons of an ensemble"""
PASSES = 20
"""of Monte Carlo dropout"""

BALANCED_SPLITS = 32
"""where Spearman's ρ with u hardly rises any more on SIM's validation rows
(results/sim-balanced.json at 02cf438)"""


# --- names of the scores

LATENT = "latent"
"""the paper's row: the latent score that the setting ranks by"""
POSTHOC = ("probe entropy", "probe msp", "mc dropout", "deep ensemble")
"""the paper's baselines"""
OWN = ("own entropy", "own msp")
"""of the shared classifier"""
COMBINED = ("combined", "combined with ensemble")
"""latent scores with the classifier's confidence and the probe's doubt; these with the doubts of
dropout and ensemble as well"""
DOUBTS = {f"{name} doubt": name for name in ("probe", "mc dropout", "deep ensemble")}
"""what each gives to all classes but the answer of the shared classifier"""
BOUNDS = ("random", "oracle")

TOLD = "told u"
"""the one score of the arrangement "bound"; where there is a true ambiguity"""

BALANCED = "nll balanced"
"""the one score of the arrangement "balanced"; needs a true ambiguity and columns of both kinds"""

_ALONE = (*(f"{kind} {default_aggregate(kind)}" for kind in LATENT_KINDS), *OWN, "probe doubt")

COMBINED_PARTS: Mapping[str, tuple[str, ...]] = {
    COMBINED[0]: _ALONE,
    COMBINED[1]: (*_ALONE, "mc dropout doubt", "deep ensemble", "deep ensemble doubt"),
}
"""what each is combined from"""

SHARED_SCORES = (*SCORES, *POSTHOC, *OWN, *DOUBTS, *COMBINED, *BOUNDS)
PAPER_SCORES = (LATENT, *POSTHOC)


# --- the study


@dataclass(frozen=True, slots=True)
class UncertaintyPlan:
    datasets: Sequence[str] = WITH_TRUTH
    settings: Sequence[Setting] = ("paper",)
    runs: int = 5
    """ensembles, each with a shared classifier"""
    embeddings: int = 1
    scale: Scale = FULL


def run_uncertainty(
    folder: Path, plan: UncertaintyPlan, device: str = "auto", log: Log = no_log
) -> None:
    """Compute whatever run is not in the folder yet, saving after each."""
    with study_folder(folder):
        table, per_row = open_uncertainty(folder, plan.scale)
        for dataset in plan.datasets:
            bench = Workbench(folder, dataset, plan.scale, device, log)
            for setting, seed in product(plan.settings, range(plan.embeddings)):
                about = {"dataset": dataset, "setting": setting, "embedding_seed": seed}
                _complete(bench, about, plan.runs, table, per_row)


def _complete(
    bench: Workbench, about: Row, runs: int, table: ResultStore, per_row: ResultStore
) -> None:
    """Whatever is missing of one embedding."""
    setting, embedding_seed = about["setting"], about["embedding_seed"]
    study = cache(lambda: Study(bench, setting, embedding_seed))

    def balanced(job: Job, seeds: list[int]) -> list[Row]:
        estimator = bench.estimator(setting, embedding_seed)
        assert isinstance(estimator, VarTJEPA)
        return [balanced_row(estimator, bench.data.table, bench.ambiguity, bench.split)]

    def bound(job: Job, seeds: list[int]) -> list[Row]:
        score = told_ambiguity(bench.raw, bench.ambiguity, bench.split)
        return [_ambiguity_row("bound", TOLD, score, bench.ambiguity[bench.split.test])]

    behind_figures = Job(about, [embedding_seed], seed_column="embedding_seed")
    run_jobs(per_row, [behind_figures], lambda *_: [study().per_row()])
    shared = {**about, "arrangement": "shared", "score": "random"}  # each run has such a row
    run_jobs(
        table,
        [Job(shared, [seed]) for seed in range(runs)],
        lambda job, seeds: study().run(seeds[0]),
        bench.log,
        lambda rows: f"{bench.dataset}, {setting}: uncertainty, run {rows[0]['seed']}",
    )
    if bench.dataset in MIXED:
        alone = {**about, "arrangement": "balanced", "score": BALANCED}
        run_jobs(table, [Job(alone, [0])], balanced)
    if bench.dataset in WITH_TRUTH and embedding_seed == 0:
        told = {**about, "arrangement": "bound", "score": TOLD}
        run_jobs(table, [Job(told, [0])], bound)


def open_uncertainty(folder: Path, scale: Scale = FULL) -> tuple[ResultStore, ResultStore]:
    """``uncertainty.json``, and the rows behind the figures in ``uncertainty_rows.json``."""

    def settings(row: Row) -> dict[str, Any]:
        spec = training_for(
            row["dataset"], "var_t_jepa", row["setting"], scale, row["embedding_seed"]
        )
        return {
            "pretraining": plain(spec),
            "classifier": predictor_settings("mlp", row["dataset"], scale),
            "probe": plain(FIGURE_PROBE),
            "members": MEMBERS,
            "passes": PASSES,
            "combined": {name: list(parts) for name, parts in COMBINED_PARTS.items()},
            **({"splits": BALANCED_SPLITS} if row.get("arrangement") == "balanced" else {}),
        }

    return (
        ResultStore(folder / FILE, KEY, settings),
        ResultStore(folder / ROWS_FILE, ABOUT, settings),
    )


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of some rows, with the mistakes of one classifier on them."""

    scores: Mapping[str, Floats]
    wrong: Floats


def combine(held_out: Scored, test: Scored) -> dict[str, Floats]:
    """The combined scores of the test rows, learned from the validation rows' errors."""

    def columns(scored: Scored, names: Sequence[str]) -> Floats:
        return np.stack([scored.scores[name] for name in names], axis=1)

    return {
        title: fit_combined_score(columns(held_out, names), held_out.wrong)(columns(test, names))
        for title, names in COMBINED_PARTS.items()
    }


class Study:
    """The classifiers of one embedding, and what they say."""

    def __init__(self, bench: Workbench, setting: Setting, embedding_seed: int) -> None:
        self.bench = bench
        self.data, self.split = bench.data, bench.split
        self.embedded: Embedded = bench.learn("var_t_jepa", setting, embedding_seed)
        self.latent = bench.score_name(setting, embedding_seed)
        self.inputs = Inputs(tokens=Tokens(self.embedded.tokens, standardise=True))
        self.options = fit_options(PREDICTORS["mlp"], bench.scale, bench.device)

    def run(self, seed: int) -> list[Row]:
        """All scores of one run in both arrangements."""
        members = range(MEMBERS * seed, MEMBERS * (seed + 1))
        probe, probe_inputs = fit_probe_of_figure(self.bench, self.embedded, [members[0]])
        networks = fit_on(
            PREDICTORS["mlp"], self.inputs, self.data, self.split, list(members), self.options
        )

        def ask(rows: Rows) -> dict[str, NDArray[np.float32]]:
            several = networks.predict(self.inputs, rows)  # (members, n, classes)
            dropout = networks.predict_with_dropout(self.inputs, PASSES, rows)[:, 0]
            return {
                "probe": probe.predict(probe_inputs, rows)[0],
                "own": several[0],
                "mc dropout": dropout,  # (passes, n, classes)
                "deep ensemble": several,
            }

        held_out = self._shared(self.split.validation, ask(self.split.validation))
        answers = ask(self.split.test)
        shared = self._shared(self.split.test, answers)
        with_combined = {**shared.scores, **combine(held_out, shared)}
        wrong = shared.wrong
        bounds = {"random": np.zeros(len(wrong)), "oracle": wrong}
        origin = {"seed": seed, "environment": describe_environment(self.options.device)}
        agreeing: dict[str, float | None] = {}
        if self.data.ambiguity is not None:
            truth = self.data.ambiguity[self.split.validation]
            known = {name: held_out.scores[name] for name in self.embedded.scores}
            agreeing = {name: rounded(spearman(score, truth)) for name, score in known.items()}
        rows = [
            {
                **self._row("shared", name, score, wrong, origin),
                "validation_spearman": agreeing.get(name),
            }
            for name, score in {**with_combined, **bounds}.items()
        ]
        for name in PAPER_SCORES:
            source = "probe" if name in (LATENT, "probe entropy", "probe msp") else name
            vote = mean_probabilities(answers[source])
            score = shared.scores[self.latent if name == LATENT else name]
            mistakes = wrong_rows(vote, self.data, self.split.test)
            rows.append(self._row("paper", name, score, mistakes, origin))
        return rows

    def per_row(self) -> Row:
        """What the figures show: the latent score, u and the probe's errors of the test rows."""
        test = self.split.test
        probe, inputs = fit_probe_of_figure(self.bench, self.embedded, [0])
        wrong = wrong_rows(probe.predict(inputs, test)[0], self.data, test)
        truth = self.data.ambiguity
        row: Row = {
            "score": self.latent,
            "uncertainty": _digits(self.embedded.scores[self.latent][test]),
            "ambiguity": None if truth is None else _digits(truth[test]),
            "wrong": wrong.astype(int).tolist(),
        }
        if self.data.name == "mnist" and truth is not None:
            row["images"] = example_images(self.data.table, truth, test)
        return row

    def _shared(self, rows: Rows, answers: Mapping[str, NDArray[np.float32]]) -> Scored:
        """Every score of some rows that needs no fitting, on the shared classifier's mistakes."""
        own, probe = answers["own"], answers["probe"]
        scores = {
            **{name: score[rows] for name, score in self.embedded.scores.items()},
            "probe entropy": predictive_entropy(probe),
            "probe msp": one_minus_msp(probe),
            **{who: predictive_entropy(answers[who]) for who in ("mc dropout", "deep ensemble")},
            "own entropy": predictive_entropy(own),
            "own msp": one_minus_msp(own),
            **{n: chance_of_another(answers[who], own.argmax(-1)) for n, who in DOUBTS.items()},
        }
        return Scored(scores, wrong_rows(own, self.data, rows))

    def _row(self, arrangement: str, name: str, score: Floats, wrong: Floats, origin: Row) -> Row:
        truth = None if self.data.ambiguity is None else self.data.ambiguity[self.split.test]
        known = truth if name != "oracle" else None  # it knows errors, not ambiguity
        errors = asdict(selective_scores(wrong, score))
        return {
            **_ambiguity_row(arrangement, name, score, known),
            "latent": self.latent if name == LATENT else None,
            **{key: rounded(value) for key, value in errors.items()},
            **origin,
        }


def _digits(values: Floats) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


# --- scores that are evaluated by the true ambiguity u alone


def balanced_row(estimator: VarTJEPA, table: pa.Table, ambiguity: Floats, split: Split) -> Row:
    held_out, test = (
        estimator.uncertainty(table.take(rows), "nll", "balanced", splits=BALANCED_SPLITS)
        for rows in (split.validation, split.test)
    )
    device = str(pick_device(estimator.device))
    return {
        **_ambiguity_row("balanced", BALANCED, test, ambiguity[split.test], device),
        "validation_spearman": rounded(spearman(held_out, ambiguity[split.validation])),
    }


def told_ambiguity(raw: RawFeatures, ambiguity: Floats, split: Split) -> Floats:
    """U of the test rows, predicted by boosted trees from the raw columns.  # (n_test,)"""
    encoder = RawEncoder("min-max").fit(raw.rows(split.train))
    columns = encoder.transform(raw).numeric
    trees = HistGradientBoostingRegressor(random_state=0, early_stopping=False)
    trees.fit(columns[split.train], ambiguity[split.train])
    predicted: Floats = trees.predict(columns[split.test])
    return predicted


def _ambiguity_row(
    arrangement: str,
    name: str,
    score: NDArray[np.floating[Any]],
    truth: Floats | None,
    device: str = "cpu",
) -> Row:
    """What can be said with the true ambiguity alone."""
    return {
        "arrangement": arrangement,
        "score": name,
        "latent": None,
        "seed": 0,
        "spearman": None if truth is None else rounded(spearman(score, truth)),
        "auroc": None if truth is None else rounded(auroc_of_ambiguous(score, truth)),
        "validation_spearman": None,
        **dict.fromkeys(("aurc", "aurc_trapezoid", "aurc_collapsed", "augrc", "error_rate")),
        "environment": describe_environment(device),
    }


def rounded(value: float) -> float | None:
    """A figure as it is written down; None where there is none."""
    return round(value, 6) if np.isfinite(value) else None


LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.99)
"""of u, from clean to almost noise"""


def example_images(
    table: pa.Table,
    ambiguity: NDArray[np.float64],  # (N,)
    rows: NDArray[np.int64],
    per_level: int = 3,
) -> list[Row]:
    """Digits near each of six levels of u, as bytes 0 to 255, for the figure of the corruption."""
    chosen: list[Row] = []
    for level in LEVELS:
        nearest = rows[np.argsort(np.abs(ambiguity[rows] - level), kind="stable")[:per_level]]
        for row in nearest:
            pixels = [255 * value for value in table.slice(int(row), 1).to_pylist()[0].values()]
            chosen.append(
                {
                    "level": level,
                    "u": round(float(ambiguity[row]), 6),
                    "pixels": np.rint(pixels).astype(int).tolist(),
                }
            )
    return chosen


# --- findings: the goals on SIM and MNIST, each true, false or open

PAPER_DATASETS = ("mnist", "sim")


def uncertainty_findings(rows: Sequence[Row], setting: str) -> list[Finding]:
    """The goals on the first embedding of one setting; none where it has no rows at all."""
    mine = [r for r in rows if r["setting"] == setting and r["embedding_seed"] == 0]
    if not mine:
        return []
    groups = group(mine, "dataset", "arrangement", "score")
    findings = [_finds_ambiguity(groups, dataset, setting) for dataset in PAPER_DATASETS]
    datasets = dict.fromkeys([*PAPER_DATASETS, *(row["dataset"] for row in mine)])
    return findings + [_finds_errors(groups, d, score) for score in COMBINED for d in datasets]


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
    means = {score: metric_mean(groups.get((dataset, "shared", score)), "aurc") for score in scores}
    known = {score: value for score, value in means.items() if value is not None}
    if len(known) < len(means):
        return None
    best = min(known, key=known.__getitem__)
    return best, known[best]


def ambiguity_score(groups: Groups, dataset: str, setting: str) -> tuple[str, Sequence[Row]] | None:
    """The latent score that is to find ambiguous rows, with its rows.

    The one that rows are ranked by; in "ours" the one that agrees best with u on the validation
    rows.
    """
    if setting != "ours":
        rows = groups.get((dataset, "paper", LATENT))
        return (rows[0]["latent"], rows) if rows else None
    places = [*(("shared", name) for name in SCORES), ("balanced", BALANCED)]
    means = {
        place: metric_mean(groups.get((dataset, *place)), "validation_spearman") for place in places
    }
    known = {place: value for place, value in means.items() if value is not None}
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
    best = ambiguity_score(groups, dataset, setting)
    name, rows = best or ("", ())
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


# --- tables

METRICS = {
    "spearman": "Spearman ↑",
    "auroc": "AUROC (u ≥ q75) ↑",
    "aurc": "AURC (mean) ↓",
    "aurc_trapezoid": "AURC (trapezoid) ↓",
    "aurc_collapsed": "AURC (collapsed) ↓",
    "augrc": "AUGRC ↓",
    "error_rate": "error of its classifier",
}
LOWER_IS_BETTER = ("aurc", "aurc_trapezoid", "aurc_collapsed", "augrc", "error_rate")
SEED_METRICS = ("spearman", "auroc", "aurc")


def uncertainty_blocks(rows: Sequence[Row], per_row: Sequence[Row]) -> list[Block]:
    """Findings; per dataset and setting all scores on one classifier, then as in the paper."""
    groups = group(rows, *ABOUT)
    wanted: list[tuple[Any, ...]] = [(name, "paper", 0) for name in PAPER_DATASETS]
    tables = seed_table(rows)
    for about in dict.fromkeys([*wanted, *sorted(groups)]):
        tables += score_tables(about, group(groups.get(about, []), "arrangement", "score"))
    return [
        Block(
            "uncertainty",
            "uncertainty",
            "Uncertainty (Appendix B.3, Figures 3 and 5)",
            "Mean ± standard deviation over runs; below it *the paper's*, a single number. AURC by "
            "three estimators: mean of the running risk; trapezoid rule; ties collapsed and flat "
            "to coverage 0. The paper does not name its own.",
            {setting: uncertainty_findings(rows, setting) for setting in SETTINGS},
            tables if rows else (),
            uncertainty_figures(per_row),
            shows_gaps=False,
            is_run=bool(rows),
        )
    ]


def score_tables(about: tuple[Any, ...], here: Groups) -> list[Table]:
    """Of one embedding: one shared classifier, and the paper's arrangement."""
    dataset, setting, seed = about
    which = f"{dataset}, setting {setting}, pre-training seed {seed}"
    columns = ["score", *METRICS.values()]
    shared = [
        [score, *(mean_of(here.get(("shared", score)), metric) for metric in METRICS)]
        for score in (*(ANSWER_SCORES if setting == "default" else ()), *SHARED_SCORES)
    ]
    paper: list[list[str | Cell]] = [
        [
            f"{score} ({rows[0]['latent']})" if rows and score == LATENT else score,
            *(_paper_cell(rows, m, dataset, score) for m in METRICS),
        ]
        for score in PAPER_SCORES
        for rows in [here.get(("paper", score))]
    ]
    title = f"{which}: one shared classifier (not in the paper)"
    return [
        Table(title, columns, shared, shared_error(here), is_open=False),
        Table(f"{which}: each score on its own classifier, as in the paper", columns, paper),
    ]


def _paper_cell(rows: Sequence[Row] | None, metric: str, dataset: str, score: str) -> str | Cell:
    paper = uncertainty_paper_value(metric, dataset, score)
    values = [row[metric] for row in rows or () if row[metric] is not None]
    if values:
        return metric_cell(values, paper, metric in LOWER_IS_BETTER)
    if paper is not None:
        return Cell("", short(paper), "", "missing")
    return mean_of(rows, metric)


def mean_of(rows: Sequence[Row] | None, metric: str) -> str:
    if not rows:
        return MISSING
    return mean_text([row[metric] for row in rows if row[metric] is not None])


def seed_table(rows: Sequence[Row]) -> list[Table]:
    """The latent score of each pre-training seed, where there are several."""
    mine = [r for r in rows if r["arrangement"] == "paper" and r["score"] == LATENT]
    lines = []
    for (dataset, setting), here in sorted(group(mine, "dataset", "setting").items()):
        by_seed = group(here, "embedding_seed")
        if len(by_seed) > 1:
            lines += [
                [dataset, setting, str(seed), some[0]["latent"] or "–"]
                + [mean_of(some, metric) for metric in SEED_METRICS]
                for (seed,), some in sorted(by_seed.items())
            ]
    columns = ["dataset", "setting", "pre-training seed", "score"]
    columns += [METRICS[metric] for metric in SEED_METRICS]
    title = "Pre-training seeds, latent score"
    return [Table(title, columns, lines, labels=4, is_open=False)] if lines else []


def shared_error(here: Groups) -> str:
    """The error that makes the AURCs comparable; what finds u, and what bounds that."""
    rows = here.get(("shared", "random"))
    if not rows:
        return "The shared classifier is a perceptron; not computed yet."
    error = statistics.fmean(row["error_rate"] for row in rows)
    text = f"The shared classifier is a perceptron with an error of {short(error)}."
    balanced = here.get(("balanced", BALANCED))
    if balanced:
        text += (
            f" {BALANCED} (how unlikely the values of a row are given its other columns, numbers "
            f"and categories in equal parts, {BALANCED_SPLITS} splits) finds u with a Spearman of "
            f"{mean_of(balanced, 'spearman')} and an AUROC of {mean_of(balanced, 'auroc')}."
        )
    told = here.get(("bound", TOLD))
    if told:
        text += (
            " Boosted trees that are told u of the training rows find it in the test rows' columns "
            f"with a Spearman of {mean_of(told, 'spearman')} and an AUROC of "
            f"{mean_of(told, 'auroc')}."
        )
    return text


# --- Figure 3 (risk and coverage, uncertainty against ambiguity, ROC), Figure 5 (MNIST corrupted)

SIDE = 28
"""pixels of an MNIST image's side"""
BINS = 20
"""of ambiguity, whose mean uncertainties are joined by a line"""


def uncertainty_figures(per_row: Sequence[Row]) -> list[Figure]:
    """A figure per setting, and the corrupted digits."""
    first = [row for row in per_row if row["embedding_seed"] == 0]
    figures = [
        Figure(
            f"uncertainty-{setting}.svg",
            f"Risk and coverage, ambiguity, ROC; setting {setting}",
            lambda path, rows=rows: draw_uncertainty(rows, path),  # type: ignore[misc]
            "Three panels a dataset: risk over coverage, uncertainty over ambiguity, ROC",
            "Left: risk of a linear probe among the rows kept, the dotted line is all rows. "
            "Middle: uncertainty over the true ambiguity u. Right: finding u ≥ q75.",
        )
        for (setting,), rows in group(first, "setting").items()
    ]
    images = [row["images"] for row in per_row if row.get("images")]
    if images:
        figures.append(
            Figure(
                "mnist_corruption.svg",
                "MNIST corrupted",
                lambda path: draw_corruption(images[0], path),
                "Digits of MNIST, each column more corrupted than the one before",
                "From clean to almost noise.",
            )
        )
    return figures


def draw_uncertainty(per_row: Sequence[Row], path: Path) -> None:
    """A line of three panels per dataset; the last two only where the ambiguity is known."""
    figure, axes = panels((10.5, 3.1 * len(per_row)), len(per_row), 3, squeeze=False)
    for letter, (risks, ambiguities, roc), row in zip("ABCDEFG", axes, per_row, strict=False):
        unsure, wrong = np.asarray(row["uncertainty"]), np.asarray(row["wrong"], dtype=float)
        curve = risk_coverage(wrong, unsure)
        risks.plot(curve.coverage, curve.risk, color=DARK)
        risks.axhline(wrong.mean(), color="grey", linestyle=":", linewidth=1)
        _label(
            risks, f"{letter}. {row['dataset']}: AURC {aurc(wrong, unsure):.3f}", "coverage", "risk"
        )
        if row["ambiguity"] is None:
            ambiguities.axis("off")
            roc.axis("off")
            continue
        _draw_ambiguity(ambiguities, roc, unsure, np.asarray(row["ambiguity"]))
    save_svg(figure, path)


def draw_corruption(images: Sequence[Row], path: Path) -> None:
    """Digits of the dataset, a column per level of u."""
    levels = list(dict.fromkeys(image["level"] for image in images))
    columns = [[image for image in images if image["level"] == level] for level in levels]
    deep = max(map(len, columns))
    figure, axes = panels((1.2 * len(levels), 1.3 * deep), deep, len(levels), squeeze=False)
    for j, column in enumerate(columns):
        for i in range(deep):
            axes[i][j].axis("off")
            if i < len(column):
                pixels = np.asarray(column[i]["pixels"], dtype=np.uint8).reshape(SIDE, SIDE)
                axes[i][j].imshow(pixels, cmap="gray", vmin=0, vmax=255)
                axes[i][j].set_title(f"u = {column[i]['u']:.2f}", fontsize=8)
    save_svg(figure, path)


def _draw_ambiguity(scatter: Any, roc: Any, unsure: Any, truth: Any) -> None:
    spread = unsure.std() or 1.0
    standard = (unsure - unsure.mean()) / spread
    scatter.scatter(truth, standard, s=4, color=LIGHT, linewidth=0, rasterized=True)
    edges = np.quantile(truth, np.linspace(0, 1, BINS + 1))
    bins = np.clip(np.searchsorted(edges, truth, side="right") - 1, 0, BINS - 1)
    filled = [b for b in range(BINS) if (bins == b).any()]
    scatter.plot(
        [truth[bins == b].mean() for b in filled],
        [standard[bins == b].mean() for b in filled],
        color=DARK,
    )
    _label(
        scatter,
        f"Spearman {spearman(unsure, truth):.3f}",
        "ambiguity u",
        "uncertainty, standardised",
    )
    hits, alarms, _ = roc_curve(truth >= np.quantile(truth, 0.75), unsure)
    roc.plot(hits, alarms, color=DARK)
    roc.plot([0, 1], [0, 1], color="grey", linestyle=":", linewidth=1)
    title = f"u ≥ q75: AUROC {auroc_of_ambiguous(unsure, truth):.3f}"
    _label(roc, title, "false positives", "true positives")


def _label(axis: Any, title: str, across: str, up: str) -> None:
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.grid(alpha=0.2)
