"""``varjepa demo``: the whole tool on the embedded SIM table, start to finish, with a report.

    varjepa demo --out demo

SIM has a known ambiguity per row, so what the uncertainty is worth can be checked. Under 3 minutes
on two cores. The model is smaller than the default, for the demo's sake, and learns at a higher
rate; labels are used to judge the embedding, never to train it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import clone
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
from varjepa.report.tables import Table

HOLES = 0.05
"""Share of the test cells that are removed and filled again."""

SHOWN = "nll balanced"
"""The uncertainty that maps and rows show: which values the rest of their row does not explain,
numbers and categories in equal parts. SIM's ambiguity, noise on some numbers of a row and changed
categories, leaves the clearest trace in it."""

SHOWN_SPLITS = 8
"""of the columns, for the one that is shown"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How much to do."""

    rows: int = 10_000
    """rows of SIM"""
    epochs: int = 22
    """training epochs"""
    batch: int = 128
    """rows per step"""
    learning_rate: float = 5e-3
    """five times the default"""
    d: int = 32
    """latent width"""
    depth: int = 2
    """transformer layers"""
    seed: int = 0
    """of the model and of the split; the table itself is frozen"""


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def run_demo(folder: Path, settings: DemoSettings, say: Say) -> Path:
    """Fit, judge, fill holes, report; returns the report's path."""
    start = time.perf_counter()
    sim = draw_sim()
    table = sim.to_arrow().slice(0, settings.rows)
    label, ambiguity = sim.label[: settings.rows], sim.ambiguity[: settings.rows]
    order = np.random.default_rng(settings.seed).permutation(settings.rows)
    cut = int(0.8 * settings.rows)
    split = Split(order[:cut], order[cut:])
    say(f"SIM: {table.num_rows:,} rows, {table.num_columns} columns, {sim.label.max() + 1} classes")

    model = VarTJEPA(
        d=settings.d,
        depth=settings.depth,
        ff=2 * settings.d,
        predictor_depth=2,
        predictor_ff=2 * settings.d,
        targets=1,
        epochs=settings.epochs,
        batch_size=settings.batch,
        learning_rate=settings.learning_rate,
        verbose=1,
        random_state=settings.seed,
    ).fit(table.take(split.train))
    fitted = time.perf_counter() - start
    say(f"fitted without labels in {fitted:.0f} s")

    test = table.take(split.test)
    accuracies, correct = judge(model, table, label, split)
    unsure = model.uncertainties(test)
    unsure[SHOWN] = model.uncertainty(test, "nll", "balanced", splits=SHOWN_SPLITS)
    tables = [
        accuracies,
        selective_table(correct, unsure),
        ambiguity_table(ambiguity[split.test], unsure),
        imputation_table(model, test, table.take(split.train), settings.seed),
        samples_table(model, test, table.take(split.train), settings.seed),
    ]
    for result in tables:
        say("")
        say(as_text(result))

    seconds = time.perf_counter() - start
    page = ReportPage(
        title="varjepa demo: the SIM table",
        subtitle="A label-free embedding with an uncertainty for every row and every column.",
        headlines=headlines(tables, seconds),
        tables=tables,
        curve=training_curve(model),
        map=embedding_map(model, test, label[split.test], unsure[SHOWN]),
        risk_coverage=curves(correct, unsure),
        uncertain_rows=most_uncertain(model, table, split.test, unsure[SHOWN]),
        footer={k: str(v) for k, v in describe_environment().items()},
    )
    write_page(page, folder / "report.html")
    figures = {t.title: [dict(zip(t.columns, row, strict=True)) for row in t.rows] for t in tables}
    write_json(
        folder / "demo.json",
        {
            "settings": asdict(settings),
            "fit_seconds": round(fitted, 1),
            "seconds": round(time.perf_counter() - start, 1),
            "figures": figures,
            "environment": describe_environment(),
        },
    )
    return folder / "report.html"


def judge(
    model: VarTJEPA, table: pa.Table, label: NDArray[np.int64], split: Split
) -> tuple[Table, NDArray[np.bool_]]:
    """Accuracy of a classifier on raw features and on embeddings, and where the latter is right."""
    raw = table.to_pydict()
    features = np.column_stack([np.asarray(raw[name], dtype=object) for name in table.column_names])
    numeric = [i for i, f in enumerate(table.schema) if pa.types.is_floating(f.type)]
    others = [i for i in range(table.num_columns) if i not in numeric]
    encode = make_column_transformer((StandardScaler(), numeric), (OneHotEncoder(), others))
    embedded = model.transform(table)
    perceptron = MLPClassifier((128, 128), early_stopping=True, random_state=0)
    on_raw = make_pipeline(encode, clone(perceptron)).fit(features[split.train], label[split.train])
    on_embedding = make_pipeline(StandardScaler(), perceptron)
    on_embedding.fit(embedded[split.train], label[split.train])
    correct = on_embedding.predict(embedded[split.test]) == label[split.test]
    plain = np.mean(on_raw.predict(features[split.test]) == label[split.test])
    rows = [["perceptron 128-128", f"{plain:.3f}", f"{correct.mean():.3f}"]]
    columns = ["classifier", "raw features", "embedding"]
    note = f"Accuracy on {len(split.test):,} rows that neither the model nor the classifier saw."
    return Table("Accuracy", columns, rows, note), correct


def selective_table(correct: NDArray[np.bool_], unsure: Mapping[str, NDArray[np.float32]]) -> Table:
    """Accuracy of the perceptron on the rows each uncertainty would keep."""
    rows = [
        [kind, *(f"{accuracy_at(correct, score, coverage):.3f}" for coverage in COVERAGES)]
        for kind, score in unsure.items()
    ]
    columns = ["uncertainty", *(f"{coverage:.0%} kept" for coverage in COVERAGES)]
    note = "Accuracy on embeddings when the most uncertain rows are left out."
    return Table("Selective accuracy", columns, rows, note)


def ambiguity_table(
    ambiguity: NDArray[np.float64], unsure: Mapping[str, NDArray[np.float32]]
) -> Table:
    """Whether the uncertainty finds the rows that were made ambiguous."""
    rows = [
        [kind, f"{spearman(score, ambiguity):.3f}", f"{auroc_of_ambiguous(score, ambiguity):.3f}"]
        for kind, score in unsure.items()
    ]
    columns = ["uncertainty", "Spearman", "AUROC of the most ambiguous quarter"]
    note = "SIM knows how ambiguous each row was made; the model was never told."
    return Table("Uncertainty against the true ambiguity", columns, rows, note)


def imputation_table(model: VarTJEPA, test: pa.Table, train: pa.Table, seed: int) -> Table:
    """Remove 5 % of the cells, fill them, and compare with the column's mean or mode."""
    holed, removed = remove_cells(test, HOLES, seed)
    errors = imputation_errors(test, model.impute(holed), removed, train)
    rows = [
        ["numbers: RMSE in standard deviations", f"{errors.mean_rmse:.3f}", f"{errors.rmse:.3f}"],
        ["categories: share right", f"{errors.mode_accuracy:.3f}", f"{errors.accuracy:.3f}"],
    ]
    note = f"{HOLES:.0%} of the test cells were removed and filled from the rest of their row."
    return Table("Filling holes", ["", "mean or mode", "varjepa"], rows, note)


def samples_table(model: VarTJEPA, test: pa.Table, train: pa.Table, seed: int) -> Table:
    """Drawn rows against real ones, between the best and the worst one could expect."""
    few = train.slice(0, test.num_rows)
    others = {
        "drawn rows": model.sample(test.num_rows, random_state=seed),
        "other real rows": few,
        "real columns, each shuffled": shuffle_columns(few, seed),
    }
    rows = []
    for name, other in others.items():
        found = fidelity(test, other, seed)
        rows.append([name, f"{found.marginal:.3f}", f"{found.pairwise:.3f}", f"{found.auroc:.3f}"])
    columns = ["against the test rows", "columns", "pairs of columns", "AUROC of a classifier"]
    note = "Mean distances (0: the same); a classifier that cannot tell drawn from real has .5."
    return Table("Drawing rows", columns, rows, note)


def headlines(tables: Sequence[Table], seconds: float) -> list[Headline]:
    """The four numbers at the top of the page."""
    accuracies, selective, ambiguous, *_ = tables
    best = accuracies.rows[-1]
    selected, found = (
        next(row for row in t.rows if row[0] == SHOWN) for t in (selective, ambiguous)
    )
    return [
        Headline("accuracy on embeddings", str(best[2]), f"raw {best[1]}"),
        Headline("accuracy at 50 % coverage", str(selected[4]), f"by {SHOWN}"),
        Headline("Spearman with ambiguity", str(found[1]), f"by {SHOWN}"),
        Headline("whole demo", f"{seconds:.0f} s", "fit, judge, fill, draw, report"),
    ]


def training_curve(model: VarTJEPA) -> TrainingCurve:
    """Loss terms per epoch, and the label-free score where it was looked at."""
    names = ["loss", "rec", "gen", "kl_sx", "kl_z", "kl_sy", model.selected_by_]
    return TrainingCurve(
        epochs=[record["epoch"] for record in model.history_],
        series={name: [record.get(name) for record in model.history_] for name in names},
    )


def embedding_map(
    model: VarTJEPA, table: pa.Table, label: NDArray[np.int64], unsure: NDArray[np.float32]
) -> EmbeddingMap:
    """t-SNE of the flattened posterior means."""
    embedded = StandardScaler().fit_transform(model.transform(table))
    flat = TSNE(random_state=0, init="pca", perplexity=30).fit_transform(embedded)
    classes = [f"class {c}" for c in label]
    return EmbeddingMap(
        flat[:, 0].astype(float), flat[:, 1].astype(float), classes, unsure.astype(float)
    )


def curves(correct: NDArray[np.bool_], unsure: Mapping[str, NDArray[np.float32]]) -> RiskCoverage:
    """Risk–coverage curves of every uncertainty between random and oracle."""
    errors = ~correct
    scores: dict[str, Any] = {SHOWN: unsure[SHOWN]}  # first: the curve to look at
    scores |= {**unsure, "random": np.zeros(len(errors)), "oracle": errors}
    drawn = {name: risk_coverage(errors, score) for name, score in scores.items()}
    coverage = next(iter(drawn.values())).coverage
    return RiskCoverage(coverage, {name: curve.risk for name, curve in drawn.items()})


def most_uncertain(
    model: VarTJEPA,
    table: pa.Table,
    test: NDArray[np.int64],
    unsure: NDArray[np.float32],
    rows: int = 8,
    cells: int = 6,
) -> list[UncertainRow]:
    """The rows the model is least sure of, with the columns that make them so.

    Columns differ in how well they can be known at all, so a cell is judged by how far it is above
    its column's median, in units of the column's usual deviation from it.
    """
    columns = model.uncertainty(table.take(test), "nll", per_column=True, splits=SHOWN_SPLITS)
    middle = np.median(columns, axis=0)
    excess = (columns - middle) / (np.median(np.abs(columns - middle), axis=0) + 1e-12)
    names = [feature.name for feature in model.codec_.features]
    found = []
    for i in np.argsort(-unsure)[:rows]:
        shown = np.argsort(-excess[i])[:cells]
        told = [
            UncertainCell(
                names[j], _value(table[names[j]][int(test[i])].as_py()), float(excess[i, j])
            )
            for j in shown
        ]
        found.append(UncertainRow(int(test[i]), float(unsure[i]), told))
    return found


def as_text(table: Table) -> str:
    """A result table for the terminal."""
    widths = [
        max(len(str(c)) for c in column) for column in zip(table.columns, *table.rows, strict=True)
    ]
    lines = [table.title] + [
        "  " + "  ".join(str(cell).ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in (table.columns, *table.rows)
    ]
    return "\n".join(lines)


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
