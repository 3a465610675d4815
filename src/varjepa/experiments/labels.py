"""Few labels: where label-free pre-training should pay (not in the paper).

    varjepa reproduce labels --out DIR [--datasets …]

50 to 1,000 training rows have a label, drawn five times; raw columns, Var-T-JEPA's embeddings and
both together; a logistic regression, a perceptron and trees. The embeddings are those of the
downstream study, standardised: its checkpoint was picked with the labels of *all* training and
validation rows, as the paper's protocol has it, so this says what an embedding is worth to somebody
who gets it with few labels, not what few labels could train. ``varjepa evaluate`` picks without.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from varjepa.datasets.catalogue import DATASETS
from varjepa.datasets.dataset import split_rows
from varjepa.environment import describe_environment
from varjepa.estimators.parameters import pick_device
from varjepa.experiments.downstream import learn
from varjepa.experiments.embeddings import Say
from varjepa.experiments.few_label_fits import (
    LABEL_PREDICTORS,
    LOGISTIC,
    PERCEPTRON,
    FewLabels,
    adapter_of,
    standardised,
    take,
    training_of,
)
from varjepa.experiments.few_labels import (
    COMPARED,
    SIZES,
    labelled_rows,
    linear_guesses,
    sizes_that_fit,
)
from varjepa.experiments.pretraining import FULL, Scale, pretraining
from varjepa.experiments.representations import LEARNED, Workbench
from varjepa.experiments.results import Layout, ResultFile, Row, plain
from varjepa.experiments.tabular_settings import SPLIT_SEED, Setting
from varjepa.files import make_folder, only_writer

FILE = "low_labels.json"


@dataclass(frozen=True, slots=True)
class Curve:
    """A place in the tables; its rows are one per number of labels and seed."""

    dataset: str
    representation: str
    predictor: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class LabelsPlan:
    """Which curves are wanted."""

    datasets: Sequence[str] = tuple(DATASETS)
    representations: Sequence[str] = COMPARED
    predictors: Sequence[str] = LABEL_PREDICTORS
    settings: Sequence[Setting] = ("paper",)
    sizes: Sequence[int] = SIZES
    runs: int = 5
    """draws of the rows that have a label"""
    scale: Scale = FULL

    def curves(self, dataset: str) -> list[Curve]:
        """Embeddings in the outer loops; raw columns have no setting and are not made twice."""
        pairs = [
            ("paper" if n not in LEARNED else s, n)
            for s in self.settings
            for n in self.representations
        ]
        return [
            Curve(dataset, name, predictor, setting)
            for setting, name in dict.fromkeys(pairs)
            for predictor in self.predictors
        ]

    def sizes_of(self, dataset: str) -> tuple[int, ...]:
        """As many labels as there are training rows; no data has to be loaded to know."""
        rows = min(DATASETS[dataset].rows, self.scale.rows or DATASETS[dataset].rows)
        return sizes_that_fit(len(split_rows(rows, SPLIT_SEED).train), self.sizes)


def reproduce_labels(
    folder: Path, plan: LabelsPlan, device: str = "auto", say: Say = lambda line: None
) -> ResultFile:
    """Compute whatever curve is not in the folder yet, saving after every one."""
    make_folder(folder)
    with only_writer(folder):
        found = open_labels(folder, plan.scale)
        for dataset in plan.datasets:
            bench = Workbench(folder, dataset, plan.scale, device, say)
            sizes = plan.sizes_of(dataset)
            for curve in plan.curves(dataset):
                missing = missing_seeds(found, curve, sizes, plan.runs)
                if missing:
                    rows = run_curve(bench, curve, sizes, missing)
                    found.add(rows)
                    say(_spoken(rows))
    return found


def open_labels(folder: Path, scale: Scale) -> ResultFile:
    """``low_labels.json``, refused where it holds rows of other settings."""

    def settings(row: Row) -> dict[str, Any]:
        model = LEARNED.get(row["representation"])
        spec = None
        if model is not None:
            spec = plain(pretraining(row["dataset"], model, row["setting"], scale))
        return {
            "rows": scale.rows,
            "split_seed": SPLIT_SEED,
            "pretraining": spec,
            "adapter": adapter_of(row["predictor"]) if model is not None else None,
            "training": plain(training_of(scale, row["labels"]))
            if row["predictor"] == PERCEPTRON
            else None,
        }

    key = ("dataset", "representation", "predictor", "setting", "labels", "seed")
    values = ("accuracy", "test_rows", "seconds", "environment")
    return ResultFile(folder / FILE, Layout(key, values, settings))


def missing_seeds(found: ResultFile, curve: Curve, sizes: Sequence[int], runs: int) -> list[int]:
    """Seeds of a curve that lack a row."""
    there = {found.layout.key_of(row) for row in found.rows}
    return [
        seed
        for seed in range(runs)
        if any((*astuple(curve), size, seed) not in there for size in sizes)
    ]


def run_curve(
    bench: Workbench, curve: Curve, sizes: Sequence[int], seeds: Sequence[int]
) -> list[Row]:
    """All numbers of labels with every seed, first making the representation where needed."""
    labels, split = bench.data.label, bench.split
    embedded = None
    if curve.representation in LEARNED:
        embedded = learn(bench, LEARNED[curve.representation], curve.setting, 0)
    inputs = bench.inputs(curve.representation, embedded, standardise=True)
    orders = {seed: labelled_rows(split.train, max(sizes), SPLIT_SEED, seed) for seed in seeds}
    device = "cpu"
    start = time.perf_counter()
    if curve.predictor == LOGISTIC:
        guesses = linear_guesses(
            inputs, labels, "classification", split.train, split.test, [*orders.values()], sizes
        )
    else:
        standard = standardised(inputs, split.train)
        if curve.predictor == PERCEPTRON:
            device = str(pick_device(bench.device))
        several = []
        for seed, order in orders.items():
            rows = np.concatenate([order, split.test])
            few = FewLabels(take(standard, rows), labels[rows], len(order))
            several.append(
                [few.guess(curve.predictor, n, seed, bench.scale, device) for n in sizes]
            )
        guesses = np.array(several)
    seconds = time.perf_counter() - start
    right = (guesses == labels[split.test]).mean(-1)  # (seeds, sizes)
    origin = {
        "test_rows": len(split.test),
        "seconds": round(seconds / right.size, 3),
        "environment": describe_environment(device),
    }
    return [
        {
            **asdict(curve),
            "labels": size,
            "seed": seed,
            "accuracy": round(float(right[i, j]), 6),
            **origin,
        }
        for i, seed in enumerate(seeds)
        for j, size in enumerate(sizes)
    ]


def _spoken(rows: Sequence[Row]) -> str:
    first = rows[0]
    means = [
        f"{fmean(row['accuracy'] for row in rows if row['labels'] == size):.3f}"
        for size in dict.fromkeys(row["labels"] for row in rows)
    ]
    return (
        f"{first['dataset']}, {first['representation']}, {first['predictor']}, "
        f"{first['setting']}, few labels: {' '.join(means)}"
    )
