"""The low-label curves as tables and a figure, from ``low_labels.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from paper.datasets.catalogue import DATASETS
from paper.labels import LABEL_PREDICTORS
from paper.report.cells import MISSING, TITLES, header, line, plus_minus
from paper.report.figures import draw_label_curves, drawable
from paper.representations import LEARNED
from paper.results import Row, group, standard_error
from paper.settings import SETTINGS
from varjepa.evaluate.few_labels import COMPARED
from varjepa.files import write_text

WORDS = (
    "Accuracy on the test rows of models that have only so many labels, the same rows for every "
    "representation; mean ± standard error over draws of the labelled rows. Embeddings are those "
    "of the tables above, so labels of all training and validation rows have picked the moment at "
    "which their training was kept."
)

Groups = Mapping[tuple[Any, ...], list[Row]]


def write_labels_report(folder: Path, rows: Sequence[Row]) -> None:
    """Write ``low_labels.md`` and ``low_labels.svg``."""
    if any(map(drawable, rows)):
        draw_label_curves(rows, folder / "low_labels.svg")
    text = "\n".join(["# Few labels (not in the paper)", *labels_tables(rows)]) + "\n"
    write_text(folder / "low_labels.md", text)


def labels_tables(rows: Sequence[Row]) -> list[str]:
    """What is gained over raw columns, then every curve."""
    return ["", WORDS, *gain_table(rows), *curve_table(rows)]


def gain_table(rows: Sequence[Row]) -> list[str]:
    """Against raw columns with the same model and labels: cells won, and the mean gain."""
    means = _means(rows)
    sizes = sizes_there(rows)
    lines = []
    for setting in SETTINGS:
        for name in (name for name in COMPARED if name in LEARNED):
            for predictor in LABEL_PREDICTORS:
                cells = [_gains(means, name, predictor, setting, size) for size in sizes]
                if any(cells):
                    shown = [
                        f"{sum(g > 0 for g in gains)} of {len(gains)}, {fmean(gains):+.3f}"
                        if gains
                        else MISSING
                        for gains in cells
                    ]
                    lines.append(line([TITLES[name], setting, TITLES[predictor], *shown]))
    if not lines:
        return []
    titles = ["representation", "setting", "model", *(f"{size:,} labels" for size in sizes)]
    return [
        "",
        "## Against raw columns with as few labels",
        "",
        "On how many datasets the representation is above raw columns, and by how much on average.",
        "",
        *header(titles),
        *lines,
    ]


def curve_table(rows: Sequence[Row]) -> list[str]:
    """A line per dataset, model and representation; a column per number of labels."""
    groups = group(rows, "dataset", "predictor", "representation", "setting", "labels")
    sizes = sizes_there(rows)
    there = {key[:4] for key in groups}
    lines = [
        line(
            [
                dataset,
                TITLES[predictor],
                TITLES[name] + (f", setting {setting}" if name in LEARNED else ""),
                *(_cell(groups.get((dataset, predictor, name, setting, n))) for n in sizes),
            ]
        )
        for dataset in DATASETS
        for predictor in LABEL_PREDICTORS
        for name in COMPARED
        for setting in SETTINGS
        if (dataset, predictor, name, setting) in there
    ]
    titles = ["dataset", "model", "representation", *(f"{size:,} labels" for size in sizes)]
    return ["", "## Accuracy by number of labels", "", *header(titles), *lines] if lines else []


def sizes_there(rows: Sequence[Row]) -> list[int]:
    """Numbers of labels, ascending."""
    return sorted({row["labels"] for row in rows})


def _means(rows: Sequence[Row]) -> dict[tuple[Any, ...], float]:
    groups = group(rows, "dataset", "representation", "predictor", "setting", "labels")
    return {key: fmean(row["accuracy"] for row in here) for key, here in groups.items()}


def _gains(
    means: Mapping[tuple[Any, ...], float], name: str, predictor: str, setting: str, size: int
) -> list[float]:
    return [
        means[ours] - means[raw]
        for dataset in DATASETS
        if (ours := (dataset, name, predictor, setting, size)) in means
        and (raw := (dataset, "raw", predictor, "paper", size)) in means
    ]


def _cell(rows: Sequence[Row] | None) -> str:
    if not rows:
        return MISSING
    values = [row["accuracy"] for row in rows]
    return plus_minus(fmean(values), standard_error(values))
