"""Batches of rows in, their embeddings out: what an engine carries to the processes that compute.

The object itself is a few settings, so it can be pickled and sent anywhere the model folder can be
read. The model is opened where it is first needed, once per process, however many copies arrive.
"""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from varjepa.errors import InputError
from varjepa.estimators.frames import like_input
from varjepa.estimators.var_t_jepa import DEFAULT_KIND, VarTJEPA
from varjepa.model_folder import ModelFileError
from varjepa.models.inference import SPLITS, Aggregate, LatentKind, Question, embed_rows
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.nn.row_threads import block_size
from varjepa.settings import pick_device
from varjepa.tables import read_table
from varjepa.tables.codec import EncodedTable
from varjepa.tables.messages import TableWarnings, collect_warnings, listed, suggestion
from varjepa.tables.values import undictionary, value_type

UNCERTAINTY = "uncertainty"


@dataclass(frozen=True, slots=True)
class Embedder:
    """Embeds batches: posterior means of every feature, then the row's uncertainty.

    ``embedder(batch)`` takes an Arrow RecordBatch or Table, a pandas or polars frame, or a dict of
    numpy arrays, and gives back one of the same kind, a row for a row, in order. A row's result
    does not depend on the batch it comes in. Use it where an engine maps functions over batches:
    Ray's ``map_batches``, Dask's ``map_partitions``, Spark's ``mapInPandas``.
    """

    model_folder: str
    """A folder that ``varjepa fit`` or ``VarTJEPA.save`` wrote."""

    per_column: bool = False
    """Whether to give one uncertainty per column as well."""

    keep: tuple[str, ...] = ()
    """Columns of the batch to put first in the result, as they are: an id to join back by."""

    device: str = "auto"
    """auto, cpu or cuda."""

    uncertainty: LatentKind | Question = DEFAULT_KIND
    """Which one; "posterior", the paper's, needs no pass but that of the embedding."""

    aggregate: Aggregate | None = None
    """Over a row's values, as in ``VarTJEPA.uncertainty``; None: the kind's usual one."""

    manifest: str | None = None
    """SHA-256 of the model's manifest, where only that very model will do; see :meth:`pinned`."""

    def __call__(self, batch: Any) -> Any:
        """The embeddings of a batch, as the same kind of object.

        Odd values are warned of once per process and column, not once per batch.
        """
        table = read_table(batch)
        with collect_warnings() as odd:
            embeddings = self.embed(table)
        self._opened().new(odd).warn(stacklevel=2)
        if isinstance(batch, Mapping):
            return {name: embeddings[name].to_numpy() for name in embeddings.column_names}
        if isinstance(batch, pa.RecordBatch):
            return pa.RecordBatch.from_struct_array(embeddings.to_struct_array().combine_chunks())
        return like_input(embeddings, batch)

    def embed(self, table: pa.Table) -> pa.Table:
        """The embeddings of a table that :func:`read_table` gave."""
        schema = self.schema(table.schema)
        if not table.num_rows:
            return schema.empty_table()
        opened = self._opened()
        rows = table.select(self.needed(table.column_names))
        TableWarnings(extra=self.extra(table.column_names)).warn(stacklevel=2)
        with opened.lock, warnings.catch_warnings():
            if opened.by_position:  # the user knows: that is how the model was fitted
                warnings.filterwarnings("ignore", "X has feature names", UserWarning)
            flat, per_row, cells = embed_with_uncertainty(
                opened.estimator, rows, self.uncertainty, self.aggregate
            )
        columns = [*np.ascontiguousarray(flat.T), per_row]  # one copy, not many
        if self.per_column:
            columns += [*np.ascontiguousarray(cells.T)]
        kept = [undictionary(table[name]) for name in self.keep]
        return pa.table([*kept, *map(pa.array, columns)], schema=schema)

    def needed(self, names: Sequence[str]) -> list[str]:
        """Which of a table's columns the model reads; a missing one is an error."""
        model = self._opened()
        if model.by_position:
            return [name for name in names if name not in self.keep]
        schema, given = model.estimator.codec_.schema, set(names)
        absent = [column.name for column in schema.modelled if column.name not in given]
        if absent:
            others = [name for name in names if name not in schema.names]
            close = suggestion(absent[0], others) if len(absent) == 1 else ""
            raise InputError(f"the table has no column {listed(absent)}{close}")
        return [name for name in schema.names if name in given]

    def extra(self, names: Sequence[str]) -> list[str]:
        """Which of a table's columns are neither read nor kept."""
        known = {*self.needed(names), *self.keep}
        return [name for name in names if name not in known]

    def schema(self, table: pa.Schema) -> pa.Schema:
        """Names and types of the result for a table of this schema."""
        absent = [name for name in self.keep if name not in table.names]
        if absent:
            close = suggestion(absent[0], table.names) if len(absent) == 1 else ""
            raise InputError(f"the table has no column {listed(absent)} to keep{close}")
        names = self._names()
        twice = [name for name in self.keep if name in set(names)]
        if twice:
            raise InputError(f"the embedding has a column {listed(twice)} of its own")
        kept = [pa.field(name, value_type(table.field(name).type)) for name in self.keep]
        return pa.schema([*kept, *(pa.field(name, pa.float32()) for name in names)])

    def check(self, table: pa.Schema) -> None:
        """Refuse columns that are missing or cannot be read, before there are any rows."""
        self.schema(table)
        opened = self._opened()
        columns = table.empty_table().select(self.needed(table.names))
        if opened.by_position:
            columns = columns.rename_columns([f"x{j}" for j in range(columns.num_columns)])
        opened.estimator.codec_.encode(columns)

    def open(self) -> None:
        """Open the model now, to hear early what is wrong with it."""
        pick_device(self.device)
        self._opened()

    def pinned(self) -> Embedder:
        """The same, refusing any model but the one that is in the folder now."""
        return replace(self, manifest=manifest_sha256(self.model_folder))

    def row_bytes(self) -> int:
        """Bytes of one row's embedding."""
        return 4 * len(self._names())

    def block_rows(self) -> int:
        """Rows that the model computes at once; batches of other sizes fill up the last block."""
        features = len(self._opened().estimator.codec_.features)
        return block_size(features, pick_device(self.device))

    def _names(self) -> list[str]:
        estimator = self._opened().estimator
        d, features = estimator.model_.settings.d, estimator.codec_.features
        names = [f"{feature.name}_{i}" for feature in features for i in range(d)]
        columns = estimator.codec_.schema.names if self.per_column else []
        return [*names, UNCERTAINTY, *(f"{UNCERTAINTY}:{name}" for name in columns)]

    def _opened(self) -> _Opened:
        with _opening:
            return _open_model(self.model_folder, self.device, self.manifest)


def embed_with_uncertainty(
    estimator: VarTJEPA, X: Any, kind: LatentKind | Question, aggregate: Aggregate | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Embeddings and uncertainties in one pass over the rows.

    Shape: means ``(n, features · d)``, one uncertainty per row ``(n,)`` and one per column of the
    table ``(n, columns)``, NaN where there is one per row only.
    """
    scorer, over = estimator._scorer(kind, SPLITS), estimator._aggregate(kind, aggregate)

    def both(model: VarTJepa, rows: EncodedTable) -> Tensor:
        q = embed_rows(model, rows)
        scores = scorer(model, rows, q)
        cells = scores.per_column() if kind != "ambiguous" else q.mean[..., 0] * torch.nan
        return torch.cat([q.mean.flatten(1), scores.per_row(over).unsqueeze(1), cells], dim=1)

    width = len(estimator.codec_.features) * estimator.model_.settings.d
    together = estimator._compute(estimator.encode(X), both)
    flat, per_row, per_feature = np.split(together, [width, width + 1], axis=1)
    per_column = estimator.by_column(per_feature, estimator.codec_.schema.names)
    return flat, per_row[:, 0], np.column_stack(list(per_column.values()))


def manifest_sha256(model_folder: str | Path) -> str:
    """What tells a model from every other: its manifest has the sums of its files."""
    path = Path(model_folder) / "manifest.json"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from error


@dataclass(slots=True)
class _Opened:
    """A model in this process."""

    estimator: VarTJEPA

    lock: threading.Lock = field(default_factory=threading.Lock)
    """On a GPU, one thread at a time: a pass brings the networks there and back."""

    said: TableWarnings = field(default_factory=TableWarnings)
    """What this process has warned of."""

    @property
    def by_position(self) -> bool:
        """Whether the model was fitted on an array, whose columns have no names."""
        return not hasattr(self.estimator, "feature_names_in_")

    def new(self, collected: TableWarnings) -> TableWarnings:
        """The warnings about columns that were not named before."""
        said = self.said
        fresh = TableWarnings(
            {name: n for name, n in collected.infinite.items() if name not in said.infinite},
            {name: n for name, n in collected.unseen.items() if name not in said.unseen},
            [name for name in collected.extra if name not in said.extra],
        )
        said.add(fresh)
        return fresh


_opening = threading.Lock()


@lru_cache(maxsize=2)
def _open_model(model_folder: str, device: str, manifest: str | None) -> _Opened:
    if manifest is not None and manifest_sha256(model_folder) != manifest:
        raise ModelFileError(f"{model_folder} holds another model than before")
    return _Opened(VarTJEPA.load(model_folder).set_params(device=device))
