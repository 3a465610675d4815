"""The evaluation as tables and a page.

Numbers as text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import SupportsFloat

import numpy as np

from varjepa.evaluate.cells import Cell
from varjepa.evaluate.few_labels import COMPARED
from varjepa.evaluate.run import Evaluation
from varjepa.evaluate.scores import COMBINED, CONFIDENCE, DISAGREEMENT, DRAWS
from varjepa.evaluate.settings import REPRESENTATIONS
from varjepa.metrics.selective import COVERAGES
from varjepa.report.page import (
    Headline,
    LineChart,
    ReportPage,
    RiskCoverage,
    TrainingCurve,
)
from varjepa.report.tables import Table


def share(value: SupportsFloat) -> str:
    """An accuracy, or a difference of two."""
    return f"{float(value):.3f}".replace("-", "−")


def number(value: SupportsFloat) -> str:
    """A number of any size, about four figures.

    Examples:
        >>> [number(x) for x in (0.8125, 54.321, 12345.6, 0.00002, 0)]
        ['0.8125', '54.32', '12,346', '2.0e−05', '0']
    """
    value = float(value)
    size = abs(value)
    if size >= 1e9:
        text = f"{value:.3e}"
    elif size >= 1000:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.4g}" if size == 0 or size >= 0.0005 else f"{value:.1e}"
    return text.replace("-", "−")


def signed(text: str) -> str:
    """With a plus where there is no minus."""
    return text if text.startswith("−") else f"+{text}"


# --- An evaluation as tables for people.

TITLES = {
    "accuracy": "Accuracy",
    "f1_macro": "Macro F1",
    "f1_weighted": "Weighted F1",
    "rmse": "RMSE",
    "r2": "R²",
}
PAPERS = "posterior"
"""the paper's latent uncertainty"""

NOT_A_SCORE = ("random", "oracle")


def result_tables(e: Evaluation) -> list[Table]:
    """All tables, the most important first; empty ones are left out."""
    metrics = metrics_of(e)
    tables = [
        comparison(e, metrics[0]),
        differences(e),
        *(comparison(e, metric) for metric in metrics[1:]),
        *(selective(e, metric) for metric in metrics),
        by_predictor(e),
        low_labels(e),
        thresholds(e),
        cost(e),
    ]
    return [table for table in tables if table.rows]


def main_tables(e: Evaluation) -> list[Table]:
    """The few for a terminal."""
    metric = metrics_of(e)[0]
    tables = [comparison(e, metric), differences(e), selective(e, metric), low_labels(e), cost(e)]
    return [table for table in tables if table.rows]


def metrics_of(e: Evaluation) -> list[str]:
    """Names of the figures, the main one first."""
    return ["accuracy", "f1_macro", "f1_weighted"] if e.target.classes else ["rmse", "r2"]


def comparison(e: Evaluation, metric: str) -> Table:
    """One metric at full coverage: representations down, predictors across."""

    def cell_text(cell: Cell) -> str:
        return mean_and_spread(e, values_of(e, cell, metric, None, 1.0), cell)

    note = ""
    if metric == metrics_of(e)[0]:
        spread = (
            f" ± is the standard deviation over {e.settings.runs} trainings of a predictor; split "
            "and representation stay the same."
            if e.settings.runs > 1
            else ""
        )
        constant = "the most frequent class" if e.target.classes else "the mean"
        note = (
            f"On {len(e.split.test):,} test rows.{spread} Guessing {constant}: "
            f"{write(e, e.constant_guess)}."
        )
    return Table(TITLES[metric], _columns(e), _grid(e, e.cells, cell_text), note)


def differences(e: Evaluation) -> Table:
    """What a representation gains over raw features, with the test rows' sampling error."""
    cells = [c for c in e.cells if (c.representation, c.predictor) in e.differences]

    def cell_text(cell: Cell) -> str:
        gain, error = e.differences[cell.representation, cell.predictor]
        return f"{signed(write(e, gain))} ± {write(e, error)}"

    what = "accuracy" if e.target.classes else "RMSE (positive: smaller than with raw features)"
    note = (
        f"Gain in {what} with the same predictor. Here ± is the standard error of drawing these "
        "test rows, the same ones for both: gains within two of it may be chance."
    )
    return Table("Gain over raw features", _columns(e), _grid(e, cells, cell_text), note)


def selective(e: Evaluation, metric: str) -> Table:
    """One predictor, chosen on validation rows: every uncertainty at every coverage."""
    scores = list(dict.fromkeys(row.score for row in e.figures if is_of(e.shown, row)))
    areas = {area.score: area for area in e.areas}
    is_main = metric == metrics_of(e)[0]
    rows = []
    for score in scores:
        if score not in areas:
            continue
        cells = [write(e, np.mean(values_of(e, e.shown, metric, score, c))) for c in COVERAGES]
        if is_main:
            cells += [write(e, areas[score].aurc), write(e, areas[score].augrc)]
        rows.append([score, *cells])
    if is_main:
        rows += [
            [name, *[""] * len(COVERAGES), write(e, areas[name].aurc), write(e, areas[name].augrc)]
            for name in NOT_A_SCORE
            if rows
        ]
    columns = ["rows kept by", *(f"{c:.0%} kept" for c in COVERAGES)]
    risk = "error rate" if e.target.classes else "squared error"
    note = (
        f"{shown_title(e)}, chosen on validation rows. {score_words(scores)} AURC and AUGRC: areas "
        f"under the {risk} over all coverages, smaller is better."
    )
    return Table(
        f"Selective {TITLES[metric].replace('Macro', 'macro').replace('Weighted', 'weighted')}"
        .replace("Accuracy", "accuracy"),
        columns + (["AURC", "AUGRC"] if is_main else []),
        rows,
        note if is_main else "",
    )  # fmt: skip


def by_predictor(e: Evaluation) -> Table:
    """The paper's arrangement: every predictor on the embeddings, by the posterior's spread."""
    metric = metrics_of(e)[0]
    cells = [c for c in e.cells if c.representation == e.shown.representation]
    rows = []
    for cell in cells:
        own = {row.score for row in e.figures if is_of(cell, row)}
        for score in (PAPERS, CONFIDENCE, DISAGREEMENT):
            if score in own and PAPERS in own:
                values = [values_of(e, cell, metric, score, c) for c in COVERAGES]
                rows.append(
                    [cell.predictor, score, *(mean_and_spread(e, v, cell) for v in values)]
                )  # fmt: skip
    columns = ["predictor", "rows kept by", *(f"{c:.0%} kept" for c in COVERAGES)]
    note = (
        f"{TITLES[metric]} on {REPRESENTATIONS[e.shown.representation]}, as the paper's tables "
        "have it. Different predictors err on different rows: compare within a predictor."
    )
    return Table(f"Every predictor: {TITLES[metric]}", columns, rows, note)


def low_labels(e: Evaluation) -> Table:
    """Few labels, everything else as before."""
    found = {(p.representation, p.labels): p for p in e.low_labels}
    names = [n for n in COMPARED if any(r == n for r, _ in found)]
    sizes = sorted({size for _, size in found})
    rows = []
    for size in sizes:
        points = [found[name, size] for name in names]
        cells = [f"{write(e, p.mean)} ± {write(e, p.standard_error)}" for p in points]
        rows.append([f"{size:,}", *cells])
    metric = TITLES[metrics_of(e)[0]]
    model = "logistic" if e.target.classes else "ridge"
    note = (
        f"{metric} of a {model} regression on that many labelled rows, its penalty chosen on the "
        f"same rows; mean over {DRAWS} draws of the labelled rows ± its standard error. "
        "Representations use the other rows without their labels."
    )
    columns = ["labels", *(REPRESENTATIONS[name] for name in names)]
    return Table("Few labels", columns, rows, note)


def thresholds(e: Evaluation) -> Table:
    """What to do with a new row."""
    shares = [f"{c:.0%}" for c in COVERAGES if c < 1]
    rows = [
        [kind, *("any" if by[s] is None else number(by[s] or 0.0) for s in shares)]
        for kind, by in e.thresholds.items()
    ]
    note = (
        "Answer a new row if its uncertainty is at most this, and about that share of rows is "
        f"answered; from {len(e.split.validation):,} validation rows, without their labels."
    )
    return Table("Thresholds", ["uncertainty", *shares], rows, note)


def cost(e: Evaluation) -> Table:
    """Where the time went."""
    rows = [
        [
            {"TJEPA": REPRESENTATIONS["t_jepa"], "VarTJEPA": REPRESENTATIONS["var_t_jepa"]}[name],
            f"{record['seconds']:.0f} s",
            f"{record['best_epoch']} of {record['epochs']}",
            record["selected_by"],
            f"{record['active_units']:.0f} of {record['d']}",
        ]
        for name, record in e.records.items()
    ]
    for predictor in e.settings.predictors:
        seconds = sum(cell.seconds for cell in e.cells if cell.predictor == predictor)
        rows.append([predictor, f"{seconds:.0f} s", "", "", ""])
    columns = ["", "seconds", "epoch kept", "by", "dimensions that vary"]
    note = (
        "Fitting T-JEPA and Var-T-JEPA once, and all trainings of each predictor. Without labels "
        "T-JEPA's criterion is weak: its targets move while it learns."
        if "TJEPA" in e.records and not e.settings.labels_pick_checkpoint
        else ""
    )
    return Table("Cost", columns, rows, note)


def score_words(scores: Sequence[str]) -> str:
    """What the names in a selective table mean."""
    words = []
    if PAPERS in scores:
        words.append("Latent uncertainties know no labels.")
    if CONFIDENCE in scores:
        words.append("confidence: the classifier's own.")
    if COMBINED in scores:
        words.append("combined: both, weighed on validation rows.")
    if DISAGREEMENT in scores:
        words.append("disagreement: spread of the trainings.")
    return " ".join(words)


def shown_title(e: Evaluation) -> str:
    return f"{e.shown.predictor} on {REPRESENTATIONS[e.shown.representation]}"


def values_of(
    e: Evaluation, cell: Cell, metric: str, score: str | None, coverage: float
) -> list[float]:
    """A value for every run; at full coverage any score will do."""
    mine = [row for row in e.figures if is_of(cell, row) and row.coverage == coverage]
    score = mine[0].score if score is None else score
    return [row.values[metric] for row in mine if row.score == score]


def is_of(cell: Cell, row: object) -> bool:
    return (cell.representation, cell.predictor) == (
        getattr(row, "representation", None),
        getattr(row, "predictor", None),
    )


def mean_and_spread(e: Evaluation, values: Sequence[float], cell: Cell) -> str:
    """± only where trainings differ."""
    if len(values) < 2 or cell.is_deterministic:
        return write(e, np.mean(values))
    return f"{write(e, np.mean(values))} ± {write(e, np.std(values, ddof=1))}"


def write(e: Evaluation, value: SupportsFloat) -> str:
    """Shares with three decimals; errors of numbers are of any size."""
    return share(value) if e.target.classes else number(value)


def _columns(e: Evaluation) -> list[str]:
    return ["representation", *e.settings.predictors]


def _grid(e: Evaluation, cells: Sequence[Cell], text: Callable[[Cell], str]) -> list[list[str]]:
    by_place = {(cell.representation, cell.predictor): text(cell) for cell in cells}
    return [
        [REPRESENTATIONS[name], *(by_place.get((name, p), "") for p in e.settings.predictors)]
        for name in e.settings.representations
        if any(place[0] == name for place in by_place)
    ]


# --- An evaluation as a page.


def build_page(e: Evaluation) -> ReportPage:
    """The page of an evaluation."""
    across, risks = e.curves
    first = [e.shown_score] if e.shown_score else []
    order = list(dict.fromkeys([*first, *risks]))
    fitted_on = (
        "all rows, without labels (transductive, as in the paper)"
        if e.settings.transductive
        else "the training rows, their labels picking the checkpoint"
        if e.settings.labels_pick_checkpoint
        else "the training rows, without labels"
    )
    parts = (len(e.split.train), len(e.split.validation), len(e.split.test))
    counts = " / ".join(f"{n:,}" for n in parts)
    return ReportPage(
        title=f"varjepa evaluate: {e.name}",
        subtitle=f"Target “{e.target.name}”: {e.target.describe()}. {counts} rows to train, "
        f"validate and test on, {e.columns} columns. Representations fitted on {fitted_on}.",
        headlines=headlines(e),
        tables=result_tables(e),
        charts=[low_label_chart(e)] if e.low_labels else [],
        curve=training_curve(e),
        risk_coverage=RiskCoverage(across, {name: risks[name] for name in order}),
        footer={k: str(v) for k, v in e.environment.items()} | {"seed": str(e.settings.seed)},
    )


def low_label_chart(e: Evaluation) -> LineChart:
    """The table of few labels as lines."""
    series: dict[str, list[tuple[float, float]]] = {}
    for point in e.low_labels:  # by representation, sizes ascending
        name = REPRESENTATIONS[point.representation]
        series.setdefault(name, []).append((point.mean, point.standard_error))
    return LineChart(
        title="Few labels, drawn",
        x=sorted({point.labels for point in e.low_labels}),
        x_label="labelled rows",
        y_label=TITLES[metrics_of(e)[0]],
        series=series,
        note="The table of few labels; bars are standard errors over draws of the labelled rows.",
    )


def headlines(e: Evaluation) -> list[Headline]:
    """Four numbers; what they compare was chosen on validation rows."""
    metric = metrics_of(e)[0]
    title = TITLES[metric] if metric == "rmse" else TITLES[metric].lower()

    def full(cell: Cell) -> float:
        return float(np.mean(values_of(e, cell, metric, None, 1.0)))

    key = (e.shown.representation, e.shown.predictor)
    raw = [c for c in e.cells if (c.representation, c.predictor) == ("raw", e.shown.predictor)]
    beside = f"raw features {write(e, full(raw[0]))}" if raw and key[0] != "raw" else ""
    found = [Headline(f"{title}: {shown_title(e)}", write(e, full(e.shown)), beside)]
    if e.shown_score:
        half = np.mean(values_of(e, e.shown, metric, e.shown_score, COVERAGES[-1]))
        own = CONFIDENCE if e.target.classes else None
        note = f"by {e.shown_score}"
        if own:
            sure = np.mean(values_of(e, e.shown, metric, own, COVERAGES[-1]))
            note += f"; {write(e, sure)} by the classifier's confidence"
        found.append(Headline(f"{title} on the surest half", write(e, half), note))
    table = low_labels(e)
    if table.rows and len(table.columns) > 1:
        first = table.rows[0]
        others = ", ".join(
            f"{name} {str(text).split(' ±')[0]}"
            for name, text in zip(table.columns[1:-1], first[1:-1], strict=True)
        )
        found.append(
            Headline(
                f"{title} from {first[0]} labels: {table.columns[-1]}",
                str(first[-1]).split(" ±")[0],
                others,
            )
        )
    found.append(
        Headline("whole evaluation", f"{e.seconds:.0f} s", "parts kept from before not counted")
    )
    return found


def training_curve(e: Evaluation) -> TrainingCurve | None:
    """Var-T-JEPA's loss and its terms."""
    record = e.records.get("VarTJEPA")
    if record is None:
        return None
    history = record["history"]
    names = ["loss", "rec", "gen", "kl_sx", "kl_z", "kl_sy", record["selected_by"]]
    return TrainingCurve(
        [row["epoch"] for row in history],
        {name: [row.get(name) for row in history] for name in names},
    )
