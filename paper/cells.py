"""One cell of a table: a predictor on a representation, several seeds, scored at every coverage."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paper.compare import group
from paper.datasets.catalogue import DATASETS
from paper.datasets.loading import Dataset
from paper.predictors.inputs import COMPONENTS, DEFAULT_ADAPTER, SIZES, Inputs, Tokens
from paper.predictors.training import (
    FIGURE_PROBE,
    PREDICTORS,
    FitOptions,
    LabelledInputs,
    PredictorKind,
    SeedModels,
    fit_models,
)
from paper.protocol import Embedded
from paper.settings import CHOICES, CHOICES_OF, DEFAULT_TREES, WIDE_COLUMNS, Scale, Setting
from paper.store import Row, plain
from varjepa.environment import describe_environment
from varjepa.evaluate.splits import Split
from varjepa.metrics.selective import COVERAGES, aurc, classification_by_coverage
from varjepa.settings import pick_device

if TYPE_CHECKING:
    from paper.representations import Workbench

Floats = NDArray[np.float64]


def seeds_of(predictor: str, runs: int) -> list[int]:
    """Seeds to run; trees are the same for all, so one stands for them."""
    return [0] if PREDICTORS[predictor].body is None else list(range(runs))


def describe_cell(rows: Sequence[Row], column: str = "coverage", what: str = "") -> str:
    """The means of a cell by the values of a column, as a line of progress."""
    first = rows[0]
    means = [fmean(row["accuracy"] for row in some) for some in group(rows, column).values()]
    return (
        f"{first['dataset']}, {first['representation']}, {first['predictor']}, "
        f"{first['setting']}{what}: {' '.join(f'{mean:.3f}' for mean in means)}"
    )


def coverages_of(is_ranked: bool) -> tuple[float, ...]:
    """A representation without an uncertainty is only scored on all rows."""
    return COVERAGES if is_ranked else (1.0,)


def fit_options(kind: PredictorKind, scale: Scale, device: str) -> FitOptions:
    """A predictor's own training, shortened where the scale says so."""
    training = kind.training
    if scale.predictor_epochs is not None:
        training = replace(training, epochs=min(training.epochs, scale.predictor_epochs))
    place = str(pick_device(device))
    return FitOptions(training=training, device=place)


def choices_of(
    predictor: str, embedding_of: str | None, setting: Setting = "paper"
) -> dict[str, Mapping[str, Any]]:
    """What validation rows choose from, by name; a single one where there is no choice.

    ``embedding_of`` is the dataset; None: raw columns, which need no adapter.
    """
    if setting == "default":
        return _default_choices(predictor, embedding_of)
    usual = CHOICES.get(predictor, {})
    if embedding_of is None:
        bare = {n: {k: v for k, v in c.items() if k != "adapter"} for n, c in usual.items()}
        usual = {name: change for name, change in bare.items() if change}
    choices = CHOICES_OF.get(embedding_of or "", {}).get(predictor, usual)
    return dict(choices) if choices and setting == "ours" else {"default": {}}


def _default_choices(predictor: str, embedding_of: str | None) -> dict[str, Mapping[str, Any]]:
    """Those of the setting "default", a rule of the number of columns."""
    choices = dict(DEFAULT_TREES) if PREDICTORS[predictor].body is None else {"default": {}}
    info = DATASETS[embedding_of] if embedding_of else None
    if info is None or info.numeric + info.categorical <= WIDE_COLUMNS:
        return choices
    wide = {"adapter": "principal"}
    return {
        "principal" if name == "default" else name: {**change, **wide}
        for name, change in choices.items()
    }


def predictor_settings(
    predictor: str, embedding_of: str | None, scale: Scale, setting: Setting = "paper"
) -> dict[str, Any]:
    """What a cell depends on besides its representation, as plain JSON."""
    choices = choices_of(predictor, embedding_of, setting)
    kind = PREDICTORS[predictor]
    options = fit_options(kind, scale, "cpu")
    neural = kind.body is not None and options.training is not None
    training = plain(options.training) if neural and options.training else None
    adapter = DEFAULT_ADAPTER[predictor] if embedding_of else None
    if "default" in choices:
        return {"adapter": adapter, "training": training, "trees": None}
    described = {
        name: {
            "adapter": change.get("adapter", adapter),
            "trees": plain(change["trees"]) if "trees" in change else None,
            "sizes": plain(SIZES) if change.get("adapter") in COMPONENTS else None,
        }
        for name, change in choices.items()
    }
    return {"training": training, "choices": described}


def score_cell(
    bench: Workbench,
    predictor: str,
    inputs: Inputs,
    seeds: Sequence[int],
    uncertainty: Floats | None,
    setting: Setting = "paper",
    choice: str | None = None,
) -> list[Row]:
    """Fit the seeds and score them: one row per seed and coverage.

    ``choice`` names how to fit; None lets the validation rows choose.
    """
    kind, data, split = PREDICTORS[predictor], bench.data, bench.split
    options = fit_options(kind, bench.scale, bench.device)
    choices = choices_of(predictor, data.name if inputs.tokens else None, setting)
    if choice in choices:
        choices = {choice: choices[choice]}
    several = {name: replace(options, **change) for name, change in choices.items()}
    start = time.perf_counter()
    chosen, models = fit_best(kind, inputs, data, split, seeds, several)
    predicted = models.classes[models.predict(inputs, split.test).argmax(-1)]  # (R, n)
    seconds = time.perf_counter() - start
    unsure = np.zeros(len(split.test)) if uncertainty is None else uncertainty[split.test]
    origin = {
        "seconds": round(seconds / len(seeds), 3),
        "test_rows": len(split.test),
        "choice": chosen,
        "environment": describe_environment(options.device),
    }
    return [
        {
            "seed": seed,
            "coverage": scores.coverage,
            "accuracy": round(scores.accuracy, 6),
            "f1_macro": round(scores.f1_macro, 6),
            "f1_weighted": round(scores.f1_weighted, 6),
            **origin,
        }
        for seed, labels in zip(seeds, predicted, strict=True)
        for scores in classification_by_coverage(
            data.label[split.test], labels, unsure, coverages_of(uncertainty is not None)
        )
    ]


def fit_probe_of_figure(
    bench: Workbench, embedded: Embedded, seeds: Sequence[int]
) -> tuple[SeedModels, Inputs]:
    """The linear probe of the risk–coverage figure, on standardised embeddings."""
    kind = replace(PREDICTORS["linear_probe"], training=FIGURE_PROBE)
    inputs = Inputs(tokens=Tokens(embedded.tokens, standardise=True))
    options = fit_options(kind, Scale(), bench.device)
    return fit_on(kind, inputs, bench.data, bench.split, seeds, options), inputs


def fit_on(
    kind: PredictorKind,
    inputs: Inputs,
    data: Dataset,
    split: Split,
    seeds: Sequence[int],
    options: FitOptions,
) -> SeedModels:
    """Fit on the training rows, stop by the validation rows."""
    train, validation = (
        LabelledInputs(inputs, part, data.label[part]) for part in (split.train, split.validation)
    )
    return fit_models(kind, train, validation, np.unique(data.label), seeds, options)


def fit_best(
    kind: PredictorKind,
    inputs: Inputs,
    data: Dataset,
    split: Split,
    seeds: Sequence[int],
    choices: Mapping[str, FitOptions],
) -> tuple[str, SeedModels]:
    """Fit every choice and keep the one that is right most often on the validation rows."""
    best, kept, fewest = "", None, math.inf
    for name, options in choices.items():
        models = fit_on(kind, inputs, data, split, seeds, options)
        errors = 0.0
        if len(choices) > 1:
            said = models.predict(inputs, split.validation)  # (R, n, classes)
            errors = float(np.mean([wrong_rows(p, data, split.validation) for p in said]))
        if errors < fewest:  # the others' networks need not be kept
            best, kept, fewest = name, models, errors
    assert kept is not None
    return best, kept


def choose_score(bench: Workbench, embedded: Embedded) -> str:
    """The latent uncertainty that ranks a linear probe's errors best on the validation rows."""
    models, inputs = fit_probe_of_figure(bench, embedded, [0])
    rows = bench.split.validation
    wrong = wrong_rows(models.predict(inputs, rows)[0], bench.data, rows)
    return best_score(embedded.scores, rows, wrong)


def best_score(scores: Mapping[str, Floats], rows: NDArray[np.int64], wrong: Floats) -> str:
    """The name of the score with the least AURC; the first of several."""
    return min(scores, key=lambda name: aurc(wrong, scores[name][rows]))


def wrong_rows(
    probabilities: NDArray[np.floating[Any]], data: Dataset, rows: NDArray[np.int64]
) -> Floats:
    """1 where the likeliest class is not the true one.  # (n, classes) → (n,)"""
    classes = np.unique(data.label)
    wrong: Floats = (classes[probabilities.argmax(-1)] != data.label[rows]).astype(np.float64)
    return wrong
