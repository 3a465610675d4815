"""Every table, finding and figure of a results folder: as one HTML page, or in Markdown files.

    python -m paper report DIR [--markdown FILE …]

A Markdown file has its own words, and blocks whose content is replaced:

    <!-- generated: headline -->
    whatever stands here is replaced
    <!-- end -->

Both show the same ``Block`` objects, which the studies build from their rows.
"""

from __future__ import annotations

import importlib.util
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from paper.compare import MISSING, TITLES, Block, Finding, group, short
from paper.datasets.catalogue import DATASETS
from paper.downstream import KEY as DOWNSTREAM_KEY
from paper.downstream import (
    Cells,
    accuracy_cells,
    begun,
    downstream_blocks,
    downstream_findings,
    first_embeddings,
    open_downstream,
    paper_accuracy,
    reached_cells,
)
from paper.labels import KEY as LABELS_KEY
from paper.labels import labels_blocks, open_labels
from paper.protocol import ANSWER_SCORES, SCORES
from paper.published import PAPER_PREDICTORS, sensitivity_paper_value, uncertainty_paper_value
from paper.representations import TRAININGS_KEY, open_trainings
from paper.sensitivity import KEY as SENSITIVITY_KEY
from paper.sensitivity import open_sensitivity, sensitivity_blocks
from paper.settings import SENSITIVITY, SETTINGS
from paper.simulation import (
    SIMULATION_VARIANTS,
    count_agreeing,
    open_simulation,
    simulation_blocks,
    simulation_findings,
)
from paper.store import ResultStore, Row, read_rows, write_rows
from paper.uncertainty import ABOUT as UNCERTAINTY_ROWS_KEY
from paper.uncertainty import KEY as UNCERTAINTY_KEY
from paper.uncertainty import (
    LATENT,
    PAPER_DATASETS,
    ambiguity_score,
    metric_mean,
    open_uncertainty,
    uncertainty_blocks,
    uncertainty_findings,
)
from varjepa.environment import describe_environment
from varjepa.errors import InputError
from varjepa.files import study_folder, write_text
from varjepa.metrics.selective import COVERAGES
from varjepa.report.charts import check_can_draw, inline
from varjepa.report.page import ReportPage, render_template, trusted, write_report
from varjepa.report.tables import SIGNS, Table, to_markdown

# --- the result files of a folder
#
# A study itself refuses rows of other settings before it adds to them. A report only reads: it
# takes every row that has the columns that it shows, and warns where settings are not the full
# study's.


@dataclass(frozen=True, slots=True)
class ResultFile:
    """What is known of a file before it is read."""

    study: str
    key: tuple[str, ...]
    numbers: tuple[str, ...]
    """columns that must hold finite numbers, lists of them, or nothing"""
    open_strictly: Callable[[Path], object]
    """refuses other settings than the full study's"""


_METRICS = ("accuracy", "kl_aggregate", "sigreg", "cov_deviation", "mean_norm")
_SCORES = ("spearman", "auroc", "aurc", "aurc_trapezoid", "aurc_collapsed", "augrc", "error_rate")
_ACCURACIES = ("coverage", "accuracy", "f1_macro", "f1_weighted", "test_rows")
_TRAINING = ("seconds", "epochs", "best_epoch", "scale", "effective_rank", "varying_share")

FILES: Mapping[str, ResultFile] = {
    "simulation.json": ResultFile(
        "simulation", ("variant", "latent", "run"), _METRICS, open_simulation
    ),
    "epoch_diagnostics.json": ResultFile(
        "simulation", ("variant", "run"), ("coupling", "sigreg_s_x", "sigreg_s_y"), open_simulation
    ),
    "downstream.json": ResultFile("downstream", DOWNSTREAM_KEY, _ACCURACIES, open_downstream),
    "representations.json": ResultFile("downstream", TRAININGS_KEY, _TRAINING, open_trainings),
    "uncertainty.json": ResultFile("uncertainty", UNCERTAINTY_KEY, _SCORES, open_uncertainty),
    "uncertainty_rows.json": ResultFile(
        "uncertainty", UNCERTAINTY_ROWS_KEY, ("uncertainty", "wrong", "ambiguity"), open_uncertainty
    ),
    "sensitivity.json": ResultFile("sensitivity", SENSITIVITY_KEY, _ACCURACIES, open_sensitivity),
    "low_labels.json": ResultFile("labels", LABELS_KEY, ("accuracy",), open_labels),
}

KNOWN: Mapping[str, Sequence[object]] = {
    "dataset": tuple(DATASETS),
    "representation": tuple(TITLES),
    "predictor": tuple(TITLES),
    "model": tuple(TITLES),
    "setting": SETTINGS,
    "variant": tuple(SIMULATION_VARIANTS),
    "table": tuple(SENSITIVITY),
    "uncertainty": (*SCORES, *ANSWER_SCORES, None),
}
"""Names that have a place in a report; rows with others are left out."""


@dataclass(frozen=True, slots=True)
class Results:
    """What a folder holds."""

    rows: Mapping[str, Sequence[Row]]
    """by file"""
    warnings: Mapping[str, str]
    """by file, a sentence where the settings are not the full study's"""

    def of(self, name: str) -> Sequence[Row]:
        """The rows of a file whose names are known."""
        return [
            row
            for row in self.rows.get(name, ())
            if all(
                row[column] in names
                for column, names in KNOWN.items()
                if isinstance(row.get(column, []), str | None)
            )
        ]


def merge_results(folder: Path, sources: Sequence[Path]) -> int:
    """Take every row of other folders whose key is not in this one; how many were taken.

    Rows of other settings than the full study's are refused before anything is written. Models
    and embeddings stay where they are: finished cells do not need them.
    """
    taken, others = 0, [read_results(source) for source in sources]
    for source, results in zip(sources, others, strict=True):
        for name in results.rows:
            FILES[name].open_strictly(source)
    with study_folder(folder):
        for name, file in FILES.items():
            path = folder / name
            if path.exists():
                file.open_strictly(folder)
            rows = read_rows(path) if path.exists() else []
            by_key = {tuple(row[k] for k in file.key): row for row in rows}
            for results in others:
                for row in results.rows.get(name, ()):
                    by_key.setdefault(tuple(row[k] for k in file.key), row)
            if len(by_key) > len(rows):
                write_rows(path, [by_key[key] for key in sorted(by_key)])
            taken += len(by_key) - len(rows)
    return taken


def read_results(folder: Path) -> Results:
    """Every result file of a folder; one sentence where there is none to show."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise InputError(f"the folder {folder} {what}")
    rows = {
        name: read_checked(folder / name, file)
        for name, file in FILES.items()
        if (folder / name).exists()
    }
    rows = {name: some for name, some in rows.items() if some}
    if not rows:
        raise InputError(f"{folder} holds no results to report: none of {', '.join(FILES)}")
    warnings = {name: _warning(folder / name, FILES[name]) for name in rows}
    return Results(rows, {name: text for name, text in warnings.items() if text})


def read_checked(path: Path, file: ResultFile) -> list[Row]:
    """Rows that can be shown: with their key, and with numbers where numbers are read."""
    rows = ResultStore(path, file.key, lambda row: row.get("settings")).rows
    if len({tuple(row[name] for name in file.key) for row in rows}) < len(rows):
        raise InputError(f"{path} has two rows of one {', '.join(file.key)}")
    for i, row in enumerate(rows):
        for column in file.numbers:
            if not _is_numeric(row.get(column, "")):
                raise InputError(f"{path}: row {i}.{column} must be a finite number or null")
        if not isinstance(row.get("environment", {}), dict):
            raise InputError(f"{path}: row {i}.environment must be a JSON object")
    return rows


def _is_numeric(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_numeric, value))
    try:
        return value is None or (not isinstance(value, str | dict) and math.isfinite(value))
    except (OverflowError, TypeError):
        return False


def _warning(path: Path, file: ResultFile) -> str:
    """What the study itself would object to, for instance rows of a run with --quick."""
    try:
        file.open_strictly(path.parent)
    except InputError as error:
        text = str(error)
        if str(path) in text:
            return text.replace(str(path), path.name).removesuffix("; choose another folder")
        if any(str(path.parent / other) in text for other in FILES):
            return ""  # about another file of the study
        return f"{path.name} names what this version of varjepa does not know: {text}"
    return ""


# --- all blocks


def build_blocks(results: Results) -> list[Block]:
    """The headline, the goals, every study, and where the rows come from."""
    of = results.of
    return [
        map_block(results),
        headline_block(of("simulation.json"), of("downstream.json"), of("uncertainty.json")),
        goals_block(of("downstream.json"), of("representations.json"), of("uncertainty.json")),
        *simulation_blocks(of("simulation.json"), of("epoch_diagnostics.json")),
        *downstream_blocks(of("downstream.json"), of("representations.json")),
        *uncertainty_blocks(of("uncertainty.json"), of("uncertainty_rows.json")),
        *sensitivity_blocks(of("sensitivity.json")),
        *labels_blocks(of("low_labels.json")),
        origins_block(results),
    ]


def map_block(results: Results) -> Block:
    """Table or figure → command → cost → the paper's number and ours."""
    simulation, downstream = results.of("simulation.json"), results.of("downstream.json")
    sensitivity, labels = results.of("sensitivity.json"), results.of("low_labels.json")
    uncertainty = first_embeddings(results.of("uncertainty.json"))
    lines: list[tuple[str, str, str, str, str]] = []
    if simulation:
        agreeing, compared = count_agreeing(simulation, sorted({r["variant"] for r in simulation}))
        cost = _time(row for row in simulation if row["latent"] == "s_x")
        lines.append(("Table 1", "simulation", cost, f"{compared} numbers", f"{agreeing} agree"))
    if downstream:
        cost = _time(results.of("representations.json"))
        cost += " of trainings, " + _time(row for row in downstream if row["coverage"] == 1)
        wanted = [(d, "var_t_jepa", p, 1.0) for d in DATASETS for p in PAPER_PREDICTORS]
        by_setting = {s: accuracy_cells(downstream, s) for s in begun(downstream)}
        means = [
            _number(fmean(cells[key].mean for key in wanted) if cells.keys() >= {*wanted} else None)
            for cells in by_setting.values()
        ]
        paper = short(fmean(paper_accuracy(*key)[0] for key in wanted))
        title = "Accuracy and F1 (Section 4.2, B.1); mean of Var-T-JEPA's 42 cells on all rows"
        lines.append((title, "downstream", f"{cost} of predictors", paper, " · ".join(means)))
    for dataset in PAPER_DATASETS if uncertainty else ():
        scores = []
        for setting in begun(uncertainty):
            mine = [row for row in uncertainty if row["setting"] == setting]
            groups = group(mine, "dataset", "arrangement", "score")
            one = ambiguity_score(groups, dataset, setting)
            scores.append(_number(metric_mean(one[1], "spearman") if one else None))
        title = f"Uncertainty (B.3, Figures 3 and 5), {dataset}; Spearman with u"
        paper = short(uncertainty_paper_value("spearman", dataset, LATENT))
        fits = [r for r in results.of("representations.json") if r["dataset"] == dataset]
        cost = _time(r for r in fits if r["model"] == "var_t_jepa") + " of trainings"
        lines.append((title, "uncertainty", cost, paper, " · ".join(scores)))
    if sensitivity:
        full = [row for row in sensitivity if row["coverage"] == 1]
        trainings = {(row["table"], row["column"]): row for row in full}.values()
        cells = group(full, "table", "column", "predictor")
        ours = fmean(fmean(row["accuracy"] for row in some) for some in cells.values())
        values = [sensitivity_paper_value(t, c, p, 1.0) for t, c, p in cells]
        paper = short(fmean(value[0] for value in values if value))
        cost = f"{_time(trainings, 'training_seconds')} of trainings"
        lines.append(("Sensitivity (B.2); mean accuracy", "sensitivity", cost, paper, short(ours)))
    if labels:
        cost = _time(labels)
        lines.append(("Few labels (not in the paper)", "labels", cost, "–", "see the table"))
    options = {
        "downstream": f" --settings {' '.join(begun(downstream))}",
        "uncertainty": f" --settings {' '.join(begun(uncertainty))}",
    }
    commands = {s: f"`python -m paper {s} --out DIR{options.get(s, '')}`" for _, s, *_ in lines}
    rows = [[title, commands[study], *rest] for title, study, *rest in lines]
    places = ["in the paper's setting", "in our own"]
    places += ["with the estimator's defaults"] * ("default" in begun(downstream))
    about = f"Ours: {' · '.join(places)}."
    table = Table("Map", ["", "command", "cost", "the paper", "ours"], rows)
    return Block("map", "", "", about, tables=[table] if rows else ())


def _time(rows: Iterable[Row], name: str = "seconds") -> str:
    total = sum(row.get(name) or 0.0 for row in rows)
    return f"{total / 60:.0f} min" if total < 7200 else f"{total / 3600:.1f} h"


def goals_block(
    downstream: Sequence[Row], trainings: Sequence[Row], uncertainty: Sequence[Row]
) -> Block:
    by_setting: dict[str, list[Finding]] = {
        setting: [
            *downstream_findings(downstream, setting, trainings),
            *uncertainty_findings(uncertainty, setting),
        ]
        for setting in SETTINGS
    }
    there = {setting: some for setting, some in by_setting.items() if some}
    claims = dict.fromkeys(f.claim for some in there.values() for f in some)

    def cell(some: Sequence[Finding], claim: str) -> str:
        mine = next((f for f in some if f.claim == claim), None)
        return f"{mine.sign} {mine.evidence}" if mine else "○"

    lines = [[claim, *(cell(some, claim) for some in there.values())] for claim in claims]
    table = Table("Goals", ["", *(f"setting {setting}" for setting in there)], lines)
    about = "✓ holds, ✗ does not, ○ open: cells that would decide it are missing."
    if not there:
        about += " No rows of `python -m paper downstream` and `python -m paper uncertainty` yet."
    return Block("goals", "", "Goals", about, tables=[table] if there else ())


def origins_block(results: Results) -> Block:
    """Commit, versions and machine of each file's rows, the most rows first."""
    parts = ("commit", "varjepa", "python", "torch", "device", "processor", "cores")
    lines = []
    for name, rows in results.rows.items():
        counts: Counter[tuple[str, ...]] = Counter()
        for row in rows:
            environment = row.get("environment", {})
            counts[tuple(str(environment.get(part) or "–") for part in parts)] += 1
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        lines += [[name, f"{count:,}", *values] for values, count in ordered]
    warnings = [Finding("not the full study", False, text) for text in results.warnings.values()]
    table = Table("Origins", ["file", "rows", *parts], lines)
    return Block("origins", "", "Where the rows come from", "", {"": warnings}, [table])


# --- the few numbers to take home

HALF = COVERAGES[-1]


def headline_block(
    simulation: Sequence[Row], downstream: Sequence[Row], uncertainty: Sequence[Row]
) -> Block:
    """Table 1 in a sentence, means over predictors by dataset, and the uncertainty's."""
    about = []
    if simulation:
        there = [v for v in SIMULATION_VARIANTS if any(r["variant"] == v for r in simulation)]
        agreeing, compared = count_agreeing(simulation, there)
        findings = simulation_findings(simulation)
        about.append(
            f"Section 4.1: {agreeing} of {compared} numbers agree with the paper's, and "
            f"{sum(f.holds is True for f in findings)} of {len(findings)} findings hold."
        )
    studies = (("downstream", downstream), ("uncertainty", uncertainty))
    missing = [f"`python -m paper {name}`" for name, rows in studies if not rows]
    if missing:
        about.append(f"Section 4.2: no rows of {' and '.join(missing)}.")
    tables = [downstream_headline(downstream)] if downstream else []
    tables += [uncertainty_headline(uncertainty)] if uncertainty else []
    return Block("headline", "", "", " ".join(about), tables=tables)


def shown_settings(rows: Sequence[Row]) -> list[str]:
    """What a user gets comes first."""
    return sorted(begun(rows), key=lambda setting: setting != "default")


def downstream_headline(rows: Sequence[Row]) -> Table:
    """Accuracy by dataset, mean over the six predictors: a number a cell."""
    by_setting = {s: accuracy_cells(rows, s) for s in shown_settings(rows)}
    raw = by_setting.get("paper", {})
    lines = []
    for dataset, info in DATASETS.items():
        shown = [_number(_mean(raw, dataset, "raw", 1.0))]
        for coverage in (1.0, HALF):
            key = (dataset, "var_t_jepa")
            paper = fmean(paper_accuracy(*key, p, coverage)[0] for p in PAPER_PREDICTORS)
            ours = [_mean(cells, *key, coverage) for cells in by_setting.values()]
            shown += [_number(value) for value in (paper, *ours)]
        lines.append([info.title, *shown])
    columns = ["the paper", *(SETTING_TITLES[setting] for setting in by_setting)]
    reached = [_reached(cells) for cells in by_setting.values()]
    return Table(
        "",
        ["", "raw columns", *columns, *(f"half: {column}" for column in columns)],
        lines,
        "Section 4.2, accuracy on the embedding, mean over the six predictors. "
        + _settings_in_words(list(by_setting))
        + f" *Half*: at coverage {HALF:.0%}, the half of the test rows with the least uncertainty. "
        f"Of {CELLS} cells (predictors, coverages, datasets), {', '.join(reached)} reach the "
        "paper's mean minus the larger of its standard deviation and two binomial standard errors, "
        "in the order of the columns.",
    )


def uncertainty_headline(rows: Sequence[Row]) -> Table:
    """How well a latent score agrees with the true ambiguity: a number a cell."""
    settings = shown_settings(rows)
    groups = {
        s: group(
            [r for r in first_embeddings(rows) if r["setting"] == s],
            "dataset", "arrangement", "score",
        )
        for s in settings
    }  # fmt: skip
    lines = []
    for dataset in PAPER_DATASETS:
        scores = [ambiguity_score(groups[s], dataset, s) for s in settings]
        shown = []
        for metric in ("spearman", "auroc"):
            ours = [metric_mean(one[1], metric) if one else None for one in scores]
            paper = uncertainty_paper_value(metric, dataset, LATENT)
            shown += [_number(value) for value in (paper, *ours)]
        lines.append([DATASETS[dataset].title, *shown])
    columns = ["the paper", *(SETTING_TITLES[setting] for setting in settings)]
    chosen = " In our setting, the score is the one that agrees best with u on validation rows."
    return Table(
        "",
        ["", *(f"Spearman: {c}" for c in columns), *(f"AUROC: {c}" for c in columns)],
        lines,
        "A row's uncertainty compared with its true ambiguity u; AUROC of u above its upper "
        "quartile." + chosen * ("ours" in settings),
    )


CELLS = len(DATASETS) * len(PAPER_PREDICTORS) * len(COVERAGES)
"""Accuracies of Var-T-JEPA that the paper has."""

SETTING_TITLES = {"default": "`VarTJEPA()`", "paper": "its setting", "ours": "our setting"}


def _settings_in_words(settings: Sequence[str]) -> str:
    words = {
        "default": "`VarTJEPA()`: the defaults, with no labels.",
        "paper": "*Its setting*: ours, with the paper's settings.",
        "ours": "*Our setting*: chosen per dataset on validation rows.",
    }
    return " ".join(words[setting] for setting in settings)


def _reached(cells: Cells) -> str:
    """How many cells of all datasets reach the paper's."""
    reached, there = map(sum, zip(*(reached_cells(cells, d) for d in DATASETS), strict=True))
    return str(reached) if there == CELLS else f"{reached} of {there}"


def _mean(cells: Cells, dataset: str, name: str, coverage: float) -> float | None:
    """Over all six predictors; the mean of fewer cannot be compared with the paper's."""
    keys = [(dataset, name, predictor, coverage) for predictor in PAPER_PREDICTORS]
    return fmean(cells[key].mean for key in keys) if all(key in cells for key in keys) else None


def _number(value: float | None, digits: int = 3) -> str:
    return MISSING if value is None else short(value, digits)


# --- Markdown

BLOCK = re.compile(r"^<!-- generated: ([\w-]+) -->\n(.*?)^<!-- end -->$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- (?:generated:|end)")
TITLE = "The paper, in numbers"


def block_markdown(block: Block) -> str:
    """Heading, words, findings, tables."""
    parts = [f"## {block.title}"] if block.title else []
    if not block.is_run:
        return "\n\n".join([*parts, f"Not run yet: `python -m paper {block.study} --out DIR`."])
    if block.about:
        parts.append(block.about)
    for setting, findings in block.findings.items():
        if findings and setting:
            parts.append(f"Setting {setting}:")
        if findings:
            parts.append("\n".join(f"- {f.sign} {f.claim}: {f.evidence}" for f in findings))
    parts += [f"![{figure.label}]({figure.file})" for figure in block.figures]
    below = 0 if len(block.tables) == 1 else 3
    parts += [to_markdown(table, below, block.shows_gaps) for table in block.tables]
    return "\n\n".join(parts)


def write_document(folder: Path, path: Path) -> None:
    """Fill the blocks of a file from a results folder; one that is not there gets all of them."""
    blocks = {b.name: block_markdown(b) for b in build_blocks(read_results(folder))}
    if path.exists():
        write_report(fill(read_document(path), blocks, path.name), path)
    else:
        parts = [f"# {TITLE}", *(_generated(name, body) for name, body in blocks.items())]
        write_report("\n\n".join(parts) + "\n", path)


def read_document(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{path} is not a Markdown file") from error


def fill(text: str, blocks: Mapping[str, str], name: str) -> str:
    r"""The text with every block replaced; refused where the marks do not fit.

    Examples:
        >>> text = "Mine.\n<!-- generated: a -->\nold\n<!-- end -->\n"
        >>> print(fill(text, {"a": "new"}, "x.md"), end="")
        Mine.
        <!-- generated: a -->
        new
        <!-- end -->
    """
    marked = list(BLOCK.finditer(text))
    if not marked:
        raise InputError(
            f"{name} has no block to fill: lines <!-- generated: NAME --> and <!-- end -->, NAME "
            f"one of {', '.join(blocks)}"
        )
    if len(MARK.findall(text)) != 2 * len(marked):
        raise InputError(f"{name} has a generated block that does not begin or end")
    for block in marked:
        if block[1] not in blocks:
            raise InputError(
                f"{name} asks for the block {block[1]!r}; known are {', '.join(blocks)}"
            )
    return BLOCK.sub(lambda block: _generated(block[1], blocks[block[1]]), text)


def _generated(name: str, body: str) -> str:
    return f"<!-- generated: {name} -->\n{body}\n<!-- end -->"


def write_study(folder: Path, blocks: Sequence[Block]) -> Path:
    """The tables of one study as Markdown, and its figures."""
    path = folder / f"{blocks[0].study}.md"
    write_text(path, "\n\n".join(map(block_markdown, blocks)) + "\n")
    for block in blocks:
        for figure in block.figures:
            figure.draw(folder / figure.file)
    return path


# --- the page


def check_can_report() -> None:
    """Say before hours of work, not after, that a page needs an extra."""
    check_can_draw()
    if importlib.util.find_spec("jinja2") is None:
        raise InputError("a report needs jinja2: pip install 'varjepa[report]'")


def write_page(folder: Path, path: Path) -> None:
    """Read and render first, then replace the file in one step."""
    write_report(render_page(folder), path)


def render_page(folder: Path) -> str:
    """The whole page as HTML that loads nothing; the same files give the same text."""
    results = read_results(folder)
    blocks = build_blocks(results)
    studies = dict.fromkeys(block.study for block in blocks if block.study)
    shown = {s: [t for b in blocks if b.study == s for t in b.tables] for s in studies}
    environment = describe_environment()
    page = ReportPage(
        title="varjepa: the paper's experiments, compared with ours",
        subtitle=f"Results in {folder.resolve().name}. Each cell: ours, below it the paper's, and "
        "the difference.",
        footer={
            "page made by varjepa": str(environment["varjepa"]),
            "commit": str(environment["commit"] or "–"),
        },
    )
    return render_template(
        "study_page.html.j2",
        "paper",
        page=page,
        blocks=blocks,
        marks={s: sum((table.marks for table in tables), Counter()) for s, tables in shown.items()},
        is_run={s: any(b.is_run and b.tables for b in blocks if b.study == s) for s in studies},
        commands={s: f"python -m paper {s} --out {shlex.quote(str(folder))}" for s in studies},
        warnings={
            s: [text for name, text in results.warnings.items() if FILES[name].study == s]
            for s in studies
        },
        signs=SIGNS,
        draw=lambda figure: trusted(
            inline(
                figure.draw,
                key=figure.file.removesuffix(".svg"),
                label=figure.label,
                has_formulas=figure.has_formulas,
            )
        ),
    )
