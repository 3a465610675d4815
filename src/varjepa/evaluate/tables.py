"""An evaluation as tables and a page for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import SupportsFloat

import numpy as np

from varjepa.evaluate.run import REPRESENTATIONS, Evaluation
from varjepa.evaluate.scores import COMBINED, CONFIDENCE, DISAGREEMENT, REPEATS, Cell, Row
from varjepa.metrics.selective import COVERAGES
from varjepa.report.page import Headline, ReportPage, RiskCoverage
from varjepa.report.tables import Table

CLASS_METRICS = {"accuracy": "Accuracy", "f1_macro": "Macro F1", "f1_weighted": "Weighted F1"}
NUMBER_METRICS = {"rmse": "RMSE", "r2": "R²"}
TITLES = {**CLASS_METRICS, **NUMBER_METRICS}
WORDS = {
    "posterior": "Latent uncertainties know no labels.",
    CONFIDENCE: "confidence: the classifier's own.",
    COMBINED: "combined: both, weighed on validation rows.",
    DISAGREEMENT: "disagreement: spread over the training runs.",
}
"""what the names in a selective table mean"""


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


class EvaluationTables:
    """Every table of one evaluation."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.e = evaluation
        self.results = evaluation.results
        self.is_classes = bool(evaluation.target.classes)
        self.metrics = list(CLASS_METRICS if self.is_classes else NUMBER_METRICS)
        self.write = share if self.is_classes else number
        shown = evaluation.shown
        self.shown = f"{shown.predictor} on {REPRESENTATIONS[shown.representation]}"

    def build(self, is_brief: bool = False) -> list[Table]:
        """The most important first; brief: the few for a terminal. Empty ones are left out."""
        first, *others = self.metrics
        tables = [self.comparison(first), self.gains()]
        if not is_brief:
            tables += [self.comparison(metric) for metric in others]
        tables += [self.selective(m) for m in ([first] if is_brief else self.metrics)]
        tables += [self.low_labels(), *([] if is_brief else [self.thresholds()]), self.cost()]
        return [table for table in tables if table.rows]

    def comparison(self, metric: str) -> Table:
        """One metric at full coverage: representations down, predictors across."""
        runs = self.e.settings.runs
        cells = {}
        for cell in self.e.cells:
            values = self.values(cell, metric)
            text = self.write(np.mean(values))
            if runs > 1 and not cell.is_deterministic:
                text += f" ± {self.write(np.std(values, ddof=1))}"
            cells[cell.representation, cell.predictor] = text
        constant = "the most frequent class" if self.is_classes else "the mean"
        spread = (
            f"± is the standard deviation over {runs} training runs of a predictor; split and "
            "representation stay the same. "
        )
        note = (
            f"On {len(self.e.split.test):,} test rows. {spread if runs > 1 else ''}Guessing "
            f"{constant}: {self.write(self.results['constant_guess'])}."
        )
        return self._grid(TITLES[metric], cells, note if metric == self.metrics[0] else "")

    def gains(self) -> Table:
        """What a representation gains over raw features, with the test rows' sampling error."""
        cells = {}
        for row in self.results["gains_over_raw"]:
            gain, error = self.write(row["gain"]), self.write(row["standard_error"])
            sign = "" if gain.startswith("−") else "+"
            cells[row["representation"], row["predictor"]] = f"{sign}{gain} ± {error}"
        what = "accuracy" if self.is_classes else "RMSE (positive: smaller than with raw features)"
        note = (
            f"Gain in {what} with the same predictor. Here ± is the standard error of sampling "
            "these test rows, the same ones for both: gains within two of it may be chance."
        )
        return self._grid("Gain over raw features", cells, note)

    def _grid(self, title: str, cells: Mapping[tuple[str, str], str], note: str) -> Table:
        predictors = self.e.settings.predictors
        names = [n for n in self.e.settings.representations if any(n == r for r, _ in cells)]
        rows = [[REPRESENTATIONS[n], *(cells.get((n, p), "") for p in predictors)] for n in names]
        return Table(title, ["representation", *predictors], rows, note)

    def selective(self, metric: str) -> Table:
        """One predictor, chosen on validation rows: every uncertainty at every coverage."""
        is_main = metric == self.metrics[0]
        areas = {row["score"]: [row["aurc"], row["augrc"]] for row in self.results["areas"]}
        scores = [name for name in areas if name not in ("random", "oracle")]
        rows = []
        for score in areas if is_main and scores else scores:
            cells = [""] * len(COVERAGES)
            if score in scores:
                values = [self.values(self.e.shown, metric, score, c) for c in COVERAGES]
                cells = [self.write(np.mean(each)) for each in values]
            rows.append([score, *cells, *(map(self.write, areas[score]) if is_main else ())])
        columns = ["uncertainty", *(f"coverage {c:.0%}" for c in COVERAGES)]
        risk = "error rate" if self.is_classes else "squared error"
        words = " ".join(text for score, text in WORDS.items() if score in scores)
        note = (
            f"{self.shown}, chosen on validation rows. {words} AURC and AUGRC: areas under the "
            f"{risk} over all coverages, smaller is better."
        )
        title = TITLES[metric]
        title = title if title in ("RMSE", "R²") else title[0].lower() + title[1:]
        columns += ["AURC", "AUGRC"] if is_main else []
        return Table(f"Selective {title}", columns, rows, note if is_main else "")

    def low_labels(self) -> Table:
        points = {(p["representation"], p["labels"]): p for p in self.results["low_labels"]}
        names = list(dict.fromkeys(name for name, _ in points))
        rows = []
        for size in sorted({size for _, size in points}):
            mine = [points[name, size] for name in names]
            cells = [f"{self.write(p['mean'])} ± {self.write(p['standard_error'])}" for p in mine]
            rows.append([f"{size:,}", *cells])
        note = (
            f"{TITLES[self.metrics[0]]} of a {'logistic' if self.is_classes else 'ridge'} "
            "regression on that many labelled rows, its penalty chosen on the same rows; mean over "
            f"{REPEATS} random choices of the labelled rows ± its standard error. Representations "
            "use the other rows without their labels."
        )
        return Table("Few labels", ["labels", *(REPRESENTATIONS[n] for n in names)], rows, note)

    def thresholds(self) -> Table:
        """What to do with a new row."""
        shares = [f"{c:.0%}" for c in COVERAGES if c < 1]
        rows = [
            [kind, *("any" if by[s] is None else number(by[s]) for s in shares)]
            for kind, by in self.results["thresholds"].items()
        ]
        note = (
            "Answer a new row if its uncertainty is at most this, and about that share of rows is "
            f"answered; from {len(self.e.split.validation):,} validation rows, without their "
            "labels."
        )
        return Table("Thresholds", ["uncertainty", *shares], rows, note)

    def cost(self) -> Table:
        rows = [
            [
                name,
                f"{record['seconds']:.0f} s",
                f"{record['best_epoch']} of {record['epochs']}",
                record["selected_by"],
                f"{record['active_units']:.0f} of {record['d']}",
            ]
            for name, record in self.e.models.items()
        ]
        for predictor in self.e.settings.predictors:
            seconds = sum(cell.seconds for cell in self.e.cells if cell.predictor == predictor)
            rows.append([predictor, f"{seconds:.0f} s", "", "", ""])
        note = (
            "Each model is fitted once; all training runs of each predictor. Without labels "
            "TJEPA's criterion is weak: its targets move while it learns."
        )
        columns = ["", "seconds", "best epoch", "by", "dimensions that vary"]
        return Table("Cost", columns, rows, note if "TJEPA" in self.e.models else "")

    def values(
        self, cell: Cell, metric: str, score: str | None = None, coverage: float = 1.0
    ) -> list[float]:
        """A value for every run; at full coverage any score will do."""
        place: Row = {"representation": cell.representation, "predictor": cell.predictor}
        place["coverage"] = coverage
        mine = [row for row in self.results["figures"] if place.items() <= row.items()]
        score = mine[0]["score"] if score is None else score
        return [row[metric] for row in mine if row["score"] == score]

    def headlines(self) -> list[Headline]:
        """At most four numbers; what they compare was chosen on validation rows."""
        shown, metric, lowest = self.e.shown, self.metrics[0], COVERAGES[-1]
        title = TITLES[metric] if metric == "rmse" else TITLES[metric].lower()

        def mean(cell: Cell, score: str | None = None, coverage: float = 1.0) -> str:
            return self.write(np.mean(self.values(cell, metric, score, coverage)))

        place = ("raw", shown.predictor)
        raw = [c for c in self.e.cells if (c.representation, c.predictor) == place and c != shown]
        note = f"raw features {mean(raw[0])}" if raw else ""
        headlines = [Headline(f"{title}: {self.shown}", mean(shown), note)]
        chosen = self.results["chosen_on_validation"]["score"]
        if chosen:
            note = f"by {chosen}"
            if self.is_classes:
                note += f"; {mean(shown, CONFIDENCE, lowest)} by the classifier's confidence"
            label = f"{title} at coverage {lowest:.0%}"
            headlines.append(Headline(label, mean(shown, chosen, lowest), note))
        points = self.results["low_labels"]
        if points:
            *others, last = [
                (REPRESENTATIONS[p["representation"]], self.write(p["mean"]))
                for p in points
                if p["labels"] == points[0]["labels"]
            ]
            label = f"{title} from {points[0]['labels']} labels: {last[0]}"
            headlines.append(Headline(label, last[1], ", ".join(map(" ".join, others))))
        seconds = f"{self.results['seconds']:.0f} s"
        return [*headlines, Headline("whole evaluation", seconds, "cached parts not counted")]


# --- The page


def build_page(e: Evaluation) -> ReportPage:
    tables = EvaluationTables(e)
    coverages, risks = e.curves
    chosen = e.results["chosen_on_validation"]["score"]
    order = sorted(risks, key=lambda name: name != chosen)  # the chosen one first
    fitted_on = "the training rows, without labels"
    if e.settings.transductive:
        fitted_on = "all rows, without labels (transductive, as in the paper)"
    elif e.settings.labels_pick_checkpoint:
        fitted_on = "the training rows, their labels choosing the checkpoint"
    counts = " / ".join(f"{n:,}" for n in e.results["rows"].values())
    footer = {**e.results["environment"], "seed": e.settings.seed}
    return ReportPage(
        title=f"varjepa evaluate: {e.results['table']}",
        subtitle=f"Target “{e.target.name}”: {e.target.describe()}. {counts} rows to train, "
        f"validate and test on, {e.results['columns']} columns. Representations fitted on "
        f"{fitted_on}.",
        headlines=tables.headlines(),
        tables=tables.build(),
        model=e.models.get("VarTJEPA", {}).get("html", ""),
        risk_coverage=RiskCoverage(coverages, {name: risks[name] for name in order}),
        footer=footer,
    )
