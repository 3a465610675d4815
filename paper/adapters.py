"""How embeddings should enter each predictor: a choice made on validation rows, once.

    python -m paper adapters --out DIR [--datasets …]      about two minutes a dataset on one H200

The paper says "flattened" for the neural predictors and "no flattening" for XGBoost, which leaves
both open. A predictor is fitted with every adapter it takes on seven eighths of the training rows,
stops by the last eighth, and is judged on the validation rows; the test rows take no part. The
adapter with the highest accuracy over the datasets of ``paper/results/adapters.json`` (older than
``column``, ``components`` and ``principal``) is ``downstream.DEFAULT_ADAPTER``; a test holds the
two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from paper.cells import fit_options, judging_split, predictor_settings, seeds_of
from paper.downstream import learn
from paper.predictors import ADAPTERS, PREDICTORS, fit_seeds
from paper.protocol import Say
from paper.representations import Workbench
from paper.results import Layout, ResultFile, Row, plain
from paper.settings import FULL, SPLIT_SEED, Scale, Setting, pretraining
from varjepa.environment import describe_environment
from varjepa.files import make_folder, only_writer

FILE = "adapters.json"
DATASETS = ("adult", "credit_default", "electricity", "covertype", "sim")
"""small enough for every adapter: MNIST's flattened embeddings have 50,176 columns"""
SETTING: Setting = "ours"


@dataclass(frozen=True, slots=True)
class AdapterPlan:
    """Which cells are wanted."""

    datasets: Sequence[str] = DATASETS
    predictors: Sequence[str] = tuple(ADAPTERS)
    runs: int = 3
    scale: Scale = FULL


def compare_adapters(
    folder: Path, plan: AdapterPlan, device: str = "auto", say: Say = lambda line: None
) -> ResultFile:
    """Compute whatever cell is not in the folder yet, saving after every one."""
    make_folder(folder)
    with only_writer(folder):
        found = open_adapters(folder, plan.scale)
        for dataset in plan.datasets:
            bench = Workbench(folder, dataset, plan.scale, device, say)
            for predictor in plan.predictors:
                for adapter in ADAPTERS[predictor]:
                    about = {"dataset": dataset, "predictor": predictor, "adapter": adapter}
                    missing = [
                        seed
                        for seed in seeds_of(predictor, plan.runs)
                        if not found.has(**about, seed=seed)
                    ]
                    if missing:
                        rows = judge_adapter(bench, predictor, adapter, missing)
                        found.add([{**about, **row} for row in rows])
                        accuracy = mean(row["accuracy"] for row in rows)
                        say(f"{dataset}, {predictor}, {adapter}: {accuracy:.4f}")
    return found


def open_adapters(folder: Path, scale: Scale) -> ResultFile:
    """``adapters.json``, refused where it holds rows of other settings."""

    def settings(row: Row) -> Row:
        spec = pretraining(row["dataset"], "var_t_jepa", SETTING, scale)
        training = predictor_settings(row["predictor"], None, scale)["training"]
        return {"pretraining": plain(spec), "training": training, "split_seed": SPLIT_SEED}

    key = ("dataset", "predictor", "adapter", "seed")
    return ResultFile(
        folder / FILE, Layout(key, ("accuracy", "rows", "seconds", "environment"), settings)
    )


def judge_adapter(
    bench: Workbench, predictor: str, adapter: str, seeds: Sequence[int]
) -> list[Row]:
    """Accuracy on the validation rows, a row per seed."""
    embedded = learn(bench, "var_t_jepa", SETTING, 0)
    kind, split = PREDICTORS[predictor], bench.split
    options = replace(fit_options(kind, bench.scale, bench.device), adapter=adapter)
    inputs = bench.inputs("var_t_jepa", embedded, standardise=True)
    found = fit_seeds(kind, inputs, bench.data.label, judging_split(split), seeds, options)
    correct = found.labels() == bench.data.label[split.validation]  # (R, n)
    return [
        {
            "seed": seed,
            "accuracy": round(float(share), 6),
            "rows": len(split.validation),
            "seconds": round(found.seconds / len(seeds), 3),
            "environment": describe_environment(options.device),
        }
        for seed, share in zip(seeds, correct.mean(1), strict=True)
    ]


def best_adapters(rows: Sequence[Row]) -> dict[str, str]:
    """Per predictor the adapter that is furthest above the others, every dataset counting the same.

    Advantages over a dataset's mean adapter are averaged, not accuracies: a cell that is missing
    would otherwise make its dataset count for the others alone.
    """
    cells: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        by_dataset = cells.setdefault(row["predictor"], {}).setdefault(row["dataset"], {})
        by_dataset.setdefault(row["adapter"], []).append(row["accuracy"])
    best: dict[str, str] = {}
    for predictor, datasets in cells.items():
        advantages: dict[str, list[float]] = {}
        for accuracies in datasets.values():
            means = {adapter: mean(values) for adapter, values in accuracies.items()}
            for adapter, accuracy in means.items():
                advantages.setdefault(adapter, []).append(accuracy - mean(means.values()))
        best[predictor] = max(advantages, key=lambda adapter: mean(advantages[adapter]))
    return best
