"""The bars that defaults must reach, and the page: what is measured, table by table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ground.jobs import METHODS, OURS, Row
from benchmarks.ground.tables import (
    HALVES,
    MIXED_ANOMALIES,
    NUMERIC_ANOMALIES,
    ROWS,
    Floats,
    names_of,
)
from varjepa.report.page import Headline, ReportPage, write_page
from varjepa.report.tables import SIGNS, Cell, Mark, Table, to_markdown

TREES = ("boosting", "miss_forest")
INTERVAL_SLACK = 0.03
SURE = 0.98
"""a table whose accuracy is above this leaves uncertainty nothing to find"""


class Results:
    """Figures by job, method and table, averaged over seeds."""

    def __init__(self, rows: Iterable[Row], cap: int = ROWS) -> None:
        by_seed = {
            (row["job"], row["method"], row["table"], row["seed"]): row
            for row in sorted(rows, key=lambda row: str(row["version"]))  # the newest version wins
            if row["rows"] == cap
        }
        # a seed decides masks and splits too: contender and peers count with the seeds of both
        mine: dict[tuple[str, str], set[int]] = {}
        theirs: dict[tuple[str, str], set[int]] = {}
        for job, method, table, seed in by_seed:
            (mine if method == OURS else theirs).setdefault((job, table), set()).add(seed)
        self.figures: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        for (job, method, table, seed), row in by_seed.items():
            own = mine.get((job, table), set())
            other = theirs.get((job, table), set())
            if seed in (own & other or own or other):
                figures = dict(row["figures"])
                if row["environment"].get("device") != "cpu":  # the bars are of two cores
                    figures.pop("fit_seconds", None)
                self.figures.setdefault((job, method, table), []).append(figures)

    def get(self, job: str, method: str, table: str, *path: str) -> float | None:
        """A figure's mean over seeds; None where no seed has it."""
        values = []
        for figures in self.figures.get((job, method, table), []):
            value: Any = figures
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                values.append(float(value))
        return float(np.mean(values)) if values else None

    def best(
        self, job: str, methods: Sequence[str], table: str, figure: str, pick: Any
    ) -> float | None:
        values = [self.get(job, method, table, figure) for method in methods]
        known = [value for value in values if value is not None]
        return float(pick(known)) if known else None

    def pairs(
        self, job: str, names: Iterable[str], figure: str, others: Sequence[str], pick: Any
    ) -> dict[str, tuple[float, float]]:
        """Ours and the best of others, by table, where both are known."""
        both = {
            name: (self.get(job, OURS, name, figure), self.best(job, others, name, figure, pick))
            for name in names
        }
        return {
            name: (ours, other)
            for name, (ours, other) in both.items()
            if ours is not None and other is not None
        }

    def ours(self, job: str, names: Iterable[str], *path: str) -> dict[str, float]:
        values = {name: self.get(job, OURS, name, *path) for name in names}
        return {name: value for name, value in values.items() if value is not None}


# --- bars

Verdict = tuple[str, bool | None, bool | None]
"""what was measured, in words; whether it reaches the bar; whether it reaches the goal"""
NOTHING: Verdict = ("", None, None)

Measure = Callable[[Results, Sequence[str]], Verdict]
"""of these tables"""


@dataclass(frozen=True, slots=True)
class Bar:
    job: str
    bar: str
    goal: str
    measure: Measure


def against(
    job: str,
    figure: str,
    others: Sequence[str],
    judge: Callable[[Floats, Floats], Verdict],
    pick: Any = max,
) -> Measure:
    """Ours beside the best of others, over the tables where both are known."""

    def measure(results: Results, names: Sequence[str]) -> Verdict:
        pairs = results.pairs(job, names, figure, others, pick)
        return judge(*np.array(list(pairs.values())).T) if pairs else NOTHING

    return measure


def alone(judge: Callable[[Floats], Verdict], job: str, *path: str) -> Measure:
    """Our own figure, over the tables where it is known."""

    def measure(results: Results, names: Sequence[str]) -> Verdict:
        values = results.ours(job, names, *path)
        return judge(np.array(list(values.values()))) if values else NOTHING

    return measure


def at_most(value: Any, count: int, bar: float, goal: float) -> Verdict:
    return f"{value:.3f} ({count})", value <= bar, value <= goal


def at_least(value: Any, count: int, bar: float, goal: float) -> Verdict:
    return f"{value:+.3f} ({count})", value >= bar, value >= goal


def none_of(bad: Sequence[str], count: int) -> Verdict:
    words = f"{len(bad)} of {count}" + (f": {', '.join(bad)}" if bad else "")
    return (words, not bad, None) if count else NOTHING


def geometric_mean(values: Floats) -> Any:
    return np.exp(np.log(values).mean())


def rmse_ratio(job: str, bar: float, goal: float) -> Measure:
    return against(
        job, "rmse", TREES, lambda a, b: at_most(geometric_mean(a / b), len(a), bar, goal), min
    )


def difference(job: str, figure: str, others: Sequence[str], bar: float, goal: float) -> Measure:
    """Mean over tables of ours minus the best of others; more is better."""
    return against(job, figure, others, lambda a, b: at_least((a - b).mean(), len(a), bar, goal))


def precision_ratio(job: str, figure: str, others: Sequence[str]) -> Measure:
    """Geometric mean over tables of ours over the best of others; more is better."""

    def judge(ours: Floats, other: Floats) -> Verdict:
        ratio = geometric_mean(np.maximum(ours, 1e-3) / np.maximum(other, 1e-3))
        return f"{ratio:.2f} × ({len(ours)})", ratio >= 1.0, ratio >= 1.3

    return against(job, figure, others, judge)


def better_than_raw(ours: Floats, raw: Floats) -> Verdict:
    share = np.mean((ours > raw) | ((raw >= SURE) & (ours >= raw - 0.002)))
    return f"{share:.0%} ({len(ours)})", bool(share >= 0.85), bool(share >= 0.95)


def below_samplers(ours: Floats, other: Floats) -> Verdict:
    share = np.mean(ours < other)
    return f"{share:.0%} ({len(ours)})", bool(share >= 0.8), None


def finds_similar(ours: Floats, other: Floats) -> Verdict:
    share, mean = np.mean(ours > other), np.mean(ours - other)
    return f"{share:.0%}, mean {mean:+.3f} ({len(ours)})", bool(share >= 0.75), None


def finds_errors(areas: Floats) -> Verdict:
    return f"{areas.mean():.3f} ({len(areas)})", bool(areas.mean() > 0.55), None


def worse_than_mean(results: Results, names: Sequence[str]) -> Verdict:
    bad, count = [], 0
    for job in ("impute_mcar", "impute_unseen"):
        for figure, pick, sign in (("rmse", min, 1), ("accuracy", max, -1)):
            pairs = results.pairs(job, names, figure, ("mean_mode",), pick)
            count += len(pairs)
            bad += [
                f"{name} {figure} {job.removeprefix('impute_')}"
                for name, (ours, other) in pairs.items()
                if sign * ours > sign * other * (1 + sign * 0.01)
            ]
    return none_of(bad, count)


def published_mar(results: Results, names: Sequence[str]) -> Verdict:
    ratios = {
        name: ours / results.ours("impute_mar", [name], "published")[name]
        for name, ours in results.ours("impute_mar", names, "rmse").items()
    }
    if not ratios:
        return NOTHING
    words = ", ".join(f"{name} {ratio:.2f} ×" for name, ratio in ratios.items())
    return words, max(ratios.values()) <= 1.05, max(ratios.values()) < 1


def interval_coverage(results: Results, names: Sequence[str]) -> Verdict:
    covered = results.ours("impute_mcar", names, "coverage")
    cells = results.ours("impute_mcar", names, "covered_cells")
    bad = [
        f"{name} {value:.2f}"
        for name, value in covered.items()
        if abs(value - 0.9) > max(INTERVAL_SLACK, 2 * np.sqrt(0.09 / cells[name]))
    ]
    return none_of(bad, len(covered))


def copies(results: Results, names: Sequence[str]) -> Verdict:
    sampled = results.ours("sample", names, "distance_sampled")
    unseen = results.ours("sample", names, "distance_unseen")
    # a table whose rows repeat has distances of 0, up to rounding
    bad = [name for name, value in sampled.items() if value < unseen[name] - 1e-6]
    return none_of(bad, len(sampled))


def uncertainty_rises(results: Results, names: Sequence[str]) -> Verdict:
    accuracy = results.ours("uncertainty", names, "accuracy")
    names = [name for name, value in accuracy.items() if value <= SURE]
    gains = list(results.ours("uncertainty", names, "scores", "default", "gain").values())
    if not gains:
        return NOTHING
    share, mean = float(np.mean(np.array(gains) > 0)), float(np.mean(gains))
    words = f"rises on {share:.0%}, mean {mean:+.3f} ({len(gains)})"
    return words, share >= 0.75 and mean >= 0.015, share >= 0.9 and mean >= 0.03


def combined_score(results: Results, names: Sequence[str]) -> Verdict:
    """AURC of confidence and latent scores against that of the confidence alone."""
    below, bad, count = 0, [], 0
    for classifier in ("boosting", "logistic"):
        own = results.ours("selective", names, classifier, "aurc")
        alone = results.ours("selective", names, classifier, "aurc_confidence")
        count += len(own)
        below += sum(own[name] <= alone[name] for name in own)
        bad += [
            f"{name} {classifier}"
            for name, value in own.items()
            if value > alone[name] + max(0.03 * alone[name], 0.003)
        ]
    if not count:
        return NOTHING
    words = f"{below / count:.0%} ({count}); {none_of(bad, count)[0]} too far above"
    return words, below >= 0.8 * count and not bad, None


def detects(job: str, sets: Sequence[str], peers: Sequence[str], goal: float) -> Measure:
    """Mean AUROC over sets, minus that of the peer with the highest mean."""

    def measure(results: Results, names: Sequence[str]) -> Verdict:
        there = [name for name in names if name in sets]
        gaps = []
        for peer in peers:
            pairs = results.pairs(job, there, "auroc", (peer,), max).values()
            gaps += [float(np.mean([a - b for a, b in pairs]))] if pairs else []
        count = len(results.ours(job, there, "auroc"))
        return at_least(min(gaps), count, 0.0, goal) if gaps else NOTHING

    return measure


def collapse(results: Results, names: Sequence[str]) -> Verdict:
    share = results.ours("collapse", names, "active_share")
    fallen = results.ours("collapse", names, "collapsed")
    bad = [name for name in share if fallen[name] > 0 or share[name] < 0.5]
    return none_of(bad, len(share))


def fit_seconds(fewest: int, most: int, widest: int, bar: float, goal: float) -> Measure:
    """The slowest fit of tables whose rows and columns are within these numbers."""

    def measure(results: Results, names: Sequence[str]) -> Verdict:
        rows = results.ours("time", names, "rows_fitted")
        columns = results.ours("time", names, "columns")
        there = [n for n in rows if fewest <= rows[n] / 0.75 <= most and columns[n] <= widest]
        seconds = results.ours("impute_mcar", there, "fit_seconds")
        slowest = max(seconds, key=lambda name: seconds[name], default=None)
        if slowest is None:
            return NOTHING
        value = seconds[slowest]
        return f"{value:.0f} s ({slowest})", value <= bar, value <= goal

    return measure


def hospital_f1(results: Results, names: Sequence[str]) -> Verdict:
    ours_by_table = results.ours("dirty", [n for n in names if n == "dirty/hospital"], "f1")
    peers = results.pairs("dirty", ours_by_table, "f1", DIRTY_PEERS, max)
    if not ours_by_table:
        return NOTHING
    value = ours_by_table["dirty/hospital"]
    reaches = all(ours >= other for ours, other in peers.values())
    return f"{value:.3f}", reaches, value >= 0.8


DIRTY_PEERS = ("outliertree", "mode", "boosting")

BARS = (
    Bar("20 % MCAR, in-sample: RMSE over the better of boosting and missForest",
        "≤ 1.00", "≤ .95", rmse_ratio("impute_mcar", 1.0, 0.95)),
    Bar("the same, rows that the fit did not see",
        "≤ 1.02", "≤ .97", rmse_ratio("impute_unseen", 1.02, 0.97)),
    Bar("categories right, in-sample, minus the better of the two",
        "≥ 0", "≥ +.01", difference("impute_mcar", "accuracy", TREES, 0, 0.01)),
    Bar("the same, rows that the fit did not see",
        "≥ 0", "≥ +.01", difference("impute_unseen", "accuracy", TREES, 0, 0.01)),
    Bar("worse than mean or mode by more than 1 %", "no table, no kind", "", worse_than_mean),
    Bar("30 % MAR: RMSE over DiffPuter's published", "≤ 1.05 ×", "below", published_mar),
    Bar("90 % intervals outside .90 ± max(.03, 2 standard errors)",
        "no table", "", interval_coverage),
    Bar("mean interval score over that of the column's quantiles",
        "≤ .9", "≤ .75", alone(lambda v: at_most(geometric_mean(v), len(v), 0.9, 0.75),
              "impute_mcar", "relative_score")),
    Bar("linear probe better than on raw columns", "85 % of tables", "95 %",
        against("embed", "score", ("raw",), better_than_raw)),
    Bar("50 labels, minus raw columns",
        "≥ 0", "≥ +.01", difference("embed", "labels_50", ("raw",), 0, 0.01)),
    Bar("200 labels, minus raw columns",
        "≥ 0", "≥ +.01", difference("embed", "labels_200", ("raw",), 0, 0.01)),
    Bar("sampled rows told from unseen ones, median AUROC", "≤ .85", "≤ .75",
        alone(lambda v: at_most(np.median(v), len(v), 0.85, 0.75), "sample", "auroc")),
    Bar("the same, below TVAE and CTGAN", "80 % of tables", "",
        against("sample", "auroc", ("tvae", "ctgan"), below_samplers, min)),
    Bar("trained on sampled rows minus on real ones", "≥ −.03", "≥ −.015",
        alone(lambda v: at_least(v.mean(), len(v), -0.03, -0.015),
              "train_on_sampled", "difference")),
    Bar("samples nearer to training rows than unseen rows are", "no table", "", copies),
    Bar("accuracy on the half that the default score keeps, minus all",
        "rises on 75 %, mean ≥ +.015", "90 %, +.03", uncertainty_rises),
    Bar("AUROC of errors by the default score", "> .55", "",
        alone(finds_errors, "uncertainty", "scores", "default", "auroc_errors")),
    Bar("AURC with latent scores at or below that of the classifier's confidence",
        "80 %, none by max(3 %, .003) above", "", combined_score),
    Bar("numeric anomaly sets, all rows: mean AUROC minus isolation forest's",
        "≥ 0", "≥ +.02", detects("anomaly", NUMERIC_ANOMALIES, ("isolation_forest",), 0.02)),
    Bar("the same, trained on normal rows, minus kNN's",
        "≥ 0", "≥ +.01", detects("anomaly_normal", NUMERIC_ANOMALIES, ("knn",), 0.01)),
    Bar("categorical anomaly sets: mean AUROC minus the best of isolation forest, kNN, ECOD",
        "≥ 0", "≥ +.02",
        detects("anomaly", MIXED_ANOMALIES, ("isolation_forest", "knn", "ecod"), 0.02)),
    Bar("3 % errors: cell average precision over boosting residuals", "≥ 1", "≥ 1.3 ×",
        precision_ratio("cells", "average_precision", ("boosting",))),
    Bar("the same of text columns, over their self-confidence", "≥ 1", "≥ 1.3 ×",
        precision_ratio("cells", "average_precision_text", ("cleanlab",))),
    Bar("dirty tables: cell average precision over the best peer", "≥ 1", "",
        precision_ratio("dirty", "average_precision", DIRTY_PEERS)),
    Bar("dirty tables: repairs right among found, minus mode and boosting", "≥ 0", "",
        difference("dirty", "repairs_right", ("mode", "boosting"), 0, 0)),
    Bar("Hospital: F1 at the default level", "≥ peers", "≥ .8", hospital_f1),
    Bar("precision@10 of similar rows, better than the best of Euclidean, Gower, PCA",
        "75 % of tables", "",
        against("similar", "precision", ("raw", "gower", "pca"), finds_similar)),
    Bar("collapsed, or fewer than half of the dimensions active", "no table", "", collapse),
    Bar("fit on two cores, under 1,000 rows", "≤ 20 s", "≤ 8 s", fit_seconds(0, 999, 10**6, 20, 8)),
    Bar("fit on two cores, 10,000 rows, at most 15 columns",
        "≤ 240 s", "≤ 90 s", fit_seconds(9000, 10_500, 15, 240, 90)),
)  # fmt: skip
"""what the defaults are to reach; a number in brackets counts tables"""


def bars_table(results: Results) -> Table:
    """The bars with what the contender reaches on either half and on all tables."""
    rows: list[list[str | Cell]] = []
    for bar in BARS:
        cells = [_cell(bar.measure(results, names_of(half))) for half in HALVES]
        rows.append([bar.job, bar.bar, bar.goal, *cells])
    note = "▲ reaches the goal, ● the bar, ▼ neither; ○ was not measured. In brackets: tables."
    return Table("Bars", ["job", "bar", "goal", *HALVES], rows, note, labels=3)


def write_bars(rows: Iterable[Row], path: Path) -> None:
    """Replace the bars in a Markdown file."""
    from paper.report import fill  # loads much

    bars = {"bars": markdown(bars_table(Results(rows)), level=0)}
    path.write_text(fill(path.read_text("utf-8"), bars, path.name), "utf-8")


def markdown(table: Table, level: int = 2) -> str:
    """A table as Markdown, its marks as signs."""
    rows = [
        [
            f"{SIGNS[cell.mark]} {cell.text}".strip() if isinstance(cell, Cell) else cell
            for cell in row
        ]
        for row in table.rows
    ]
    return to_markdown(replace(table, rows=rows), level=level)


def _cell(verdict: Verdict) -> Cell:
    words, reaches_bar, reaches_goal = verdict
    mark: Mark = "worse"
    if reaches_bar is None:
        mark = "missing"
    elif reaches_goal:
        mark = "better"
    elif reaches_bar:
        mark = "near"
    return Cell(words, mark=mark)


# --- table by table


@dataclass(frozen=True, slots=True)
class Detail:
    """One figure of a job for every table and method."""

    title: str
    job: str
    path: tuple[str, ...]
    larger_is_better: bool = True


DETAILS = (
    Detail("20 % MCAR, in-sample: normalised RMSE", "impute_mcar", ("rmse",), False),
    Detail("20 % MCAR, in-sample: categories right", "impute_mcar", ("accuracy",)),
    Detail("20 % MCAR, unseen rows: normalised RMSE", "impute_unseen", ("rmse",), False),
    Detail("20 % MCAR, unseen rows: categories right", "impute_unseen", ("accuracy",)),
    Detail("30 % MAR: RMSE", "impute_mar", ("rmse",), False),
    Detail("Linear probe: accuracy or R²", "embed", ("score",)),
    Detail("50 labels: accuracy", "embed", ("labels_50",)),
    Detail("200 labels: accuracy", "embed", ("labels_200",)),
    Detail("Sampled rows told from unseen ones: AUROC", "sample", ("auroc",), False),
    Detail("Trained on sampled rows: accuracy or R²", "train_on_sampled", ("score_sampled",)),
    Detail("Similar rows: precision@10 of same-class neighbours", "similar", ("precision",)),
    Detail("Anomalies, all rows: AUROC", "anomaly", ("auroc",)),
    Detail("Anomalies, trained on normal rows: AUROC", "anomaly_normal", ("auroc",)),
    Detail("3 % errors: cell average precision", "cells", ("average_precision",)),
    Detail("3 % errors, text: cell average precision", "cells", ("average_precision_text",)),
    Detail("Dirty tables: cell average precision", "dirty", ("average_precision",)),
    Detail("Dirty tables: F1 at the default level", "dirty", ("f1",)),
    Detail("Dirty tables: repairs right among found", "dirty", ("repairs_right",)),
)


def detail_table(results: Results, detail: Detail) -> Table:
    """Tables below each other, the one where ours is furthest behind the best peer first."""
    methods = [method for method, jobs in METHODS.items() if detail.job in jobs]
    sign = 1 if detail.larger_is_better else -1
    lines: list[tuple[float, list[str | Cell]]] = []
    for name in names_of("all"):
        values = [results.get(detail.job, method, name, *detail.path) for method in methods]
        if all(value is None for value in values):
            continue
        others = [sign * value for value in values[1:] if value is not None]
        lead = sign * values[0] - max(others) if values[0] is not None and others else np.inf
        mark: Mark = "better" if lead > 0 else "worse"
        half = "development" if name in names_of("development") else "reporting"
        first = Cell(_number(values[0]), mark=mark if np.isfinite(lead) else "plain")
        lines.append((lead, [name, half, first, *map(_number, values[1:])]))
    lines.sort(key=lambda line: line[0])
    columns = ["table", "half", *methods]
    return Table(detail.title, columns, [line for _, line in lines], labels=2, is_open=False)


def uncertainty_table(results: Results) -> Table:
    """Every score: mean gain of the kept half, where it rises, and the AUROC of errors."""
    names = [
        name
        for name, value in results.ours("uncertainty", names_of("all"), "accuracy").items()
        if value <= SURE
    ]
    kinds = dict.fromkeys(
        kind
        for name in names
        for figures in results.figures[("uncertainty", OURS, name)]
        for kind in figures["scores"]
    )
    rows = []
    for kind in kinds:
        gains = list(results.ours("uncertainty", names, "scores", kind, "gain").values())
        areas = results.ours("uncertainty", names, "scores", kind, "auroc_errors").values()
        rises = sum(gain > 0 for gain in gains)
        auroc = _number(float(np.mean(list(areas))) if areas else None)
        rows.append([kind, f"{np.mean(gains):+.3f}", f"{rises} of {len(gains)}", auroc])
    columns = ["score", "kept half minus all", "rises on", "AUROC of errors"]
    return Table("Uncertainty of an MLP on the embedding, by score", columns, rows)


def anomaly_table(results: Results) -> Table:
    """Mean AUROC over sets on which all methods with any figure have one."""
    rows = []
    for title, job, names in (
        ("numeric sets, all rows", "anomaly", NUMERIC_ANOMALIES),
        ("numeric sets, trained on normal rows", "anomaly_normal", NUMERIC_ANOMALIES),
        ("categorical sets, all rows", "anomaly", MIXED_ANOMALIES),
    ):
        methods = [method for method, jobs in METHODS.items() if job in jobs]
        scores = [[results.get(job, method, name, "auroc") for name in names] for method in methods]
        values = np.array(scores, dtype=np.float64)
        values = values[:, ~np.isnan(values[~np.isnan(values).all(1)]).any(0)]
        means = [
            _number(float(v.mean()) if len(v) and not np.isnan(v[0]) else None) for v in values
        ]
        rows.append([title, str(values.shape[1]), *means])
    methods = [method for method, jobs in METHODS.items() if "anomaly" in jobs]
    return Table("Anomalies: mean AUROC", ["", "sets", *methods], rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def write_ground_page(rows: Sequence[Row], path: Path) -> None:
    """Bars, then every job table by table, worst first; the bars as Markdown next to the page."""
    results = Results(rows)
    bars = bars_table(results)
    marks = bars.marks
    reached = marks["better"] + marks["near"]
    measured = reached + marks["worse"]
    ours = [row for row in rows if row["method"] == OURS]
    machine = ours[-1]["environment"] if ours else {}
    page = ReportPage(
        title="The proving ground",
        subtitle="VarTJEPA with its defaults, and peers, on tables that nobody tuned it for.",
        headlines=[Headline("bars reached", f"{reached} of {measured}", "halves and all together")],
        tables=[
            bars,
            uncertainty_table(results),
            anomaly_table(results),
            *(detail_table(results, detail) for detail in DETAILS),
        ],
        footer={str(name): str(value) for name, value in machine.items()},
    )
    write_page(page, path)
    path.with_suffix(".md").write_text(markdown(bars) + "\n", encoding="utf-8")
