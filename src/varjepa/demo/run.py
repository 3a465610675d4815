"""``varjepa demo``: the whole tool on the embedded SIM table, start to finish, with a report.

    varjepa demo --out demo
    varjepa demo --quick --out demo

SIM knows how ambiguous each of its rows is, so its uncertainties can be checked. The demo takes
under 3 minutes on two cores, the quick one under one, with models that are smaller than the default
and learn faster. Labels evaluate the embedding; they never train it.

The core packages are enough. Without matplotlib the report has no charts; without jinja2 there is
no report, but the pages to audit and to explore the rows, and all figures as JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from varjepa.audit.run import audit
from varjepa.demo.sim import SimSettings, draw_sim
from varjepa.environment import describe_environment
from varjepa.estimators import VarTJEPA
from varjepa.estimators.summary import model_html
from varjepa.explore import explore
from varjepa.files import write_json
from varjepa.metrics.ambiguity import auroc_of_ambiguous, spearman
from varjepa.metrics.fidelity import fidelity, shuffle_columns
from varjepa.metrics.imputation import imputation_errors, remove_cells
from varjepa.metrics.selective import COVERAGES, accuracy_at, risk_coverage
from varjepa.models.inference import QUESTIONS, LatentKind, Question, default_aggregate
from varjepa.report.page import (
    Headline,
    ReportPage,
    RiskCoverage,
    write_page,
)
from varjepa.report.tables import Table, to_terminal
from varjepa.settings import Architecture, Training

MISSING_SHARE = 0.05
"""Share of the test cells that are removed and imputed."""

SHOWN = "nll balanced"
"""The uncertainty of the headlines: how unlikely a row's values are given its
other columns, numbers and categories in equal parts. SIM's ambiguity changes a few numbers and
categories of a row, and leaves its clearest trace there."""

AUDITED = 500
"""Test rows that get known errors and are audited."""

ERRORS = 20
"""Cells of each kind of error."""

SPLITS = 8
"""Splits of the columns for that uncertainty."""

NO_CHARTS = "The report has no charts without matplotlib: pip install 'varjepa[report]'"
NO_REPORT = "There is no report without jinja2: pip install 'varjepa[report]'"

ScoresByName = Mapping[str, NDArray[np.float32]]
"""Uncertainties of the test rows by name."""

Rows = NDArray[np.int64]
"""Row numbers."""


@dataclass(frozen=True, slots=True)
class DemoSize:
    """What the demo fits, on how much."""

    sim: SimSettings
    rows: int
    """of the table, the first so many are used"""
    width: int
    """of the networks"""
    learning_rate: float
    epochs: int


WHOLE = DemoSize(SimSettings(), 10_000, 64, 1e-3, 16)
"""The paper's table, and a model half as wide as the default."""

QUICK = DemoSize(SimSettings(numeric=12, noisy=4, binned=3), 1500, 32, 3e-3, 40)
"""Fewer rows and columns, a smaller network that learns faster."""


def run_demo(folder: Path, size: DemoSize, say: Callable[[Any], None]) -> Path:
    """Fit, evaluate, impute, sample, audit, report; returns the path of the page to open.

    ``say`` prints a line or a table.
    """
    start = time.perf_counter()
    has_charts, has_report = find_spec("matplotlib") is not None, find_spec("jinja2") is not None
    if not (has_charts and has_report):
        say(NO_CHARTS if has_report else NO_REPORT)
    sim = draw_sim(size.sim)
    table = sim.to_arrow().slice(0, size.rows)
    train, test = np.split(np.random.default_rng(0).permutation(size.rows), [int(0.8 * size.rows)])
    train_table, test_table = table.take(train), table.take(test)
    say(f"SIM: {size.rows:,} rows, {table.num_columns} columns, {sim.label.max() + 1} classes")

    model = VarTJEPA(
        Architecture(
            d=size.width, ff=2 * size.width, predictor_width=size.width, predictor_ff=2 * size.width
        ),
        training=Training(epochs=size.epochs, learning_rate=size.learning_rate),
        verbose=1,
        random_state=0,
    ).fit(train_table)
    fit_seconds = time.perf_counter() - start
    say(f"fitted without labels in {fit_seconds:.0f} s")

    raw_is_right = classify(*raw_features(table), sim.label, train, test)
    is_right = classify(model.transform(table), StandardScaler(), sim.label, train, test)
    kinds: tuple[LatentKind | Question, ...] = (*QUESTIONS, "posterior")
    asked = [(kind, default_aggregate(kind)) for kind in kinds]
    scores = {k.split()[0]: u for k, u in model.uncertainties(test_table, asked).items()}
    scores[SHOWN] = model.uncertainty(test_table, "nll", "balanced", splits=SPLITS)
    tables = [
        *evaluation_tables(raw_is_right, is_right, sim.ambiguity[test], scores),
        imputation_table(model, test_table, train_table),
        samples_table(model, test_table, train_table),
        audit_table(model, test_table.slice(0, AUDITED), folder / "audit"),
    ]
    for result in tables:
        say("")
        say(to_terminal(result))

    shown = test_table.append_column("class", pa.array([f"class {c}" for c in sim.label[test]]))
    shown = shown.append_column("ambiguity", pa.array(sim.ambiguity[test]))
    explore(model, shown, folder / "explore.html", title="varjepa demo: the test rows")
    seconds, environment = time.perf_counter() - start, describe_environment()
    at_half = accuracy_at(is_right, scores[SHOWN], 0.5)
    correlation = spearman(scores[SHOWN], sim.ambiguity[test])
    page = ReportPage(
        title="varjepa demo: the SIM table",
        subtitle="One model, fitted without labels to a simulated table of known ambiguity."
        + ("" if has_charts else f" {NO_CHARTS}."),
        links={"Its test rows, audited": "audit/report.html", "A map of them": "explore.html"},
        headlines=[
            Headline(
                "accuracy on embeddings", f"{is_right.mean():.3f}", f"raw {raw_is_right.mean():.3f}"
            ),
            Headline("accuracy at 50 % coverage", f"{at_half:.3f}", f"by {SHOWN}"),
            Headline("Spearman with ambiguity", f"{correlation:.3f}", f"by {SHOWN}"),
            Headline("whole demo", f"{seconds:.0f} s", "fit, evaluate, impute, sample, report"),
        ],
        tables=tables,
        model=model_html(model),
        footer=environment,
    )
    if has_charts:
        page = replace(
            page,
            risk_coverage=risk_coverage_curves(is_right, scores),
        )
    if has_report:
        write_page(page, folder / "report.html")
    figures = {t.title: [dict(zip(t.columns, row, strict=True)) for row in t.rows] for t in tables}
    times = {"fit_seconds": round(fit_seconds, 1), "seconds": round(seconds, 1)}
    saved = {"rows": size.rows, "epochs": size.epochs, **times, "figures": figures}
    write_json(folder / "demo.json", saved | {"environment": environment})
    return folder / ("report.html" if has_report else "audit/report.html")


# --- evaluate: a classifier on raw features and on embeddings


def raw_features(table: pa.Table) -> tuple[NDArray[Any], Any]:
    """The table's cells, and an encoder: standardised numbers and one-hot categories."""
    columns = [np.asarray(column.to_pylist(), dtype=object) for column in table.columns]
    numeric = [i for i, field in enumerate(table.schema) if pa.types.is_floating(field.type)]
    others = [i for i in range(table.num_columns) if i not in numeric]
    encoder = make_column_transformer((StandardScaler(), numeric), (OneHotEncoder(), others))
    return np.column_stack(columns), encoder


def classify(
    features: NDArray[Any], encoder: Any, label: Rows, train: Rows, test: Rows
) -> NDArray[np.bool_]:
    """Which test rows a perceptron classifies correctly."""
    perceptron = MLPClassifier((128, 128), early_stopping=True, random_state=0)
    classifier = make_pipeline(encoder, perceptron).fit(features[train], label[train])
    correct: NDArray[np.bool_] = classifier.predict(features[test]) == label[test]
    return correct


def evaluation_tables(
    raw_is_right: NDArray[np.bool_],
    is_right: NDArray[np.bool_],
    ambiguity: NDArray[np.float64],
    scores: ScoresByName,
) -> list[Table]:
    """Accuracy; accuracy on the rows that each uncertainty keeps; rank by true ambiguity."""
    return [
        Table(
            "Accuracy",
            ["classifier", "raw features", "embedding"],
            [_row("perceptron 128-128", raw_is_right.mean(), is_right.mean())],
            f"Accuracy on {len(is_right):,} rows that neither the model nor the classifier saw. "
            "SIM's classes are clusters of raw columns, which are hard to beat with many labels.",
        ),
        Table(
            "Selective accuracy",
            ["at coverage", *(f"{coverage:.0%}" for coverage in COVERAGES)],
            [_row(k, *(accuracy_at(is_right, u, c) for c in COVERAGES)) for k, u in scores.items()],
            "Accuracy on embeddings when the most uncertain rows are left out, by kind of "
            "uncertainty. Inconsistent: the columns of a row speak against each other; doubtful: "
            "they do, and its values are unlikely; unpredictable: its cells are undecided given "
            "the others; atypical and nll: they are unlikely given the others; ambiguous: the row "
            "is between clusters; posterior: its latents are uncertain, the paper's score.",
        ),
        Table(
            "Uncertainty against the true ambiguity",
            ["uncertainty", "Spearman", "AUROC of the most ambiguous quarter"],
            [
                _row(kind, spearman(u, ambiguity), auroc_of_ambiguous(u, ambiguity))
                for kind, u in scores.items()
            ],
            "SIM knows how ambiguous each row was made; the model was never told.",
        ),
    ]


# --- impute and sample


def imputation_table(model: VarTJEPA, test: pa.Table, train: pa.Table) -> Table:
    """Remove some cells, impute them, and compare with the column's mean or mode."""
    with_missing, is_removed = remove_cells(test, MISSING_SHARE, seed=0)
    errors = imputation_errors(test, model.impute(with_missing), is_removed, train)
    rows = [
        _row("numbers: RMSE in standard deviations", errors.mean_rmse, errors.rmse),
        _row("categories: share right", errors.mode_accuracy, errors.accuracy),
    ]
    note = f"{MISSING_SHARE:.0%} of the test cells were removed and imputed from their row."
    return Table("Imputation", ["", "mean or mode", "varjepa"], rows, note)


def samples_table(model: VarTJEPA, test: pa.Table, train: pa.Table) -> Table:
    """Sampled rows compared with real ones, between the best and the worst to expect."""
    few = train.slice(0, test.num_rows)
    others = {
        "sampled rows": model.sample(test.num_rows, random_state=0),
        "other real rows": few,
        "real columns, each shuffled": shuffle_columns(few, seed=0),
    }
    compared = {name: fidelity(test, other, seed=0) for name, other in others.items()}
    rows = [_row(name, f.marginal, f.pairwise, f.auroc) for name, f in compared.items()]
    columns = ["compared with the test rows", "columns", "pairs of columns", "AUROC"]
    note = "Mean distances (0: the same); AUROC of a classifier that tells them apart (.5: cannot)."
    return Table("Sampling", columns, rows, note)


def audit_table(model: VarTJEPA, rows: pa.Table, folder: Path) -> Table:
    """Put known errors into some rows, audit them, and say which were found; a page of its own."""
    rng = np.random.default_rng(0)
    numbers = [f.name for f in rows.schema if pa.types.is_floating(f.type)]
    others = [name for name in rows.column_names if name not in numbers]
    kinds: dict[str, tuple[list[str], Callable[[Any], Any]]] = {
        "number × 10": (numbers, lambda value: 10.0 * value),
        "number − 12": (numbers, lambda value: value - 12.0),
        "typing error": (others, lambda value: f"{value}x"),
    }
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    planted: dict[tuple[int, str], str] = {}
    for kind, (names, change) in kinds.items():
        for _ in range(ERRORS):
            place = int(rng.integers(rows.num_rows)), str(rng.choice(names))
            if place not in planted:
                columns[place[1]][place[0]] = change(columns[place[1]][place[0]])
                planted[place] = kind
    result = audit(pa.table(columns), model)
    result.save(folder)
    cells = result.cells.to_pylist()
    flagged = {(cell["row"], cell["column"]) for cell in cells if cell["flagged"]}
    top = {(cell["row"], cell["column"]) for cell in cells[: len(planted)]}
    table_rows = []
    for kind in kinds:
        mine = {place for place, one in planted.items() if one == kind}
        counts = len(mine), len(mine & flagged), len(mine & top)
        table_rows.append([kind, *map(str, counts)])
    false = str(len(flagged - set(planted)))
    table_rows.append(["cells without an error", "", false, str(len(top - set(planted)))])
    note = f"{rows.num_rows} test rows with known errors; the page of the audit has every cell."
    names = ["", "planted", "flagged", f"among the {len(planted)} most suspicious"]
    return Table("Audit", names, table_rows, note)


def _row(name: str, *values: float) -> list[str]:
    return [name, *(f"{value:.3f}" for value in values)]


# --- what the page shows


def risk_coverage_curves(is_right: NDArray[np.bool_], scores: ScoresByName) -> RiskCoverage:
    """Risk–coverage curves of every uncertainty between random and oracle."""
    errors = ~is_right
    references = {"random": np.zeros(len(errors)), "oracle": errors}
    named = {SHOWN: scores[SHOWN], **scores, **references}  # the first is the one to look at
    curves = {name: risk_coverage(errors, score) for name, score in named.items()}
    return RiskCoverage(curves[SHOWN].coverage, {name: c.risk for name, c in curves.items()})
