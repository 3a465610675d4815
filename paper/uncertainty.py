"""Appendix B.3: does uncertainty find ambiguous rows and errors?

The scores of the uncertainty study: their names, and those that are combined from others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from paper.cells import fit_on, fit_options, fit_probe_of_figure, predictor_settings, wrong_rows
from paper.downstream import learn, obtain_estimator, score_name
from paper.example_images import example_images
from paper.predictors import FIGURE_PROBE, PREDICTORS, Inputs, RawFeatures, Tokens
from paper.predictors.inputs import RawEncoder
from paper.protocol import SCORES, Embedded, Say
from paper.representations import Workbench
from paper.results import Layout, ResultFile, Row, plain, rounded
from paper.settings import FULL, Scale, Setting, pretraining
from varjepa.environment import describe_environment, pick_device
from varjepa.estimators import VarTJEPA
from varjepa.evaluate.splits import Split
from varjepa.files import make_folder, only_writer
from varjepa.metrics.ambiguity import auroc_of_ambiguous, spearman
from varjepa.metrics.combination import fit_combined_score
from varjepa.metrics.confidence import (
    chance_of_another,
    mean_probabilities,
    one_minus_msp,
    predictive_entropy,
)
from varjepa.metrics.selective import selective_scores
from varjepa.models.inference import KINDS, default_aggregate

Floats = NDArray[np.float64]

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
"""the one score of the arrangement "balanced"; of datasets with a true ambiguity
and columns of both kinds"""

_ALONE = (*(f"{kind} {default_aggregate(kind)}" for kind in KINDS), *OWN, "probe doubt")

COMBINED_PARTS: Mapping[str, tuple[str, ...]] = {
    COMBINED[0]: _ALONE,
    COMBINED[1]: (*_ALONE, "mc dropout doubt", "deep ensemble", "deep ensemble doubt"),
}
"""what each is combined from"""

SHARED_SCORES = (*SCORES, *POSTHOC, *OWN, *DOUBTS, *COMBINED, *BOUNDS)
PAPER_SCORES = (LATENT, *POSTHOC)


@dataclass(frozen=True, slots=True)
class Judged:
    """Scores of some rows, with the mistakes of one classifier on them."""

    scores: Mapping[str, Floats]
    wrong: Floats


def combine(held_out: Judged, test: Judged) -> dict[str, Floats]:
    """The combined scores of the test rows, learned from the validation rows' errors."""

    def columns(judged: Judged, names: Sequence[str]) -> Floats:
        return np.stack([judged.scores[name] for name in names], axis=1)

    return {
        title: fit_combined_score(columns(held_out, names), held_out.wrong)(columns(test, names))
        for title, names in COMBINED_PARTS.items()
    }


# --- Scores that are judged by the true ambiguity u alone: there is no classifier that could err.
#
# ``balanced``  how unlikely a row's values are given its other columns, numbers and
# categories in
# equal parts, over many splits of the columns; beyond the paper.
# ``bound``     no score of ours: boosted trees that are told the u of the training rows. A
# score that
# never sees u can hardly be expected to find it better than they do.


BALANCED_SPLITS = 32
"""where Spearman's ρ with u hardly rises any more on SIM's validation rows
(results/sim-balanced.json at 02cf438)"""


def balanced_row(estimator: VarTJEPA, table: pa.Table, ambiguity: Floats, split: Split) -> Row:
    """How well the balanced score finds ambiguous rows."""
    held_out, test = (
        estimator.uncertainty(table.take(rows), "nll", "balanced", splits=BALANCED_SPLITS)
        for rows in (split.validation, split.test)
    )
    device = str(pick_device(estimator.device))
    return {
        **_row("balanced", BALANCED, test, ambiguity[split.test], device),
        "validation_spearman": rounded(spearman(held_out, ambiguity[split.validation])),
    }


def bound_row(raw: RawFeatures, ambiguity: Floats, split: Split) -> Row:
    """How well somebody finds ambiguous rows who is told the ambiguity of others."""
    score = told_ambiguity(raw, ambiguity, split)
    return _row("bound", TOLD, score, ambiguity[split.test], "cpu")


def told_ambiguity(raw: RawFeatures, ambiguity: Floats, split: Split) -> Floats:
    """U of the test rows, predicted by boosted trees from the raw columns.  # (n_test,)"""
    encoder = RawEncoder("one-hot", "minmax").fit(raw.rows(split.train))
    columns = encoder.transform(raw).numeric
    trees = HistGradientBoostingRegressor(random_state=0, early_stopping=False)
    trees.fit(columns[split.train], ambiguity[split.train])
    found: Floats = trees.predict(columns[split.test])
    return found


def _row(
    arrangement: str, name: str, score: NDArray[np.floating[Any]], truth: Floats, device: str
) -> Row:
    return {
        "arrangement": arrangement,
        "score": name,
        "latent": None,
        "seed": 0,
        "spearman": rounded(spearman(score, truth)),
        "auroc": rounded(auroc_of_ambiguous(score, truth)),
        "validation_spearman": None,
        **dict.fromkeys(("aurc", "aurc_trapezoid", "aurc_collapsed", "augrc", "error_rate")),
        "environment": describe_environment(device),
    }


# --- Which uncertainty finds ambiguous rows, and which finds errors (Appendix B.3, Figure 3).
#
# python -m paper uncertainty --out DIR [--datasets sim mnist]
#
# Latent scores and post-hoc baselines on the same frozen embeddings, judged twice:
#
# ``shared``  every score on the errors of one perceptron. AURCs can be compared only so; of
# the
# latent scores also Spearman's ρ with u on validation rows, to choose by. Beyond the
# paper: all latent scores, the perceptron's own entropy and confidence, two scores that
# are combined from others on the validation rows, random abstention, and an oracle.
# ``paper``   each score on the errors of its own classifier: the linear probe's for the
# latent
# score, entropy and MSP; the vote of 20 dropout passes; the vote of the ensemble.
# ``balanced``, ``bound``   by u alone (``ambiguity_rows.py``).
#
# A run takes five perceptrons of its own: the ensemble, whose first member is the shared
# classifier
# and the one with dropout.

FILE = "uncertainty.json"
ROWS_FILE = "uncertainty_rows.json"

WITH_TRUTH = ("sim", "mnist")
"""datasets whose rows carry their true ambiguity; the paper's two"""
MIXED = ("sim",)
"""of these, those whose columns are of both kinds"""

MEMBERS = 5
"""perceptrons of an ensemble"""
PASSES = 20
"""of Monte Carlo dropout"""


Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class UncertaintyPlan:
    """Which embeddings are looked at."""

    datasets: Sequence[str] = WITH_TRUTH
    settings: Sequence[Setting] = ("paper",)
    runs: int = 5
    """ensembles, each with a shared classifier"""
    embeddings: int = 1
    scale: Scale = FULL


def reproduce_uncertainty(
    folder: Path, plan: UncertaintyPlan, device: str = "auto", say: Say = lambda line: None
) -> tuple[ResultFile, ResultFile]:
    """Compute whatever run is not in the folder yet, saving after each."""
    make_folder(folder)
    with only_writer(folder):
        table, per_row = open_uncertainty(folder, plan.scale)
        for dataset in plan.datasets:
            bench = Workbench(folder, dataset, plan.scale, device, say)
            for setting in plan.settings:
                for embedding_seed in range(plan.embeddings):
                    _complete(bench, setting, embedding_seed, plan.runs, table, per_row)
                about = {"dataset": dataset, "setting": setting, "embedding_seed": 0}
                if dataset in WITH_TRUTH and not table.has(**about, score=TOLD):
                    bound = bound_row(bench.raw, bench.ambiguity, bench.split)
                    table.add([{**about, **bound}])
    return table, per_row


def _complete(
    bench: Workbench,
    setting: Setting,
    embedding_seed: int,
    runs: int,
    table: ResultFile,
    per_row: ResultFile,
) -> None:
    """Whatever is missing of one embedding."""
    about: Row = {"dataset": bench.dataset, "setting": setting, "embedding_seed": embedding_seed}
    missing = [
        seed for seed in range(runs) if not table.has(**about, arrangement="shared", seed=seed)
    ]
    if missing or not per_row.has(**about):
        study = Study(bench, setting, embedding_seed)
        if not per_row.has(**about):
            per_row.add([{**about, **study.per_row()}])
        for seed in missing:
            table.add([{**about, **row} for row in study.run(seed)])
            bench.say(f"{bench.dataset}, {setting}: uncertainty, run {seed}")
    if bench.dataset in MIXED and not table.has(**about, score=BALANCED):
        estimator = obtain_estimator(bench, "var_t_jepa", setting, embedding_seed)
        assert isinstance(estimator, VarTJEPA)
        balanced = balanced_row(estimator, bench.data.table, bench.ambiguity, bench.split)
        table.add([{**about, **balanced}])


def open_uncertainty(folder: Path, scale: Scale) -> tuple[ResultFile, ResultFile]:
    """``uncertainty.json``, and the rows behind the figures in ``uncertainty_rows.json``."""

    def settings(row: Row) -> dict[str, Any]:
        spec = pretraining(
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

    about = ("dataset", "setting", "embedding_seed")
    metrics = (
        "spearman",
        "auroc",
        "validation_spearman",
        "aurc",
        "augrc",
        "error_rate",
        "environment",
    )
    table = Layout((*about, "arrangement", "score", "seed"), metrics, settings)
    per_row = Layout(about, ("score", "uncertainty", "ambiguity", "wrong"), settings)
    return ResultFile(folder / FILE, table), ResultFile(folder / ROWS_FILE, per_row)


class Study:
    """The classifiers of one embedding, and what they say."""

    def __init__(self, bench: Workbench, setting: Setting, embedding_seed: int) -> None:
        self.bench = bench
        self.data, self.split = bench.data, bench.split
        self.embedded: Embedded = learn(bench, "var_t_jepa", setting, embedding_seed)
        self.latent = score_name(bench, setting, embedding_seed)
        self.inputs = Inputs(tokens=Tokens(self.embedded.tokens, standardise=True))
        self.options = fit_options(PREDICTORS["mlp"], bench.scale, bench.device)

    def run(self, seed: int) -> list[Row]:
        """All scores of one run in both arrangements."""
        members = range(MEMBERS * seed, MEMBERS * (seed + 1))
        probe, probe_inputs = fit_probe_of_figure(
            self.embedded, self.data, self.split, [members[0]], self.bench.device
        )
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
        truth = None if self.data.ambiguity is None else self.data.ambiguity[self.split.validation]
        agreeing = {
            name: None if truth is None else rounded(spearman(held_out.scores[name], truth))
            for name in SCORES
        }
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
        probe, inputs = fit_probe_of_figure(
            self.embedded, self.data, self.split, [0], self.bench.device
        )
        wrong = wrong_rows(probe.predict(inputs, test)[0], self.data, test)
        truth = self.data.ambiguity
        found: Row = {
            "score": self.latent,
            "uncertainty": _digits(self.embedded.scores[self.latent][test]),
            "ambiguity": None if truth is None else _digits(truth[test]),
            "wrong": wrong.astype(int).tolist(),
        }
        if self.data.name == "mnist" and truth is not None:
            found["images"] = example_images(self.data.table, truth, test)
        return found

    def _shared(self, rows: Rows, answers: Mapping[str, NDArray[np.float32]]) -> Judged:
        """Every score of some rows that needs no fitting, on the shared classifier's mistakes."""
        scores = {name: score[rows] for name, score in self.embedded.scores.items()}
        scores["probe entropy"] = predictive_entropy(answers["probe"])
        scores["probe msp"] = one_minus_msp(answers["probe"])
        scores["mc dropout"] = predictive_entropy(answers["mc dropout"])
        scores["deep ensemble"] = predictive_entropy(answers["deep ensemble"])
        scores["own entropy"] = predictive_entropy(answers["own"])
        scores["own msp"] = one_minus_msp(answers["own"])
        answer = answers["own"].argmax(-1)
        scores |= {name: chance_of_another(answers[who], answer) for name, who in DOUBTS.items()}
        return Judged(scores, wrong_rows(answers["own"], self.data, rows))

    def _row(self, arrangement: str, name: str, score: Floats, wrong: Floats, origin: Row) -> Row:
        found = asdict(selective_scores(wrong, score))
        truth = None if self.data.ambiguity is None else self.data.ambiguity[self.split.test]
        asked = truth is not None and name != "oracle"  # it knows errors, not ambiguity
        return {
            "arrangement": arrangement,
            "score": name,
            "latent": self.latent if name == LATENT else None,
            "spearman": rounded(spearman(score, truth)) if asked and truth is not None else None,
            "auroc": rounded(auroc_of_ambiguous(score, truth))
            if asked and truth is not None
            else None,
            "validation_spearman": None,
            **{key: rounded(value) for key, value in found.items()},
            **origin,
        }


def _digits(values: Floats) -> list[float]:
    return [float(f"{value:.6g}") for value in values]
