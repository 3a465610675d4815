"""What a predictor is given of a dataset: raw columns, their principal components, embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from paper.cells import choose_score
from paper.datasets.loading import Dataset, load_dataset
from paper.predictors.inputs import Inputs, RawEncoder, RawFeatures, Tokens
from paper.protocol import (
    DEFAULT_SCORE,
    AnyTraining,
    Embedded,
    all_kinds,
    obtain,
    obtain_model,
    refuse_orphans,
)
from paper.settings import FULL, SPLIT_SEED, Model, Scale, Setting, paper_score, training_for
from paper.store import Log, ResultStore, Row, no_log, plain
from varjepa.estimators.base import TableEstimator
from varjepa.evaluate.splits import Split
from varjepa.tables import TableCodec

RepresentationName = Literal["raw", "pca", "t_jepa", "var_t_jepa", "raw+var_t_jepa"]
REPRESENTATIONS: tuple[RepresentationName, ...] = get_args(RepresentationName)

LEARNED: Mapping[str, Model] = {
    "t_jepa": "t_jepa",
    "var_t_jepa": "var_t_jepa",
    "raw+var_t_jepa": "var_t_jepa",
}
"""which model a representation comes from; the others are not learned"""

PCA_COMPONENTS = 64
"""as many as a token has numbers"""

TRAININGS_FILE = "representations.json"
TRAININGS_KEY = ("dataset", "model", "setting", "seed")


def is_ranked(representation: str) -> bool:
    """Whether a representation says how uncertain a row is."""
    return LEARNED.get(representation) == "var_t_jepa"


def input_settings(row: Row, scale: Scale, seed: int = 0) -> dict[str, Any]:
    """What the inputs of a row's predictor depend on."""
    model, spec = LEARNED.get(row["representation"]), None
    if model is not None:
        spec = plain(training_for(row["dataset"], model, row["setting"], scale, seed))
    return {"rows": scale.rows, "split_seed": SPLIT_SEED, "pretraining": spec}


def open_trainings(folder: Path, scale: Scale = FULL) -> ResultStore:
    """``representations.json``: what each embedding cost, and whether it has collapsed."""

    def settings(row: Row) -> Any:
        return plain(training_for(row["dataset"], row["model"], row["setting"], scale, row["seed"]))

    return ResultStore(folder / TRAININGS_FILE, TRAININGS_KEY, settings)


@dataclass
class Workbench:
    """One dataset, with the representations made of it so far."""

    folder: Path
    """results folder"""
    dataset: str
    scale: Scale
    device: str
    log: Log = no_log
    cached: dict[str, Embedded] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)

    @cached_property
    def data(self) -> Dataset:
        """Loaded when first asked for: a finished study needs no data."""
        return first_rows(load_dataset(self.dataset), self.scale.rows)

    @property
    def ambiguity(self) -> NDArray[np.float64]:
        """The true one of each row, where the dataset has it.  # (N,)"""
        assert self.data.ambiguity is not None, self.dataset
        return self.data.ambiguity

    @cached_property
    def split(self) -> Split:
        return self.data.split(SPLIT_SEED)

    @cached_property
    def raw(self) -> RawFeatures:
        """Columns in the codec's scale, which a predictor's own encoder scales again."""
        codec = TableCodec.fit(self.data.table, all_kinds(self.data.table))
        return RawFeatures.from_table(codec.encode(self.data.table))

    @cached_property
    def pca(self) -> RawFeatures:
        """Components of min–max scaled numbers and one-hot levels, of all rows as the others."""
        matrix = RawEncoder("min-max").fit(self.raw).transform(self.raw).numeric
        components = min(PCA_COMPONENTS, *matrix.shape)
        values = PCA(components, random_state=0).fit_transform(matrix)
        return RawFeatures.from_numeric(values)

    def learn(self, model: Model, setting: Setting, seed: int) -> Embedded:
        """The embeddings of a setting; their training is a row of ``representations.json``."""
        spec = training_for(self.dataset, model, setting, self.scale, seed)
        embedded = self.embedded(embedding_name(self.dataset, setting, spec), spec)
        trainings = open_trainings(self.folder, self.scale)
        about = {"dataset": self.dataset, "model": model, "setting": setting, "seed": seed}
        if not trainings.has(**about):
            facts = {k: v for k, v in embedded.training.items() if k != "stamp"}
            trainings.add([{**about, **facts}])
        return embedded

    def embedded(self, name: str, spec: AnyTraining) -> Embedded:
        """The learned representation: from memory, from the folder, or trained now."""
        if name not in self.cached:
            self.cached.clear()  # one at a time: MNIST's is a gigabyte
            self.cached[name] = obtain(self.folder, name, spec, self.data, self.device, self.log)
        return self.cached[name]

    def estimator(self, setting: Setting, seed: int) -> TableEstimator:
        """The Var-T-JEPA behind the embeddings: from its folder, or trained now."""
        spec = training_for(self.dataset, "var_t_jepa", setting, self.scale, seed)
        name = embedding_name(self.dataset, setting, spec)
        refuse_orphans(self.folder, name)
        return obtain_model(self.folder, name, spec, self.data, self.device, self.log)[0]

    def score_name(self, setting: Setting, seed: int) -> str:
        """The paper's uncertainty of a row, the default one, or what the validation rows prefer."""
        if setting == "paper":
            return paper_score(self.dataset)
        if setting == "default":
            return DEFAULT_SCORE
        spec = training_for(self.dataset, "var_t_jepa", setting, self.scale, seed)
        name = embedding_name(self.dataset, setting, spec)
        if name not in self.chosen:
            embedded = self.embedded(name, spec)
            self.chosen[name] = choose_score(self, embedded)
        return self.chosen[name]

    def inputs(self, representation: str, embedded: Embedded | None, standardise: bool) -> Inputs:
        if representation == "pca":
            return Inputs(raw=self.pca)
        tokens = None if embedded is None else Tokens(embedded.tokens, standardise)
        raw = self.raw if representation.startswith("raw") else None
        return Inputs(raw=raw, tokens=tokens)


def embedding_name(dataset: str, setting: str, spec: AnyTraining) -> str:
    return f"{dataset}-{spec.model}-{setting}-{spec.seed}"


def first_rows(data: Dataset, rows: int | None) -> Dataset:
    """A smaller dataset; rows come in random order."""
    if rows is None or rows >= data.table.num_rows:
        return data
    ambiguity = None if data.ambiguity is None else data.ambiguity[:rows]
    return replace(
        data, table=data.table.slice(0, rows), label=data.label[:rows], ambiguity=ambiguity
    )
