"""How "ours" was found: every try judged on validation rows.

    python -m paper tries --out DIR [--datasets …]   1 to 4 minutes a try on an H200 with others

A try is a training with other settings (``our_settings.tries``). Predictors are fitted on its
embeddings with seven eighths of the training rows, stop by the last eighth, and are judged on the
validation rows; these also choose the uncertainty. Labels of test rows take no part. The try with
the highest accuracy over predictors and coverages is what "ours" is for that dataset; its training
is the one of the downstream study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from paper.cells import (
    STOPPING_SHARE,
    choose_score,
    fit_options,
    judging_split,
    predictor_settings,
    seeds_of,
)
from paper.datasets.catalogue import DATASETS
from paper.downstream import learn
from paper.predictors import FIGURE_PROBE, PREDICTORS, fit_seeds
from paper.protocol import Embedded, Say
from paper.representations import Workbench
from paper.results import Layout, ResultFile, Row, file_name, known, plain
from paper.settings import FULL, OURS, SPLIT_SEED, Pretraining, Scale, pretraining, tries
from varjepa.environment import describe_environment
from varjepa.files import make_folder, only_writer
from varjepa.metrics.ambiguity import auroc_of_ambiguous, spearman
from varjepa.metrics.selective import COVERAGES, classification_by_coverage

FILE = "tries.json"

JUDGES = ("mlp", "dcn_v2", "resnet", "xgboost")
"""the predictors that are fast"""
WITHOUT_TREES = ("mnist",)
"""whose 50,176 columns take trees too long"""


@dataclass(frozen=True, slots=True)
class TriesPlan:
    """Which tries are wanted."""

    datasets: Sequence[str] = tuple(DATASETS)
    names: Sequence[str] | None = None
    """None: all of a dataset's"""
    runs: int = 2
    scale: Scale = FULL


def judge_tries(
    folder: Path, plan: TriesPlan, device: str = "auto", say: Say = lambda line: None
) -> ResultFile:
    """Train and judge whatever try is not in the folder yet, saving after every one."""
    make_folder(folder)
    with only_writer(folder):
        found = open_tries(folder, plan.scale)
        for dataset in plan.datasets:
            bench = Workbench(folder, dataset, plan.scale, device, say)
            every = list(tries(dataset))
            for name in known("try", plan.names or every, every):
                about = {"dataset": dataset, "try": name}
                seeds = {predictor: seeds_of(predictor, plan.runs) for predictor in judges(dataset)}
                if not all(
                    found.has(**about, predictor=predictor, seed=seed)
                    for predictor, several in seeds.items()
                    for seed in several
                ):
                    rows = [{**about, **row} for row in judge(bench, name, seeds)]
                    found.add(rows)
                    say(_spoken(rows))
    return found


def open_tries(folder: Path, scale: Scale) -> ResultFile:
    """``tries.json``, refused where it holds rows of other settings."""

    def settings(row: Row) -> dict[str, Any]:
        return {
            "pretraining": plain(try_spec(row["dataset"], row["try"], scale)),
            "split_seed": SPLIT_SEED,
            "standardise": True,
            "stopping_share": STOPPING_SHARE,
            "probe": plain(FIGURE_PROBE),
            **predictor_settings(row["predictor"], row["dataset"], scale),
        }

    key = ("dataset", "try", "predictor", "seed", "coverage")
    values = ("accuracy", "uncertainty", "rows", "best_epoch", "training_seconds", "environment")
    return ResultFile(folder / FILE, Layout(key, values, settings))


def try_spec(dataset: str, name: str, scale: Scale) -> Pretraining:
    """The training of a try."""
    return pretraining(dataset, "var_t_jepa", "paper", scale, changes=tries(dataset)[name])


def judges(dataset: str) -> list[str]:
    """The predictors that a dataset's tries are judged by."""
    return [p for p in JUDGES if PREDICTORS[p].body or dataset not in WITHOUT_TREES]


def embed_try(bench: Workbench, name: str) -> Embedded:
    """The embeddings of a try; of the one that is "ours", the downstream study's."""
    if name == OURS[bench.dataset]:
        return learn(bench, "var_t_jepa", "ours", 0)
    spec = try_spec(bench.dataset, name, bench.scale)
    return bench.embedded(f"{bench.dataset}-try-{file_name(name)}", spec)


def judge(bench: Workbench, name: str, seeds: Mapping[str, Sequence[int]]) -> list[Row]:
    """Accuracies on the validation rows, by predictor, seed and coverage."""
    data, split = bench.data, bench.split
    embedded = embed_try(bench, name)
    score = choose_score(embedded, data, split, bench.device)
    unsure = embedded.scores[score][split.validation]
    truth = None if data.ambiguity is None else data.ambiguity[split.validation]
    about = {
        "uncertainty": score,
        "spearman": None if truth is None else round(spearman(unsure, truth), 6),
        "auroc": None if truth is None else round(auroc_of_ambiguous(unsure, truth), 6),
        "rows": len(split.validation),
        "best_epoch": embedded.training["best_epoch"],
        "training_seconds": embedded.training["seconds"],
    }
    inputs = bench.inputs("var_t_jepa", embedded, standardise=True)
    found: list[Row] = []
    for predictor, several in seeds.items():
        kind = PREDICTORS[predictor]
        options = fit_options(kind, bench.scale, bench.device)
        said = fit_seeds(kind, inputs, data.label, judging_split(split), several, options).labels()
        origin = {"environment": describe_environment(options.device)}
        found += [
            {
                "predictor": predictor, "seed": seed, "coverage": scores.coverage,
                "accuracy": round(scores.accuracy, 6), **about, **origin,
            }
            for seed, labels in zip(several, said, strict=True)
            for scores in classification_by_coverage(data.label[split.validation], labels, unsure)
        ]  # fmt: skip
    return found


def mean_accuracy(rows: Sequence[Row]) -> float:
    """Over predictors and coverages, each counting the same."""
    cells: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        cells.setdefault((row["predictor"], row["coverage"]), []).append(row["accuracy"])
    return mean(mean(values) for values in cells.values())


def best_tries(rows: Sequence[Row]) -> dict[str, str]:
    """Per dataset the try with the highest mean accuracy; of equals the first that was tried."""
    return {
        dataset: max(
            (name for name in tries(dataset) if rows_of(rows, dataset, name)),
            key=lambda name: mean_accuracy(rows_of(rows, dataset, name)),
        )
        for dataset in dict.fromkeys(row["dataset"] for row in rows)
    }


def rows_of(rows: Sequence[Row], dataset: str, name: str) -> list[Row]:
    """The rows of one try."""
    return [row for row in rows if (row["dataset"], row["try"]) == (dataset, name)]


def _spoken(rows: Sequence[Row]) -> str:
    first = rows[0]
    by_coverage = (
        mean_accuracy([row for row in rows if row["coverage"] == coverage])
        for coverage in COVERAGES
    )
    told = "" if first["spearman"] is None else f", Spearman {first['spearman']:.3f}"
    return (
        f"{first['dataset']}, {first['try']}: {mean_accuracy(rows):.4f} "
        f"({' '.join(f'{value:.3f}' for value in by_coverage)} by {first['uncertainty']}{told})"
    )
