"""Few labels: how many does an embedding save?

A perceptron and trees on few labels; no other label is read.

The perceptron stops by a fifth of the labels. Scaling needs no labels, so all training rows serve
it. Embeddings enter flattened, except for trees, which see the mean over the tokens: flattened,
MNIST alone would take hours. (The learned Linear(D·d → D) of the other tables overfits 40 rows.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paper.datasets.catalogue import DATASETS
from paper.downstream import learn
from paper.predictors import PREDICTORS, FitOptions, Inputs, Tokens, TrainingSettings
from paper.predictors.inputs import InputEncoder, token_moments
from paper.predictors.predictor import LabelledInputs, fit_models
from paper.predictors.registry import Classification
from paper.protocol import Say
from paper.representations import LEARNED, Workbench
from paper.results import Layout, ResultFile, Row, plain
from paper.settings import FULL, SPLIT_SEED, Scale, Setting, pretraining
from varjepa.environment import describe_environment, pick_device
from varjepa.evaluate.few_labels import (
    COMPARED,
    SIZES,
    balance_blocks,
    labelled_rows,
    linear_guesses,
    sizes_that_fit,
)
from varjepa.evaluate.splits import Index, split_rows
from varjepa.files import make_folder, only_writer

LOGISTIC, PERCEPTRON, TREES = LABEL_PREDICTORS = ("logistic", "mlp", "xgboost")

STEPS = 1000
"""that a perceptron may take at least"""
HELD_OUT = 5
"""one in so many labels decides when it stops"""

Moments = tuple[Tensor, Tensor]
"""mean and scale of tokens, (D, d) each"""


def adapter_of(predictor: str) -> str:
    """How embeddings enter a model."""
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
    batch = min(settings.batch, max(16, rows // 20))
    epochs = max(settings.epochs, math.ceil(steps / math.ceil(rows / batch)))
    patience = settings.patience * epochs // settings.epochs
    return replace(settings, batch=batch, epochs=epochs, patience=patience)


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
        found = fit_models(
            predictor,
            LabelledInputs(self.inputs, train, visible[train]),
            LabelledInputs(self.inputs, rows[:held_out], visible[:held_out]) if held_out else None,
            Classification(classes),
            [seed],
            FitOptions(
                adapter=adapter_of(predictor),
                training=training_of(scale, size) if predictor == PERCEPTRON else None,
                device=device,
            ),
        )
        chances = found.predict(self.inputs, test)[0]  # (n_test, classes)
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


# --- Few labels: where label-free pre-training should pay (not in the paper).
#
# python -m paper labels --out DIR [--datasets …]
#
# 50 to 1,000 training rows have a label, drawn five times; raw columns, Var-T-JEPA's
# embeddings and
# both together; a logistic regression, a perceptron and trees. The embeddings are those of
# the
# downstream study, standardised: its checkpoint was picked with the labels of *all* training
# and
# validation rows, as the paper's protocol has it, so this says what an embedding is worth to
# somebody
# who gets it with few labels, not what few labels could train. ``varjepa evaluate`` picks
# without.

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
        features = linear_features(inputs, split.train)
        guesses = linear_guesses(
            features, labels, "classification", split.test, [*orders.values()], sizes
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
