"""What a predictor is given of a dataset: raw columns, their principal components, embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from paper.cells import choose_score
from paper.datasets.loading import Dataset, load_dataset
from paper.predictors import Inputs, RawFeatures, Tokens
from paper.predictors.inputs import RawEncoder
from paper.protocol import Embedded, Say, obtain, obtain_model, refuse_orphans
from paper.settings import SPLIT_SEED, Model, Pretraining, Scale
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

UNLEARNED = tuple(name for name in REPRESENTATIONS if name not in LEARNED)

PCA_COMPONENTS = 64
"""as many as a token has numbers"""


@dataclass(slots=True)
class Workbench:
    """One dataset, with the representations made of it so far."""

    folder: Path
    """results folder"""
    dataset: str
    scale: Scale
    device: str
    say: Say = lambda line: None
    _data: Dataset | None = None
    _raw: RawFeatures | None = None
    _pca: RawFeatures | None = None
    _embedded: dict[str, Embedded] = field(default_factory=dict)
    _chosen: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Dataset:
        """Loaded when first asked for: a finished study needs no data."""
        if self._data is None:
            self._data = first_rows(load_dataset(self.dataset), self.scale.rows)
        return self._data

    @property
    def ambiguity(self) -> NDArray[np.float64]:
        """The true one of each row, where the dataset has it.  # (N,)"""
        assert self.data.ambiguity is not None, self.dataset
        return self.data.ambiguity

    @property
    def split(self) -> Split:
        return self.data.split(SPLIT_SEED)

    @property
    def raw(self) -> RawFeatures:
        """Columns in the codec's scale, which a predictor's own encoder scales again."""
        if self._raw is None:
            codec = TableCodec.fit(self.data.table)
            self._raw = RawFeatures.from_table(codec.encode(self.data.table))
        return self._raw

    @property
    def pca(self) -> RawFeatures:
        """Components of min–max scaled numbers and one-hot levels, of all rows as the others."""
        if self._pca is None:
            encoder = RawEncoder("one-hot", "minmax").fit(self.raw)
            matrix = encoder.transform(self.raw).numeric
            components = min(PCA_COMPONENTS, *matrix.shape)
            values = PCA(components, random_state=0).fit_transform(matrix)
            self._pca = RawFeatures.from_numeric(values)
        return self._pca

    def embedded(self, name: str, spec: Pretraining) -> Embedded:
        """The learned representation: from memory, from the folder, or trained now."""
        if name not in self._embedded:
            self._embedded = {}  # one at a time: MNIST's is a gigabyte
            self._embedded[name] = obtain(self.folder, name, spec, self.data, self.device, self.say)
        return self._embedded[name]

    def estimator(self, name: str, spec: Pretraining) -> TableEstimator:
        """The model behind it: kept with its embeddings, or trained now if neither is there."""
        refuse_orphans(self.folder, name)
        return obtain_model(self.folder, name, spec, self.data, self.device, self.say)[0]

    def chosen_score(self, name: str, spec: Pretraining) -> str:
        """The uncertainty that the validation rows prefer."""
        if name not in self._chosen:
            embedded = self.embedded(name, spec)
            self._chosen[name] = choose_score(embedded, self.data, self.split, self.device)
        return self._chosen[name]

    def inputs(self, representation: str, embedded: Embedded | None, standardise: bool) -> Inputs:
        """What a predictor is fitted on."""
        tokens = None if embedded is None else Tokens(embedded.tokens, standardise)
        if representation == "pca":
            return Inputs(raw=self.pca)
        raw = self.raw if representation.startswith("raw") else None
        return Inputs(raw=raw, tokens=tokens)


def first_rows(data: Dataset, rows: int | None) -> Dataset:
    """A smaller dataset; rows come in random order."""
    if rows is None or rows >= data.table.num_rows:
        return data
    ambiguity = None if data.ambiguity is None else data.ambiguity[:rows]
    return replace(
        data, table=data.table.slice(0, rows), label=data.label[:rows], ambiguity=ambiguity
    )
