"""The downstream tables: predictors on raw features and on embeddings (Section 4.2, Appendix B.1).

    python -m paper downstream --out DIR [--datasets …] [--representations …] [--predictors …]

Seven datasets, six predictors; one split and one embedding each, as in the paper; five seeds of a
predictor. Whole rows of all datasets make an embedding, labels of test rows select nothing
(``transductive``). ``setting`` "paper" is the paper's row of hyperparameters with its uncertainty;
"ours" is kept apart from it (``our_settings``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from paper.cells import choices_of, coverages_of, predictor_settings, score_cell, seeds_of
from paper.datasets.catalogue import DATASETS
from paper.protocol import Embedded, Say
from paper.published import PAPER_PREDICTORS
from paper.representations import LEARNED, REPRESENTATIONS, Workbench
from paper.results import Layout, ResultFile, Row, plain
from paper.settings import (
    FULL,
    SPLIT_SEED,
    Model,
    Pretraining,
    Scale,
    Setting,
    paper_score,
    pretraining,
)
from varjepa.estimators.base import TableEstimator
from varjepa.files import make_folder, only_writer

FILE = "downstream.json"
TRAININGS_FILE = "representations.json"


@dataclass(frozen=True, slots=True)
class Cell:
    """A place in the tables; its rows are one per seed and coverage."""

    dataset: str
    representation: str
    predictor: str
    setting: Setting
    embedding_seed: int


@dataclass(frozen=True, slots=True)
class DownstreamPlan:
    """Which cells are wanted."""

    datasets: Sequence[str] = tuple(DATASETS)
    representations: Sequence[str] = REPRESENTATIONS
    predictors: Sequence[str] = PAPER_PREDICTORS
    settings: Sequence[Setting] = ("paper",)
    runs: int = 5
    """seeds of a neural predictor"""
    embeddings: int = 1
    """trainings of each learned representation, from different seeds"""
    scale: Scale = FULL

    def cells(self, dataset: str) -> list[Cell]:
        """Embeddings in the outer loop, so that each is loaded once."""
        found: list[Cell] = []
        for setting in self.settings:
            for name in self.representations:
                seeds = range(self.embeddings if name in LEARNED else 1)
                found += [
                    Cell(dataset, name, p, setting, s)
                    for s in seeds
                    for p in self.predictors
                    if name in LEARNED or has_setting(p, setting)
                ]
        return found


def has_setting(predictor: str, setting: Setting) -> bool:
    """Whether a setting is about raw columns too: else their rows would be made twice."""
    return setting == "paper" or len(choices_of(predictor, None, setting)) > 1


def reproduce_downstream(
    folder: Path, plan: DownstreamPlan, device: str = "auto", say: Say = lambda line: None
) -> ResultFile:
    """Compute whatever cell is not in the folder yet, saving after every one."""
    make_folder(folder)
    with only_writer(folder):
        found = open_downstream(folder, plan.scale)
        for dataset in plan.datasets:
            bench = Workbench(folder, dataset, plan.scale, device, say)
            for cell in plan.cells(dataset):
                missing = missing_seeds(found, cell, plan.runs)
                if missing:
                    rows = run_cell(bench, cell, missing, choice_made(found, cell))
                    found.add(rows)
                    say(_spoken(rows))
    return found


def open_downstream(folder: Path, scale: Scale) -> ResultFile:
    """``downstream.json``, refused where it holds rows of other settings."""

    def settings(row: Row) -> dict[str, Any]:
        model = LEARNED.get(row["representation"])
        spec = None
        if model is not None:
            spec = plain(
                pretraining(row["dataset"], model, row["setting"], scale, row["embedding_seed"])
            )
        return {
            "rows": scale.rows,
            "split_seed": SPLIT_SEED,
            "standardise": row["setting"] == "ours",
            "pretraining": spec,
            **predictor_settings(
                row["predictor"], row["dataset"] if model else None, scale, row["setting"]
            ),
        }

    key = ("dataset", "representation", "predictor", "setting", "embedding_seed", "seed")
    values = ("accuracy", "f1_macro", "f1_weighted", "uncertainty", "test_rows", "seconds")
    return ResultFile(folder / FILE, Layout((*key, "coverage"), (*values, "environment"), settings))


def open_trainings(folder: Path, scale: Scale) -> ResultFile:
    """``representations.json``: what each embedding cost, and whether it has collapsed."""

    def settings(row: Row) -> Any:
        return plain(pretraining(row["dataset"], row["model"], row["setting"], scale, row["seed"]))

    values = ("seconds", "epochs", "best_epoch", "effective_rank", "environment")
    return ResultFile(
        folder / TRAININGS_FILE, Layout(("dataset", "model", "setting", "seed"), values, settings)
    )


def missing_seeds(found: ResultFile, cell: Cell, runs: int) -> list[int]:
    """Seeds of a cell that lack a row of some coverage."""
    there = {found.layout.key_of(row) for row in found.rows}
    coverages = coverages_of(is_ranked(cell.representation))
    return [
        seed
        for seed in seeds_of(cell.predictor, runs)
        if any((*astuple(cell), seed, coverage) not in there for coverage in coverages)
    ]


def is_ranked(representation: str) -> bool:
    """Whether a representation says how uncertain a row is."""
    return LEARNED.get(representation) == "var_t_jepa"


def choice_made(found: ResultFile, cell: Cell) -> str | None:
    """How the seeds that a cell has were fitted: those that it lacks are fitted alike."""
    mine = asdict(cell)
    rows = [row for row in found.rows if all(row[name] == mine[name] for name in mine)]
    return rows[0].get("choice") if rows else None


def run_cell(
    bench: Workbench, cell: Cell, seeds: Sequence[int], choice: str | None = None
) -> list[Row]:
    """Fit the seeds of one cell, first making the representation where it is not there."""
    embedded, score, uncertainty = None, None, None
    if cell.representation in LEARNED:
        model = LEARNED[cell.representation]
        embedded = learn(bench, model, cell.setting, cell.embedding_seed)
        if is_ranked(cell.representation):
            score = score_name(bench, cell.setting, cell.embedding_seed)
            uncertainty = embedded.scores[score]
    inputs = bench.inputs(cell.representation, embedded, standardise=cell.setting == "ours")
    scored = score_cell(
        cell.predictor,
        inputs,
        bench.data,
        bench.split,
        seeds,
        uncertainty,
        bench.scale,
        bench.device,
        cell.setting,
        choice,
    )
    return [{**asdict(cell), "uncertainty": score, **row} for row in scored]


def learn(bench: Workbench, model: Model, setting: Setting, seed: int) -> Embedded:
    """The embeddings of a setting; their training is a row of ``representations.json``."""
    spec = pretraining(bench.dataset, model, setting, bench.scale, seed)
    embedded = bench.embedded(embedding_name(bench.dataset, setting, spec), spec)
    trainings = open_trainings(bench.folder, bench.scale)
    about = {"dataset": bench.dataset, "model": model, "setting": setting, "seed": seed}
    if not trainings.has(**about):
        trainings.add([{**about, **{k: v for k, v in embedded.training.items() if k != "stamp"}}])
    return embedded


def obtain_estimator(bench: Workbench, model: Model, setting: Setting, seed: int) -> TableEstimator:
    """The model behind the embeddings of a setting."""
    spec = pretraining(bench.dataset, model, setting, bench.scale, seed)
    return bench.estimator(embedding_name(bench.dataset, setting, spec), spec)


def embedding_name(dataset: str, setting: str, spec: Pretraining) -> str:
    """Of its files."""
    return f"{dataset}-{spec.model}-{setting}-{spec.seed}"


def score_name(bench: Workbench, setting: Setting, seed: int) -> str:
    """The paper's uncertainty of a row, or the one that the validation rows prefer."""
    if setting == "paper":
        return paper_score(bench.dataset)
    spec = pretraining(bench.dataset, "var_t_jepa", setting, bench.scale, seed)
    return bench.chosen_score(embedding_name(bench.dataset, setting, spec), spec)


def _spoken(rows: Sequence[Row]) -> str:
    first = rows[0]
    means = []
    for coverage in dict.fromkeys(row["coverage"] for row in rows):
        here = [row["accuracy"] for row in rows if row["coverage"] == coverage]
        means.append(f"{sum(here) / len(here):.3f}")
    return (
        f"{first['dataset']}, {first['representation']}, {first['predictor']}, "
        f"{first['setting']}: {' '.join(means)}"
    )
