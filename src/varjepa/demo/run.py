"""``varjepa demo``: the whole tool on the embedded SIM table, start to finish, with a report.

    varjepa demo --out demo

SIM knows how ambiguous each of its rows is, so its uncertainties can be checked. The demo takes
under 3 minutes on two cores, with a model that is smaller than the default and learns faster.
Labels evaluate the embedding; they never train it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.manifold import TSNE
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from varjepa.demo.sim import draw_sim
from varjepa.environment import describe_environment
from varjepa.estimators import VarTJEPA
from varjepa.files import write_json
from varjepa.metrics.ambiguity import auroc_of_ambiguous, spearman
from varjepa.metrics.fidelity import fidelity, shuffle_columns
from varjepa.metrics.imputation import imputation_errors, remove_cells
from varjepa.metrics.selective import COVERAGES, accuracy_at, risk_coverage
from varjepa.report.page import (
    EmbeddingMap,
    Headline,
    ReportPage,
    RiskCoverage,
    TrainingCurve,
    UncertainCell,
    UncertainRow,
    write_page,
)
from varjepa.report.tables import Table, to_terminal
from varjepa.settings import Architecture, Objective, Training

MISSING_SHARE = 0.05
"""Share of the test cells that are removed and imputed."""

SHOWN = "nll balanced"
"""The uncertainty that the map and the list of rows show: how unlikely a row's values are given its
other columns, numbers and categories in equal parts. SIM's ambiguity changes a few numbers and
categories of a row, and leaves its clearest trace there."""

SPLITS = 8
"""Splits of the columns for that uncertainty."""

Scores = Mapping[str, NDArray[np.float32]]
"""Uncertainties of the test rows by name."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How much to do."""

    rows: int = 10_000
    """rows of SIM"""
    epochs: int = 22
    """training epochs"""
    batch_size: int = 128
    """rows per step"""
    learning_rate: float = 5e-3
    """five times the default"""
    d: int = 32
    """latent width"""
    depth: int = 2
    """transformer layers"""
    seed: int = 0
    """of the model and of the split; the table itself is frozen"""


def run_demo(folder: Path, settings: DemoSettings, say: Callable[[Any], None]) -> Path:
    """Fit, evaluate, impute, sample, report; returns the report's path.

    ``say`` prints a line or a table.
    """
    start = time.perf_counter()
    sim = draw_sim()
    rows = sim.to_arrow().slice(0, settings.rows)
    order = np.random.default_rng(settings.seed).permutation(settings.rows)
    train, test = np.split(order, [int(0.8 * settings.rows)])
    train_rows, test_rows = rows.take(train), rows.take(test)
    say(f"SIM: {rows.num_rows:,} rows, {rows.num_columns} columns, {sim.label.max() + 1} classes")

    model = make_model(settings).fit(train_rows)
    fit_seconds = time.perf_counter() - start
    say(f"fitted without labels in {fit_seconds:.0f} s")

    raw_is_right = classify(*raw_features(rows), sim.label, train, test)
    is_right = classify(model.transform(rows), StandardScaler(), sim.label, train, test)
    scores = score_rows(model, test_rows)
    tables = [
        accuracy_table(raw_is_right, is_right),
        selective_table(is_right, scores),
        ambiguity_table(sim.ambiguity[test], scores),
        imputation_table(model, test_rows, train_rows, settings.seed),
        samples_table(model, test_rows, train_rows, settings.seed),
    ]
    for table in tables:
        say("")
        say(to_terminal(table))

    seconds = time.perf_counter() - start
    environment = describe_environment()
    page = ReportPage(
        title="varjepa demo: the SIM table",
        subtitle="A label-free embedding with an uncertainty for every row and every column.",
        headlines=[
            Headline("accuracy on embeddings", _mean(is_right), f"raw {_mean(raw_is_right)}"),
            Headline(
                "accuracy at 50 % coverage",
                f"{accuracy_at(is_right, scores[SHOWN], 0.5):.3f}",
                f"by {SHOWN}",
            ),
            Headline(
                "Spearman with ambiguity",
                f"{spearman(scores[SHOWN], sim.ambiguity[test]):.3f}",
                f"by {SHOWN}",
            ),
            Headline("whole demo", f"{seconds:.0f} s", "fit, evaluate, impute, sample, report"),
        ],
        tables=tables,
        curve=training_curve(model),
        map=embedding_map(model, test_rows, sim.label[test], scores[SHOWN]),
        risk_coverage=risk_coverage_curves(is_right, scores),
        uncertain_rows=most_uncertain(model, rows, test, scores[SHOWN]),
        footer={name: str(value) for name, value in environment.items()},
    )
    write_page(page, folder / "report.html")
    result = {
        "settings": asdict(settings),
        "fit_seconds": round(fit_seconds, 1),
        "seconds": round(time.perf_counter() - start, 1),
        "figures": {
            table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
            for table in tables
        },
        "environment": environment,
    }
    write_json(folder / "demo.json", result)
    return folder / "report.html"


def make_model(settings: DemoSettings) -> VarTJEPA:
    """The model, smaller than the default."""
    return VarTJEPA(
        Architecture(
            d=settings.d,
            depth=settings.depth,
            ff=2 * settings.d,
            predictor_depth=2,
            predictor_ff=2 * settings.d,
        ),
        Objective(targets=1),
        Training(
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
        ),
        verbose=1,
        random_state=settings.seed,
    )


# --- evaluate: a classifier on raw features and on embeddings


def raw_features(rows: pa.Table) -> tuple[NDArray[Any], Any]:
    """The table's cells, and an encoder: standardised numbers and one-hot categories."""
    columns = [np.asarray(rows[name].to_pylist(), dtype=object) for name in rows.column_names]
    numeric = [i for i, field in enumerate(rows.schema) if pa.types.is_floating(field.type)]
    others = [i for i in range(rows.num_columns) if i not in numeric]
    encoder = make_column_transformer((StandardScaler(), numeric), (OneHotEncoder(), others))
    return np.column_stack(columns), encoder


def classify(
    features: NDArray[Any],
    encoder: Any,
    label: NDArray[np.int64],
    train: NDArray[np.int64],
    test: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which test rows a perceptron classifies correctly."""
    perceptron = MLPClassifier((128, 128), early_stopping=True, random_state=0)
    classifier = make_pipeline(encoder, perceptron).fit(features[train], label[train])
    correct: NDArray[np.bool_] = classifier.predict(features[test]) == label[test]
    return correct


def score_rows(model: VarTJEPA, rows: pa.Table) -> Scores:
    """Every kind of uncertainty, and the one that is shown."""
    scores = {name.split()[0]: score for name, score in model.uncertainties(rows).items()}
    return scores | {SHOWN: model.uncertainty(rows, "nll", "balanced", splits=SPLITS)}


def accuracy_table(raw_is_right: NDArray[np.bool_], is_right: NDArray[np.bool_]) -> Table:
    """Accuracy on raw features and on embeddings."""
    rows = [["perceptron 128-128", _mean(raw_is_right), _mean(is_right)]]
    columns = ["classifier", "raw features", "embedding"]
    note = f"Accuracy on {len(is_right):,} rows that neither the model nor the classifier saw."
    return Table("Accuracy", columns, rows, note)


def selective_table(is_right: NDArray[np.bool_], scores: Scores) -> Table:
    """Accuracy on the rows that each uncertainty keeps."""
    rows = [
        [kind, *(f"{accuracy_at(is_right, score, coverage):.3f}" for coverage in COVERAGES)]
        for kind, score in scores.items()
    ]
    columns = ["uncertainty", *(f"{coverage:.0%} kept" for coverage in COVERAGES)]
    note = "Accuracy on embeddings when the most uncertain rows are left out."
    return Table("Selective accuracy", columns, rows, note)


def ambiguity_table(ambiguity: NDArray[np.float64], scores: Scores) -> Table:
    """Whether an uncertainty ranks the rows by their true ambiguity."""
    rows = [
        [kind, f"{spearman(score, ambiguity):.3f}", f"{auroc_of_ambiguous(score, ambiguity):.3f}"]
        for kind, score in scores.items()
    ]
    columns = ["uncertainty", "Spearman", "AUROC of the most ambiguous quarter"]
    note = "SIM knows how ambiguous each row was made; the model was never told."
    return Table("Uncertainty against the true ambiguity", columns, rows, note)


# --- impute and sample


def imputation_table(model: VarTJEPA, test: pa.Table, train: pa.Table, seed: int) -> Table:
    """Remove some cells, impute them, and compare with the column's mean or mode."""
    with_missing, is_removed = remove_cells(test, MISSING_SHARE, seed)
    errors = imputation_errors(test, model.impute(with_missing), is_removed, train)
    rows = [
        ["numbers: RMSE in standard deviations", f"{errors.mean_rmse:.3f}", f"{errors.rmse:.3f}"],
        ["categories: share right", f"{errors.mode_accuracy:.3f}", f"{errors.accuracy:.3f}"],
    ]
    note = f"{MISSING_SHARE:.0%} of the test cells were removed and imputed from their row."
    return Table("Imputation", ["", "mean or mode", "varjepa"], rows, note)


def samples_table(model: VarTJEPA, test: pa.Table, train: pa.Table, seed: int) -> Table:
    """Sampled rows compared with real ones, between the best and the worst to expect."""
    few = train.slice(0, test.num_rows)
    others = {
        "sampled rows": model.sample(test.num_rows, random_state=seed),
        "other real rows": few,
        "real columns, each shuffled": shuffle_columns(few, seed),
    }
    rows = []
    for name, other in others.items():
        f = fidelity(test, other, seed)
        rows.append([name, f"{f.marginal:.3f}", f"{f.pairwise:.3f}", f"{f.auroc:.3f}"])
    columns = ["compared with the test rows", "columns", "pairs of columns", "AUROC"]
    note = (
        "Mean distances (0: the same); AUROC of a classifier that tells the two apart (.5: it "
        "cannot)."
    )
    return Table("Sampling", columns, rows, note)


# --- what the page shows


def training_curve(model: VarTJEPA) -> TrainingCurve:
    """Loss terms per epoch, and the validation score where there is one."""
    names = ["loss", "rec", "gen", "kl_sx", "kl_z", "kl_sy", model.selected_by_]
    return TrainingCurve(
        epochs=[record["epoch"] for record in model.history_],
        series={name: [record.get(name) for record in model.history_] for name in names},
    )


def embedding_map(
    model: VarTJEPA, rows: pa.Table, label: NDArray[np.int64], score: NDArray[np.float32]
) -> EmbeddingMap:
    """t-SNE of the flattened posterior means."""
    embedded = StandardScaler().fit_transform(model.transform(rows))
    x, y = TSNE(random_state=0, init="pca", perplexity=30).fit_transform(embedded).T.astype(float)
    return EmbeddingMap(x, y, [f"class {c}" for c in label], score.astype(float))


def risk_coverage_curves(is_right: NDArray[np.bool_], scores: Scores) -> RiskCoverage:
    """Risk–coverage curves of every uncertainty between random and oracle."""
    errors = ~is_right
    references = {"random": np.zeros(len(errors)), "oracle": errors}
    named = {SHOWN: scores[SHOWN], **scores, **references}  # the first is the one to look at
    curves = {name: risk_coverage(errors, score) for name, score in named.items()}
    return RiskCoverage(curves[SHOWN].coverage, {name: c.risk for name, c in curves.items()})


def most_uncertain(
    model: VarTJEPA,
    table: pa.Table,
    test: NDArray[np.int64],
    score: NDArray[np.float32],
    rows: int = 8,
    cells: int = 6,
) -> list[UncertainRow]:
    """The most uncertain rows, each with the cells that make it so.

    Columns differ in how predictable they are. So a cell counts by how far it is above its column's
    median, in units of the column's median absolute deviation.
    """
    per_cell = model.cell_uncertainty(table.take(test), "nll", splits=SPLITS)
    names = per_cell.column_names
    values = np.column_stack([per_cell[name].to_numpy() for name in names])
    middle = np.median(values, axis=0)
    excess = (values - middle) / (np.median(np.abs(values - middle), axis=0) + 1e-12)

    def cell(i: int, j: int) -> UncertainCell:
        value = table[names[j]][int(test[i])].as_py()
        text = f"{value:.3g}" if isinstance(value, float) else str(value)
        return UncertainCell(names[j], text, float(excess[i, j]))

    return [
        UncertainRow(
            int(test[i]), float(score[i]), [cell(i, j) for j in np.argsort(-excess[i])[:cells]]
        )
        for i in np.argsort(-score)[:rows]
    ]


def _mean(is_right: NDArray[np.bool_]) -> str:
    return f"{is_right.mean():.3f}"
