"""Few labels: where label-free pre-training should pay (not in the paper).

    python -m paper labels --out DIR [--datasets …]

50 to 1,000 training rows have a label, drawn five times; raw columns, Var-T-JEPA's embeddings and
both together; a logistic regression, a perceptron and trees. No other label is read.

The embeddings are those of the downstream study, standardised: its checkpoint was picked with the
labels of *all* training and validation rows, as the paper's protocol has it. So this says what an
embedding is worth to somebody who gets it with few labels, not what few labels could train.
``varjepa evaluate`` picks without labels.

The perceptron stops by a fifth of the labels. Scaling needs no labels, so all training rows serve
it. Embeddings enter flattened, except for trees, which see the mean over the tokens: flattened,
MNIST alone would take hours. (The learned Linear(D·d → D) of the other tables overfits 40 rows.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paper.cells import describe_cell
from paper.compare import MISSING, TITLES, Block, Figure, Groups, group, plus_minus, standard_error
from paper.datasets.catalogue import DATASETS
from paper.figures import DARK, LIGHT, panels, save_svg
from paper.predictors.inputs import Adapter, InputEncoder, Inputs, Tokens, token_moments
from paper.predictors.training import (
    PREDICTORS,
    FitOptions,
    LabelledInputs,
    TrainingSettings,
    fit_models,
)
from paper.representations import LEARNED, Workbench, input_settings
from paper.settings import FULL, SETTINGS, SPLIT_SEED, Scale, Setting
from paper.store import Job, Log, ResultStore, Row, no_log, plain, run_jobs
from varjepa.environment import describe_environment
from varjepa.evaluate.predictors import (
    COMPARED,
    SIZES,
    balance_blocks,
    labelled_rows,
    linear_guesses,
    longer_schedule,
    sizes_that_fit,
)
from varjepa.evaluate.splits import Index, split_rows
from varjepa.files import study_folder
from varjepa.report.tables import Table
from varjepa.settings import pick_device

FILE = "low_labels.json"
CURVE = ("dataset", "representation", "predictor", "setting")
"""a place in the tables; its rows are one per number of labels and seed"""
KEY = (*CURVE, "labels", "seed")


# --- models of few labels

LOGISTIC, PERCEPTRON, TREES = LABEL_PREDICTORS = ("logistic", "mlp", "xgboost")

STEPS = 1000
"""that a perceptron may take at least"""
HELD_OUT = 5
"""one in so many labels decides when it stops"""

Moments = tuple[Tensor, Tensor]
"""mean and scale of tokens, (D, d) each"""


def adapter_of(predictor: str) -> Adapter:
    return "mean" if predictor == TREES else "flat"


def training_of(scale: Scale, labels: int) -> TrainingSettings:
    """The perceptron's training on so many labels, less those it stops by."""
    kind = PREDICTORS[PERCEPTRON]
    if scale.predictor_epochs is not None:
        return replace(kind.training, epochs=min(kind.training.epochs, scale.predictor_epochs))
    return longer_training(kind.training, labels - labels // HELD_OUT, STEPS)


def longer_training(settings: TrainingSettings, rows: int, steps: int) -> TrainingSettings:
    """The same settings; on few rows with smaller batches and more epochs.

    A predictor may take at least so many steps: on a hundred rows fifty epochs would leave it half
    trained.
    """
    o = settings
    batch, epochs, patience = longer_schedule(rows, steps, o.batch, o.epochs, o.patience)
    return replace(o, batch=batch, epochs=epochs, patience=patience)


def linear_features(inputs: Inputs, train: Index) -> Callable[[Index], NDArray[np.float64]]:
    """Inputs of the logistic regression; scaling needs no labels, so all training rows serve it."""
    rows = InputEncoder("one-hot", "flat").fit(inputs, train).transform(inputs)

    def features(index: Index) -> NDArray[np.float64]:
        batch = rows.take(torch.from_numpy(index)[None])
        parts = [batch.numeric[0]]
        if batch.tokens is not None:
            parts.append(batch.tokens[0].flatten(1))
        return balance_blocks([part.numpy() for part in parts])

    return features


@dataclass(frozen=True, slots=True, eq=False)
class FewLabels:
    """The rows that may have a label, in their order, and after them the test rows."""

    inputs: Inputs
    labels: NDArray[np.int64]  # (n,)
    most: int
    """rows before the test rows"""

    def guess(
        self, predictor: str, size: int, seed: int, scale: Scale, device: str
    ) -> NDArray[np.int64]:
        """What a model of the first labels says of the test rows.  # (n_test,)"""
        held_out = size // HELD_OUT if predictor == PERCEPTRON else 0
        rows, test = np.arange(size), np.arange(self.most, len(self.labels))
        train = rows[held_out:]
        if np.ptp(self.labels[train]) == 0:  # all of one class: nothing to learn
            return np.full(len(test), self.labels[train[0]])
        visible = self.labels.copy()
        visible[size:] = visible[train[0]]  # labels of other rows cannot be read
        classes = np.unique(self.labels)
        fitted = fit_models(
            predictor,
            LabelledInputs(self.inputs, train, visible[train]),
            LabelledInputs(self.inputs, rows[:held_out], visible[:held_out]) if held_out else None,
            classes,
            [seed],
            FitOptions(
                adapter=adapter_of(predictor),
                training=training_of(scale, size) if predictor == PERCEPTRON else None,
                device=device,
            ),
        )
        chances = fitted.predict(self.inputs, test)[0]  # (n_test, classes)
        guesses: NDArray[np.int64] = classes[chances.argmax(-1)]
        return guesses


def standardised(inputs: Inputs, train: Index) -> tuple[Inputs, Moments | None]:
    """Inputs with the moments of their tokens over all training rows."""
    if inputs.tokens is None:
        return inputs, None
    return inputs, token_moments(inputs.tokens.values, torch.from_numpy(train))


def take(standard: tuple[Inputs, Moments | None], rows: Index) -> Inputs:
    """Some rows, their tokens standardised: few labelled rows could not say by what."""
    inputs, moments = standard
    raw = None if inputs.raw is None else inputs.raw.rows(rows)
    if inputs.tokens is None or moments is None:
        return Inputs(raw=raw)
    values = inputs.tokens.values[torch.from_numpy(rows)].float()
    return Inputs(raw, Tokens((values - moments[0]) / moments[1]))


# --- the study


@dataclass(frozen=True, slots=True)
class LabelsPlan:
    datasets: Sequence[str] = tuple(DATASETS)
    predictors: Sequence[str] = LABEL_PREDICTORS
    settings: Sequence[Setting] = ("paper",)
    sizes: Sequence[int] = SIZES
    runs: int = 5
    """draws of the rows that have a label"""
    scale: Scale = FULL

    def jobs(self, dataset: str) -> list[Job]:
        """Embeddings in the outer loops; raw columns have no setting and are not made twice."""
        pairs = [("paper" if n not in LEARNED else s, n) for s in self.settings for n in COMPARED]
        return [
            Job(
                dict(zip(CURVE, (dataset, name, predictor, setting), strict=True)),
                range(self.runs),
                {"labels": self.sizes_of(dataset)},
            )
            for setting, name in dict.fromkeys(pairs)
            for predictor in self.predictors
        ]

    def sizes_of(self, dataset: str) -> tuple[int, ...]:
        """As many labels as there are training rows; no data has to be loaded to know."""
        rows = min(DATASETS[dataset].rows, self.scale.rows or DATASETS[dataset].rows)
        return sizes_that_fit(len(split_rows(rows, SPLIT_SEED).train), self.sizes)


def run_labels(folder: Path, plan: LabelsPlan, device: str = "auto", log: Log = no_log) -> None:
    """Compute whatever curve is not in the folder yet, saving after every one."""
    with study_folder(folder):
        store = open_labels(folder, plan.scale)
        for dataset in plan.datasets:
            bench = Workbench(folder, dataset, plan.scale, device, log)

            def compute(job: Job, seeds: list[int], bench: Workbench = bench) -> list[Row]:
                return run_curve(bench, job.about, job.each["labels"], seeds)

            run_jobs(
                store,
                plan.jobs(dataset),
                compute,
                log,
                partial(describe_cell, column="labels", what=", few labels"),
            )


def open_labels(folder: Path, scale: Scale = FULL) -> ResultStore:
    """``low_labels.json``, refused where it holds rows of other settings."""

    def settings(row: Row) -> dict[str, Any]:
        is_learned = row["representation"] in LEARNED
        return {
            **input_settings(row, scale),
            "adapter": adapter_of(row["predictor"]) if is_learned else None,
            "training": plain(training_of(scale, row["labels"]))
            if row["predictor"] == PERCEPTRON
            else None,
        }

    return ResultStore(folder / FILE, KEY, settings)


def run_curve(
    bench: Workbench, about: Mapping[str, Any], sizes: Sequence[int], seeds: Sequence[int]
) -> list[Row]:
    """All numbers of labels with every seed, first making the representation where needed."""
    labels, split = bench.data.label, bench.split
    name, predictor, embedded = about["representation"], about["predictor"], None
    if name in LEARNED:
        embedded = bench.learn(LEARNED[name], about["setting"], 0)
    inputs = bench.inputs(name, embedded, standardise=True)
    orders = {seed: labelled_rows(split.train, max(sizes), SPLIT_SEED, seed) for seed in seeds}
    device = "cpu"
    start = time.perf_counter()
    if predictor == LOGISTIC:
        guesses = linear_guesses(
            linear_features(inputs, split.train),
            labels,
            "classification",
            split.test,
            [*orders.values()],
            sizes,
        )
    else:
        standard = standardised(inputs, split.train)
        if predictor == PERCEPTRON:
            device = str(pick_device(bench.device))
        several = []
        for seed, order in orders.items():
            rows = np.concatenate([order, split.test])
            few = FewLabels(take(standard, rows), labels[rows], len(order))
            several.append([few.guess(predictor, n, seed, bench.scale, device) for n in sizes])
        guesses = np.array(several)
    seconds = time.perf_counter() - start
    right = (guesses == labels[split.test]).mean(-1)  # (seeds, sizes)
    origin = {
        "test_rows": len(split.test),
        "seconds": round(seconds / right.size, 3),
        "environment": describe_environment(device),
    }
    return [
        {"labels": size, "seed": seed, "accuracy": round(float(right[i, j]), 6), **origin}
        for i, seed in enumerate(seeds)
        for j, size in enumerate(sizes)
    ]


# --- tables and figure


def labels_blocks(rows: Sequence[Row]) -> list[Block]:
    """What is gained over raw columns, then every curve."""
    has_panel = any(
        row["dataset"] in DATASETS
        and row["predictor"] in LABEL_PREDICTORS
        and row["representation"] in COMPARED
        and row["setting"] in SETTINGS
        for row in rows
    )
    figure = Figure(
        "low_labels.svg",
        "Accuracy by number of labels",
        lambda path: draw_label_curves(rows, path),
        "A panel per model and dataset: accuracy over the number of labels",
        "Bands: one standard error.",
    )
    return [
        Block(
            "labels",
            "labels",
            "Few labels (not in the paper)",
            "Accuracy on the test rows of models that have only so many labels, the same rows for "
            "every representation; mean ± standard error over draws of the labelled rows. "
            "Embeddings are those of the tables above, so labels of all training and validation "
            "rows have picked their checkpoint.",
            tables=[*gain_table(rows), *curve_table(rows)],
            figures=[figure] if has_panel else (),
            is_run=bool(rows),
        )
    ]


def gain_table(rows: Sequence[Row]) -> list[Table]:
    """Against raw columns with the same model and labels: cells won, and the mean gain."""
    groups = group(rows, "dataset", "representation", "predictor", "setting", "labels")
    means = {key: fmean(row["accuracy"] for row in here) for key, here in groups.items()}
    sizes = sizes_there(rows)

    def gains(name: str, predictor: str, setting: str, size: int) -> list[float]:
        return [
            means[ours] - means[raw]
            for dataset in DATASETS
            if (ours := (dataset, name, predictor, setting, size)) in means
            and (raw := (dataset, "raw", predictor, "paper", size)) in means
        ]

    lines = []
    for setting in SETTINGS:
        for name in (name for name in COMPARED if name in LEARNED):
            for predictor in LABEL_PREDICTORS:
                cells = [gains(name, predictor, setting, size) for size in sizes]
                if any(cells):
                    shown = [
                        f"{sum(g > 0 for g in some)} of {len(some)}, {fmean(some):+.3f}"
                        if some
                        else MISSING
                        for some in cells
                    ]
                    lines.append([TITLES[name], setting, TITLES[predictor], *shown])
    table = Table(
        "Against raw columns with as few labels",
        ["representation", "setting", "model", *(f"{size:,} labels" for size in sizes)],
        lines,
        "On how many datasets the representation is above raw columns, and by how much on average.",
        labels=3,
    )
    return [table] if lines else []


def curve_table(rows: Sequence[Row]) -> list[Table]:
    """A line per dataset, model and representation; a column per number of labels."""
    groups = group(rows, "dataset", "predictor", "representation", "setting", "labels")
    sizes = sizes_there(rows)
    there = {key[:4] for key in groups}

    def cell(*key: Any) -> str:
        values = [row["accuracy"] for row in groups.get(key, ())]
        return plus_minus(fmean(values), standard_error(values)) if values else MISSING

    lines = [
        [
            dataset,
            TITLES[predictor],
            TITLES[name] + (f", setting {setting}" if name in LEARNED else ""),
            *(cell(dataset, predictor, name, setting, size) for size in sizes),
        ]
        for dataset in DATASETS
        for predictor in LABEL_PREDICTORS
        for name in COMPARED
        for setting in SETTINGS
        if (dataset, predictor, name, setting) in there
    ]
    columns = ["dataset", "model", "representation", *(f"{size:,} labels" for size in sizes)]
    table = Table("Accuracy by number of labels", columns, lines, labels=3, is_open=False)
    return [table] if lines else []


def sizes_there(rows: Sequence[Row]) -> list[int]:
    return sorted({row["labels"] for row in rows})


COLOURS = {"paper": LIGHT, "ours": DARK, "default": "black"}
"""of what a setting has learnt; raw columns are grey"""
STROKES = {"raw": ":", "raw+var_t_jepa": "--"}


def draw_label_curves(rows: Sequence[Row], path: Path) -> None:
    """A panel per model and dataset: means over draws, with a band of one standard error."""
    curves = group(rows, "dataset", "predictor", "representation", "setting")
    datasets = [name for name in DATASETS if any(key[0] == name for key in curves)]
    models = [name for name in LABEL_PREDICTORS if any(key[1] == name for key in curves)]
    size = 1.9 * len(datasets) + 0.4, 1.8 * len(models) + 0.5
    figure, axes = panels(size, len(models), len(datasets), squeeze=False)
    named: dict[str, Any] = {}
    for panel_row, model in zip(axes, models, strict=True):
        panel_row[0].set_ylabel(f"{TITLES[model]}\naccuracy", fontsize=8)
        for panel, dataset in zip(panel_row, datasets, strict=True):
            named |= _draw_panel(panel, curves, dataset, model)
    for panel, dataset in zip(axes[0], datasets, strict=True):
        panel.set_title(DATASETS[dataset].title, fontsize=9)
    for panel in axes[-1]:
        panel.set_xlabel("labels", fontsize=8)
    figure.legend(
        named.values(),
        named,
        loc="outside lower center",
        ncols=max(1, min(len(named), len(datasets) - 1)),  # a name is wider than a panel
        fontsize=8,
        frameon=False,
    )
    save_svg(figure, path)


def _draw_panel(panel: Any, curves: Groups, dataset: str, model: str) -> dict[str, Any]:
    """Draw what there is; the lines by what they are called in the legend."""
    named: dict[str, Any] = {}
    sizes: set[int] = set()
    for representation in COMPARED:
        for setting in SETTINGS:
            rows = curves.get((dataset, model, representation, setting))
            if not rows:
                continue
            points = dict(sorted(group(rows, "labels").items()))
            at = [size for (size,) in points]
            values = [[row["accuracy"] for row in here] for here in points.values()]
            learned = representation in LEARNED
            colour = COLOURS[setting] if learned else "grey"
            stroke = STROKES.get(representation, "-")
            (panel_row,) = panel.plot(at, [fmean(v) for v in values], stroke, color=colour)
            low, high = zip(*(_band(v) for v in values), strict=True)
            panel.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
            name = TITLES[representation] + (f", setting {setting}" if learned else "")
            named[name] = panel_row
            sizes.update(at)
    if not named:
        panel.axis("off")
        return named
    panel.set_xscale("log")
    panel.set_xticks(sorted(sizes), [f"{size:,}" for size in sorted(sizes)], fontsize=6)
    panel.minorticks_off()
    panel.tick_params(axis="y", labelsize=7)
    panel.grid(alpha=0.2)
    return named


def _band(values: Sequence[float]) -> tuple[float, float]:
    error = standard_error(values) or 0.0
    return fmean(values) - error, fmean(values) + error
