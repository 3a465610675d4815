"""The downstream tables as Markdown, from ``downstream.json`` and ``representations.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from varjepa.datasets.catalogue import DATASETS
from varjepa.evaluation.classification import COVERAGES
from varjepa.experiments.downstream import is_ranked
from varjepa.experiments.downstream_findings import downstream_findings, group, summarise
from varjepa.experiments.representations import REPRESENTATIONS
from varjepa.experiments.results import Row
from varjepa.experiments.tabular_paper import (
    PAPER_PREDICTORS,
    PAPER_REPRESENTATIONS,
    downstream_paper_value,
)
from varjepa.experiments.tabular_settings import SETTINGS
from varjepa.files import write_text
from varjepa.report.beside import LEGEND, beside, header, line, short

TITLES = {
    "mlp": "MLP",
    "dcn_v2": "DCNv2",
    "resnet": "ResNet",
    "autoint": "AutoInt",
    "ft_transformer": "FT-Transformer",
    "xgboost": "XGBoost",
    "linear_probe": "linear probe",
    "raw": "raw",
    "pca": "PCA of raw",
    "t_jepa": "T-JEPA",
    "var_t_jepa": "Var-T-JEPA",
    "raw+var_t_jepa": "raw + Var-T-JEPA",
}

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
    first = [row for row in rows if row["embedding_seed"] == 0]
    lines = ["# Downstream predictors (Section 4.2, Appendix B.1)", "", LEGEND]
    for setting in SETTINGS:
        mine = [row for row in first if row["setting"] == setting]
        if setting != "paper" and not mine:
            continue
        lines += ["", f"## Setting: {setting}", ""]
        lines += [
            f"- {'✓' if f.holds else '✗'} {f.claim}: {f.evidence}"
            for f in downstream_findings(rows, setting)
        ]
        for metric, title in METRICS.items():
            lines += ["", f"### {title}", "", *metric_table(mine, metric, setting)]
    lines += against_raw(first) + embedding_table(rows) + training_table(trainings)
    return "\n".join(lines) + "\n"


def metric_table(rows: Sequence[Row], metric: str, setting: str) -> list[str]:
    """A line per predictor, representation and coverage; a column per dataset."""
    cells = group(rows, "dataset", "representation", "predictor", "coverage")
    there = {key[1:] for key in cells}
    wanted = PAPER_REPRESENTATIONS if setting == "paper" and metric != "f1_macro" else ()
    lines = header(["", "representation", *(info.short for info in DATASETS.values())])
    for predictor in (p for p in TITLES if p not in REPRESENTATIONS):
        for name in REPRESENTATIONS:
            for coverage in COVERAGES if is_ranked(name) else COVERAGES[:1]:
                of_paper = name in wanted and predictor in PAPER_PREDICTORS
                if of_paper or (name, predictor, coverage) in there:
                    lines.append(_metric_line(cells, metric, name, predictor, coverage))
    return lines


def _metric_line(cells: Groups, metric: str, name: str, predictor: str, coverage: float) -> str:
    left_out = "" if coverage == 1 else f" ({1 - coverage:.0%} left out)"
    shown = []
    for dataset in DATASETS:
        here = cells.get((dataset, name, predictor, coverage))
        paper = downstream_paper_value(metric, dataset, name, predictor, coverage)
        shown.append(beside(summarise(here, metric) if here else None, paper))
    return line([TITLES[predictor], TITLES[name] + left_out, *shown])


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
                gains = {
                    predictor: mean - means[dataset, predictor, "raw", "paper"]
                    for (d, predictor, representation, s), mean in means.items()
                    if (d, representation, s) == (dataset, name, setting)
                    and (dataset, predictor, "raw", "paper") in means
                }
                if gains:
                    lost = [f"{TITLES[p]} {gain:+.3f}" for p, gain in gains.items() if gain < 0]
                    cells = [dataset, setting, TITLES[name], f"{len(lost)} of {len(gains)}"]
                    lines.append(line([*cells, ", ".join(lost)]))
    if not lines:
        return []
    titles = ["dataset", "setting", "representation", "loses to raw", "by how much"]
    return ["", "## Against raw columns with the same predictor", "", *header(titles), *lines]


def embedding_table(rows: Sequence[Row]) -> list[str]:
    """How much the ranking varies with the seed of the pre-training."""
    mine = [row for row in rows if row["representation"] == "var_t_jepa"]
    several = {row["dataset"] for row in mine if row["embedding_seed"] > 0}
    lines = []
    groups = group(mine, "dataset", "setting", "embedding_seed")
    for (dataset, setting, seed), here in sorted(groups.items()):
        if dataset in several:
            by_coverage = group(here, "coverage")
            accuracy = [
                short(fmean(row["accuracy"] for row in by_coverage[c,]))
                if (c,) in by_coverage
                else "–"
                for c in COVERAGES
            ]
            lines.append(line([dataset, setting, str(seed), *accuracy]))
    if not lines:
        return []
    titles = ["dataset", "setting", "pre-training seed", *(f"{c:.0%}" for c in COVERAGES)]
    return [
        "",
        "## Pre-training seeds",
        "",
        "Accuracy by coverage, mean over predictors and their seeds.",
        "",
        *header(titles),
        *lines,
    ]


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
    total = {
        model: sum(r["seconds"] for r in trainings if r["model"] == model)
        for model in ("var_t_jepa", "t_jepa")
    }
    spent = ", ".join(f"{TITLES[model]} {seconds / 60:.1f} min" for model, seconds in total.items())
    titles = ["dataset", "model", "setting", "seed", "seconds", "epoch kept", "scale", "rank"]
    return [
        "",
        "## Trainings",
        "",
        f"All together: {spent}. Scale: mean norm of a token; rank: effective rank of the "
        "embeddings; varying: share of their mean square that varies across rows (all of the first "
        "1,000 rows). A small share with a good rank is a large common part, not a collapse.",
        "",
        *header([*titles, "varying"]),
        *lines,
    ]
