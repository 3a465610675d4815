"""Tables of Section 4.2, sensitivity, trainings.

The downstream tables as Markdown, from ``downstream.json`` and ``representations.json``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from paper.datasets.catalogue import DATASETS
from paper.downstream import is_ranked
from paper.findings import (
    PAPER_COST,
    PAPER_DATASETS,
    Cells,
    accuracy_cells,
    ambiguity_score,
    best_of,
    downstream_findings,
    metric_mean,
    paper_accuracy,
    reached_cells,
)
from paper.protocol import SCORES
from paper.published import (
    PAPER_PREDICTORS,
    PAPER_REPRESENTATIONS,
    downstream_paper_value,
    sensitivity_paper_value,
    uncertainty_paper_value,
)
from paper.report.cells import (
    LEGEND,
    MISSING,
    TITLES,
    Cell,
    CellTable,
    Figure,
    Group,
    Line,
    Section,
    accuracy_cell,
    beside,
    finding_lines,
    header,
    line,
    named_findings,
    plus_minus,
    short,
    table_of_markdown,
)
from paper.report.figures import draw_label_curves, drawable
from paper.report.files import FoundFile
from paper.report.labels import WORDS, curve_table, gain_table
from paper.report.tries import TRIES_TITLE, tries_table
from paper.representations import LEARNED, REPRESENTATIONS, UNLEARNED
from paper.results import Row, group, summarise
from paper.settings import SENSITIVITY, SENSITIVITY_PREDICTORS, SETTINGS
from paper.simulation import SIMULATION_VARIANTS
from paper.simulation_findings import count_agreeing, findings
from paper.uncertainty import COMBINED, LATENT
from varjepa.files import write_text
from varjepa.metrics.selective import COVERAGES
from varjepa.report.charts import inline

METRICS = {
    "accuracy": "Accuracy",
    "f1_weighted": "F1, weighted (the paper's table calls it macro)",
    "f1_macro": "F1, macro (not in the paper)",
}

Groups = Mapping[tuple[Any, ...], list[Row]]


def write_downstream_report(folder: Path, rows: Sequence[Row], trainings: Sequence[Row]) -> None:
    """Write ``downstream.md``."""
    write_text(folder / "downstream.md", downstream_report(rows, trainings))


def downstream_report(rows: Sequence[Row], trainings: Sequence[Row]) -> str:
    """All tables; a cell of the paper that is not computed yet is shown as missing."""
    first = first_embeddings(rows)
    lines = ["# Downstream predictors (Section 4.2, Appendix B.1)", "", LEGEND]
    for setting in SETTINGS:
        mine = [row for row in first if row["setting"] == setting]
        if setting != "paper" and not mine:
            continue
        lines += ["", f"## Setting: {setting}", ""]
        lines += finding_lines(downstream_findings(rows, setting, trainings))
        for metric, title in METRICS.items():
            lines += ["", f"### {title}", "", *metric_table(mine, metric, setting)]
    lines += against_raw(first) + embedding_table(rows) + training_table(trainings)
    return "\n".join(lines) + "\n"


def first_embeddings(rows: Sequence[Row]) -> list[Row]:
    """Rows of the first pre-training seed, which the tables are about."""
    return [row for row in rows if row["embedding_seed"] == 0]


def wanted_names(rows: Sequence[Row], metric: str, setting: str) -> tuple[str, ...]:
    """Representations whose cells are shown as missing where they are not there.

    All that the paper has; in another setting those that have been begun.
    """
    if metric == "f1_macro":
        return ()
    if setting == "paper":
        return PAPER_REPRESENTATIONS
    begun = {row["representation"] for row in rows} & LEARNED.keys()
    return tuple(name for name in PAPER_REPRESENTATIONS if name in begun)


def metric_table(
    rows: Sequence[Row], metric: str, setting: str, names: Sequence[str] = REPRESENTATIONS
) -> list[str]:
    """A line per predictor, representation and coverage; a column per dataset."""
    cells = group(rows, "dataset", "representation", "predictor", "coverage")
    there = {key[1:] for key in cells}
    wanted = wanted_names(rows, metric, setting)
    lines = header(["", "representation", *(info.short for info in DATASETS.values())])
    for predictor in (p for p in TITLES if p not in REPRESENTATIONS):
        for name in names:
            for coverage in COVERAGES if is_ranked(name) else COVERAGES[:1]:
                of_paper = name in wanted and predictor in PAPER_PREDICTORS
                if of_paper or (name, predictor, coverage) in there:
                    left_out = "" if coverage == 1 else f" ({1 - coverage:.0%} left out)"
                    shown = _cells(cells, metric, name, predictor, coverage)
                    lines.append(line([TITLES[predictor], TITLES[name] + left_out, *shown]))
    return lines


def representation_table(rows: Sequence[Row]) -> list[str]:
    """Accuracy on all rows: every representation and setting that there is, by predictor."""
    full = [row for row in rows if row["coverage"] == 1]
    lines = header(["", "representation", "setting", *(info.short for info in DATASETS.values())])
    for predictor in (p for p in TITLES if p not in REPRESENTATIONS):
        for name in REPRESENTATIONS:
            for setting in SETTINGS:
                mine = [row for row in full if row["setting"] == setting]
                cells = group(mine, "dataset", "representation", "predictor", "coverage")
                wanted = name in wanted_names(mine, "accuracy", setting)
                has_setting = name in LEARNED or setting != "paper"  # of raw columns: the trees
                of_paper = wanted and predictor in PAPER_PREDICTORS
                if of_paper or any(key[1:3] == (name, predictor) for key in cells):
                    about = [TITLES[predictor], TITLES[name], setting if has_setting else ""]
                    lines.append(line([*about, *_cells(cells, "accuracy", name, predictor, 1.0)]))
    return lines


def _cells(cells: Groups, metric: str, name: str, predictor: str, coverage: float) -> list[str]:
    shown = []
    for dataset in DATASETS:
        here = cells.get((dataset, name, predictor, coverage))
        paper = downstream_paper_value(metric, dataset, name, predictor, coverage)
        shown.append(beside(summarise(here, metric) if here else None, paper))
    return shown


def against_raw(rows: Sequence[Row]) -> list[str]:
    """Where embeddings lose to raw columns with the same predictor, said plainly."""
    full = [row for row in rows if row["coverage"] == 1]
    means = {
        key: summarise(here, "accuracy").mean
        for key, here in group(full, "dataset", "predictor", "representation", "setting").items()
    }
    lines = []
    for dataset in DATASETS:
        for setting in SETTINGS:
            for name in ("var_t_jepa", "raw+var_t_jepa"):
                raw = {
                    predictor: mean
                    for which in ("paper", setting)  # raw columns have a setting where trees do
                    for (d, predictor, other, s), mean in means.items()
                    if (d, other, s) == (dataset, "raw", which)
                }
                gains = {
                    predictor: mean - raw[predictor]
                    for (d, predictor, representation, s), mean in means.items()
                    if (d, representation, s) == (dataset, name, setting) and predictor in raw
                }
                if gains:
                    lost = [f"{TITLES[p]} {gain:+.3f}" for p, gain in gains.items() if gain < 0]
                    cells = [dataset, setting, TITLES[name], f"{len(lost)} of {len(gains)}"]
                    lines.append(line([*cells, ", ".join(lost)]))
    if not lines:
        return []
    titles = ["dataset", "setting", "representation", "loses to raw", "by how much"]
    return ["", "## Against raw columns with the same predictor", "", *header(titles), *lines]


# --- The few numbers to take home: means over predictors by dataset, and the uncertainty's.

HALF = COVERAGES[-1]

COLUMNS = (("raw", 1.0), ("t_jepa", 1.0), ("var_t_jepa", 1.0), ("var_t_jepa", HALF))


def headline_tables(
    simulation: Sequence[Row], downstream: Sequence[Row], uncertainty: Sequence[Row]
) -> list[str]:
    """What there is, shortest form."""
    lines: list[str] = []
    if simulation:
        there = [v for v in SIMULATION_VARIANTS if any(r["variant"] == v for r in simulation)]
        agreeing, compared = count_agreeing(simulation, there)
        found = findings(simulation)
        lines += [
            f"Section 4.1: {agreeing} of {compared} numbers agree with the paper's, and "
            f"{sum(f.holds is True for f in found)} of {len(found)} findings hold."
        ]
    if downstream:
        lines += ["", *downstream_headline(downstream)]
    if uncertainty:
        lines += ["", *uncertainty_headline(uncertainty)]
    if not downstream or not uncertainty:
        missing = [
            name
            for name, rows in (("downstream", downstream), ("uncertainty", uncertainty))
            if not rows
        ]
        lines += ["", f"Section 4.2: no rows of `reproduce {'` and `reproduce '.join(missing)}`."]
    return lines


def downstream_headline(rows: Sequence[Row]) -> list[str]:
    """Accuracy by dataset, mean over the six predictors."""
    by_setting = {s: accuracy_cells(rows, s) for s in begun(rows)}
    lines = [
        "Section 4.2, accuracy, mean over the six predictors: *the paper's*, "
        + _ours(list(by_setting))
        + f". Last column: of 24 cells (6 predictors, {len(COVERAGES)} coverages) how many reach "
        "the paper's mean minus the larger of its standard deviation and two binomial standard "
        "errors.",
        "",
        *header(["", *(_column(name, coverage) for name, coverage in COLUMNS), "reach the paper"]),
    ]
    for dataset, info in DATASETS.items():
        shown = []
        for name, coverage in COLUMNS:
            paper = fmean(paper_accuracy(dataset, name, p, coverage)[0] for p in PAPER_PREDICTORS)
            ours = [
                _mean(cells, dataset, name, coverage)
                for setting, cells in by_setting.items()
                if setting == "paper" or _has_a_place(cells, name)
            ]
            shown.append(_several(paper, ours))
        counts = [reached_cells(cells, dataset) for cells in by_setting.values()]
        reached = [f"{count} of {there}" if there else MISSING for count, there in counts]
        lines.append(line([info.title, *shown, ", ".join(reached)]))
    return lines


def _has_a_place(cells: Cells, name: str) -> bool:
    """Whether a setting of ours is worth a place: T-JEPA's with a few cells is not, in this form.

    Var-T-JEPA's always is: there what is missing is to be seen.
    """
    if name == "var_t_jepa":
        return any(key[1] == name for key in cells)
    return name in LEARNED and any(_mean(cells, d, name, 1.0) is not None for d in DATASETS)


def uncertainty_headline(rows: Sequence[Row]) -> list[str]:
    """The latent score against the true ambiguity; AURC on one classifier's errors."""
    settings = begun(rows)
    first = [row for row in rows if row["embedding_seed"] == 0]
    groups = {
        s: group([r for r in first if r["setting"] == s], "dataset", "arrangement", "score")
        for s in settings
    }
    titles = [
        "",
        "Spearman",
        "AUROC (u ≥ q75)",
        "of the score",
        "AURC, combined score",
        "with ensemble",
        "best baseline",
    ]
    lines = [
        "Uncertainty of a row against its true ambiguity u: *the paper's*, "
        + _ours(settings)
        + (" with the latent score that agrees best with u on validation rows")
        * ("ours" in settings)
        + ". AURC: all scores on the errors of one classifier; not in the paper.",
        "",
        *header(titles),
    ]
    for dataset in PAPER_DATASETS:
        found = [ambiguity_score(groups[s], dataset, s) for s in settings]
        shown = []
        for metric in ("spearman", "auroc"):
            paper = uncertainty_paper_value(metric, dataset, LATENT)
            ours = [metric_mean(one[1], metric) if one else None for one in found]
            shown.append(_several(paper, ours))
        shown.append(" · ".join(one[0] if one else MISSING for one in found))
        best = [best_of(groups[s], dataset) for s in settings]
        for score in COMBINED:
            runs = [groups[s].get((dataset, "shared", score)) for s in settings]
            shown.append(" · ".join(_number(metric_mean(one, "aurc"), 4) for one in runs))
        shown.append(" · ".join(f"{short(b[1], 4)} ({b[0]})" if b else MISSING for b in best))
        lines.append(line([DATASETS[dataset].title, *shown]))
    return lines


def begun(rows: Sequence[Row]) -> list[str]:
    """Settings that have rows; the paper's always."""
    there = {row["setting"] for row in rows if row.get("representation", "") not in UNLEARNED}
    return [s for s in SETTINGS if s == "paper" or s in there]


def _ours(settings: Sequence[str]) -> str:
    words = {"paper": "ours in the paper's setting", "ours": "ours in our own"}
    return ", ".join(words[setting] for setting in settings)


def _column(name: str, coverage: float) -> str:
    return TITLES[name] if coverage == 1 else "its surest half of the rows"


def _mean(cells: Cells, dataset: str, name: str, coverage: float) -> float | None:
    """Over all six predictors; the mean of fewer could not stand beside the paper's."""
    keys = [(dataset, name, predictor, coverage) for predictor in PAPER_PREDICTORS]
    return fmean(cells[key].mean for key in keys) if all(key in cells for key in keys) else None


def _several(paper: float | None, ours: Sequence[float | None]) -> str:
    return " · ".join([f"*{short(paper)}*", *(_number(value, 3) for value in ours)])


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else short(value, digits)


# --- The two sensitivity tables as Markdown, from ``sensitivity.json``.

HEADINGS = {
    "weights": "Weights of the loss",
    "architecture": "Architecture and optimisation",
}


def write_sensitivity_report(folder: Path, rows: Sequence[Row]) -> None:
    """Write ``sensitivity.md``."""
    write_text(folder / "sensitivity.md", sensitivity_report(rows))


def sensitivity_report(rows: Sequence[Row]) -> str:
    """Both tables; what is not computed yet is shown as missing."""
    return "\n".join(["# Sensitivity on Adult (Appendix B.2)", *sensitivity_tables(rows)]) + "\n"


def sensitivity_tables(rows: Sequence[Row]) -> list[str]:
    """Both tables with the words above them."""
    cells = group(rows, "table", "column", "predictor", "coverage")
    lines = ["", f"Test accuracy. {LEGEND} {sensitivity_cost(rows)}".rstrip()]
    for table, columns in SENSITIVITY.items():
        lines += ["", f"## {HEADINGS[table]}", ""]
        lines += header(["", "left out", *columns])
        lines.append(line(["changed", "", *map(column_changes, columns.values())]))
        others = {row["predictor"] for row in rows} - set(SENSITIVITY_PREDICTORS)
        for predictor in (*SENSITIVITY_PREDICTORS, *sorted(others)):
            for coverage in COVERAGES:
                shown = []
                for column in columns:
                    here = cells.get((table, column, predictor, coverage))
                    paper = sensitivity_paper_value(table, column, predictor, coverage)
                    shown.append(beside(summarise(here, "accuracy") if here else None, paper))
                lines.append(line([TITLES[predictor], f"{1 - coverage:.0%}", *shown]))
    return lines


def column_changes(changes: Mapping[str, Any]) -> str:
    """What a column changes in Adult's setting."""
    return ", ".join(f"{k} {v}" for k, v in changes.items()) or "as in the paper"


def sensitivity_cost(rows: Sequence[Row]) -> str:
    """What the trainings took; empty where nothing says so."""
    seconds = {
        (row["table"], row["column"]): row["training_seconds"]
        for row in rows
        if isinstance(row.get("training_seconds"), int | float)
    }
    if not seconds:
        return ""
    return f"The {len(seconds)} trainings took {sum(seconds.values()) / 60:.1f} min together."


# --- What the trainings of representations cost, and how much their seeds matter, as Markdown.


def embedding_table(rows: Sequence[Row]) -> list[str]:
    """How much the ranking varies with the seed of the pre-training."""
    mine = [row for row in rows if row["representation"] == "var_t_jepa"]
    lines = []
    for (dataset, setting), here in sorted(group(mine, "dataset", "setting").items()):
        by_seed = group(here, "embedding_seed")
        if len(by_seed) < 2:
            continue
        shared = set.intersection(*({r["predictor"] for r in some} for some in by_seed.values()))
        found = {
            seed: _by_coverage([row for row in some if row["predictor"] in shared])
            for (seed,), some in sorted(by_seed.items())
        }
        for seed, means in found.items():
            lines.append(line([dataset, setting, str(seed), *map(short, means)]))
        spread = [_spread(values) for values in zip(*found.values(), strict=True)]
        lines.append(line([dataset, setting, f"all {len(found)}", *spread]))
    if not lines:
        return []
    coverages = [f"{c:.0%}" for c in COVERAGES]
    titles = ["dataset", "setting", "pre-training seed", *coverages, "100% → 50%"]
    return [
        "",
        "## Pre-training seeds",
        "",
        "Accuracy by coverage, mean over the predictors that all seeds have, and over their own "
        "seeds; the last line of each: mean ± standard deviation over pre-training seeds.",
        "",
        *header(titles),
        *lines,
    ]


def _by_coverage(rows: Sequence[Row]) -> list[float | None]:
    """Mean accuracy at each coverage, and what is gained from the first to the last."""
    groups = group(rows, "coverage")
    means = [
        fmean(row["accuracy"] for row in groups[c,]) if (c,) in groups else None for c in COVERAGES
    ]
    first, last = means[0], means[-1]
    return [*means, None if first is None or last is None else last - first]


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < max(2, len(values)):
        return "–"
    return plus_minus(fmean(known), stdev(known))


def training_table(trainings: Sequence[Row]) -> list[str]:
    """What each embedding cost, and what it looks like."""
    if not trainings:
        return []
    lines = [
        line(
            [
                row["dataset"],
                TITLES[row["model"]],
                row["setting"],
                str(row["seed"]),
                f"{row['seconds']:.0f}",
                f"{row['best_epoch']}/{row['epochs']}",
                *(f"{row[n]:.3g}" for n in ("scale", "effective_rank", "varying_share")),
            ]
        )
        for row in trainings
    ]
    first = [row for row in trainings if row["seed"] == 0]
    sums = "; ".join(
        f"{TITLES[model]}, setting {setting}, {len(rows)} "
        f"dataset{'s' if len(rows) > 1 else ''}: {_minutes(rows)}"
        for (model, setting), rows in sorted(group(first, "model", "setting").items(), reverse=True)
    )
    titles = ["dataset", "model", "setting", "seed", "seconds", "epoch kept", "scale", "rank"]
    return [
        "",
        "## Trainings",
        "",
        f"First seeds together: {sums}. All {len(trainings)} trainings: {_minutes(trainings)}. "
        f"(The paper's: {PAPER_COST}.) Scale: mean norm of a token; rank: effective rank of the "
        "embeddings; varying: share of their mean square that varies across rows (all of the first "
        "1,000 rows). A small share with a good rank is a large common part, not a collapse.",
        "",
        *header([*titles, "varying"]),
        *lines,
    ]


def _minutes(rows: Sequence[Row]) -> str:
    return f"{sum(row['seconds'] for row in rows) / 60:.1f} min"


# --- Where the rows of a folder come from: commit, versions and machine of each file.

ENVIRONMENT = ("commit", "varjepa", "python", "torch", "device", "processor", "cores")
PLACES = ("file", "rows", *ENVIRONMENT)


def origins(found: Mapping[str, FoundFile]) -> list[list[str]]:
    """A line per file and environment, the most rows first."""
    lines = []
    for name, file in found.items():
        counted: Counter[tuple[str, ...]] = Counter()
        for row in file.rows:
            environment = row.get("environment", {})
            counted[tuple(word(environment.get(part)) for part in ENVIRONMENT)] += 1
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        lines += [[name, f"{rows:,}", *parts] for parts, rows in ordered]
    return lines


def origin_table(found: Mapping[str, FoundFile]) -> list[str]:
    """The same as Markdown, with what a reader must know before believing the numbers."""
    remarks = [f"- {file.remark}" for file in found.values() if file.remark]
    if remarks:
        remarks = ["", "Not what this version would compute:", "", *remarks]
    return [*remarks, "", *header(PLACES), *(line(_plain(cells)) for cells in origins(found))]


def _plain(cells: list[str]) -> list[str]:
    """No bar of a name may shift its line."""
    return [cell.replace("|", "/") for cell in cells]


def word(value: object) -> str:
    """A dash where there is none."""
    return "–" if value is None else str(value)


# --- The downstream and sensitivity tables on the study page, the paper's numbers beside ours.

DOWNSTREAM_TITLE = "Downstream predictors (Section 4.2, Appendix B.1)"
SENSITIVITY_TITLE = "Sensitivity on Adult (Appendix B.2)"
LABELS_TITLE = "Few labels (not in the paper)"


def downstream_section(
    rows: Sequence[Row], trainings: Sequence[Row], remarks: Sequence[str]
) -> Section:
    """A table per setting and metric; then where embeddings lose, how seeds vary, what it cost."""
    first = first_embeddings(rows)
    known = [
        row
        for row in rows
        if row["dataset"] in DATASETS and {row["representation"], row["predictor"]} <= TITLES.keys()
    ]
    settings = dict.fromkeys([*SETTINGS, *(row["setting"] for row in first)])
    tables = []
    for setting in settings:
        mine = [row for row in first if row["setting"] == setting]
        if mine or (setting == "paper" and rows):
            tables += [_metric_table(mine, metric, setting) for metric in METRICS]
    trained = [r for r in trainings if r["dataset"] in DATASETS and r["model"] in TITLES]
    for lines in (
        against_raw(first_embeddings(known)),
        embedding_table(known),
        training_table(trained),
    ):
        tables += table_of_markdown(lines)
    return Section(
        "downstream",
        DOWNSTREAM_TITLE,
        "Six predictors on raw columns and on embeddings; with Var-T-JEPA also on the rows that "
        "it is surest of. ✓: at or above the paper's mean minus the larger of its standard "
        "deviation and two binomial standard errors of the rows kept.",
        remarks,
        named_findings(
            {setting: downstream_findings(known, setting, trained) for setting in settings}
        ),
        (),
        tables,
    )


def _metric_table(rows: Sequence[Row], metric: str, setting: str) -> CellTable:
    """A group of lines per predictor, a line per representation and coverage."""
    cells = group(rows, "dataset", "representation", "predictor", "coverage")
    datasets = dict.fromkeys([*DATASETS, *(row["dataset"] for row in rows)])
    predictors = [p for p in TITLES if p not in REPRESENTATIONS]
    representations = dict.fromkeys([*REPRESENTATIONS, *(r["representation"] for r in rows)])
    wanted = wanted_names(rows, metric, setting)
    there = {key[1:] for key in cells}
    groups = []
    for predictor in dict.fromkeys([*predictors, *(row["predictor"] for row in rows)]):
        lines = []
        for name in representations:
            covered = sorted({c for n, p, c in there if (n, p) == (name, predictor)}, reverse=True)
            if name in wanted and predictor in PAPER_PREDICTORS:
                covered = sorted({*covered, *_coverages(name)}, reverse=True)
            for coverage in covered:
                shown = [_cell(cells, metric, d, name, predictor, coverage) for d in datasets]
                lines.append(Line(TITLES.get(name, name) + _left_out(coverage), shown))
        if lines:
            groups.append(Group(TITLES.get(predictor, predictor), lines))
    columns = [DATASETS[d].short if d in DATASETS else d for d in datasets]
    title = f"{METRICS[metric]}; setting: {setting}"
    return CellTable(title, "representation", columns, groups, is_open=metric == "accuracy")


def _coverages(representation: str) -> tuple[float, ...]:
    return COVERAGES if is_ranked(representation) else COVERAGES[:1]


def _left_out(coverage: float) -> str:
    return "" if coverage == 1 else f", {1 - coverage:.0%} left out"


def _cell(
    cells: Groups, metric: str, dataset: str, name: str, predictor: str, coverage: float
) -> Cell:
    here = cells.get((dataset, name, predictor, coverage))
    paper = None
    if dataset in DATASETS:
        paper = downstream_paper_value(metric, dataset, name, predictor, coverage)
    return accuracy_cell(summarise(here, metric) if here else None, paper)


def sensitivity_section(rows: Sequence[Row], remarks: Sequence[str]) -> Section:
    """Both tables; columns that the paper does not have come last."""
    cells = group(rows, "table", "column", "predictor", "coverage")
    predictors = dict.fromkeys([*SENSITIVITY_PREDICTORS, *(row["predictor"] for row in rows)])
    tables = []
    for table in dict.fromkeys([*SENSITIVITY, *(row["table"] for row in rows)]):
        changes = SENSITIVITY.get(table, {})
        mine = [row["column"] for row in rows if row["table"] == table]
        columns = list(dict.fromkeys([*changes, *mine]))
        groups = [
            Group(
                TITLES.get(predictor, predictor),
                [
                    Line(
                        f"{1 - coverage:.0%} left out",
                        [_sensitivity_cell(cells, table, c, predictor, coverage) for c in columns],
                    )
                    for coverage in COVERAGES
                ],
            )
            for predictor in predictors
        ]
        under = [column_changes(changes.get(c, {})) for c in columns]
        title = HEADINGS.get(table, table)
        tables.append(CellTable(title, "rows", columns, groups, under=under))
    return Section(
        "sensitivity",
        SENSITIVITY_TITLE,
        "Test accuracy on Var-T-JEPA embeddings; each column is a training of its own. ✓ as above. "
        + sensitivity_cost(rows),
        remarks,
        tables=tables if rows else (),
    )


def _sensitivity_cell(
    cells: Groups, table: str, column: str, predictor: str, coverage: float
) -> Cell:
    here = cells.get((table, column, predictor, coverage))
    paper = None
    if column in SENSITIVITY.get(table, {}):
        paper = sensitivity_paper_value(table, column, predictor, coverage)
    return accuracy_cell(summarise(here, "accuracy") if here else None, paper)


def labels_section(rows: Sequence[Row], remarks: Sequence[str]) -> Section:
    """What embeddings add to raw columns where labels are few."""
    known = [
        row
        for row in rows
        if row["dataset"] in DATASETS and {row["representation"], row["predictor"]} <= TITLES.keys()
    ]
    tables = [*table_of_markdown(gain_table(known)), *table_of_markdown(curve_table(known))]
    shown = [replace(table, is_open=number == 0) for number, table in enumerate(tables)]
    return Section("labels", LABELS_TITLE, WORDS, remarks, tables=shown, figures=_curves(known))


def _curves(rows: Sequence[Row]) -> list[Figure]:
    if not any(map(drawable, rows)):
        return []
    svg = inline(
        lambda path: draw_label_curves(rows, path),
        key="labels",
        label="A panel per model and dataset: accuracy over the number of labels",
    )
    return [Figure("Accuracy by number of labels", svg, "Bands: one standard error.")]


def tries_section(rows: Sequence[Row], remarks: Sequence[str]) -> Section:
    """How the settings that are called ours did on validation rows."""
    known = [row for row in rows if row["dataset"] in DATASETS and row["uncertainty"] in SCORES]
    tables = table_of_markdown(tries_table(known), "Tries")
    return Section("tries", TRIES_TITLE, "", remarks, tables=tables)
