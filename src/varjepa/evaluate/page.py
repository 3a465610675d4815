"""An evaluation as a page."""

from __future__ import annotations

import numpy as np

from varjepa.evaluate.cells import Cell
from varjepa.evaluate.found import Evaluation
from varjepa.evaluate.scores import CONFIDENCE
from varjepa.evaluate.settings import REPRESENTATIONS
from varjepa.evaluate.tables import (
    TITLES,
    low_labels,
    metrics_of,
    result_tables,
    shown_title,
    values_of,
    write,
)
from varjepa.evaluation.classification import COVERAGES
from varjepa.report.parts import Headline, LineChart, ReportPage, RiskCoverage, TrainingCurve


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
            f"{name} {text.split(' ±')[0]}"
            for name, text in zip(table.columns[1:-1], first[1:-1], strict=True)
        )
        found.append(
            Headline(
                f"{title} from {first[0]} labels: {table.columns[-1]}",
                first[-1].split(" ±")[0],
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
