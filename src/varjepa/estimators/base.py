"""What every estimator on tables shares: tables in, training, arrays out, model folders.

A subclass says which model it is about: its constructor's parameters, the networks, the objective.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted
from torch import Tensor, nn

from varjepa.environment import compare_arithmetic
from varjepa.errors import InputError
from varjepa.estimators.fitting import (
    fit_codec,
    hand_back_memory,
    is_streamed,
    read_encoded,
    read_labels,
    streamed_task,
    table_files,
    task_in_memory,
)
from varjepa.estimators.frames import refuse_too_little, to_arrow
from varjepa.estimators.persistence import from_saved, to_saved
from varjepa.estimators.resuming import claim, open_checkpoints
from varjepa.estimators.settings import (
    Output,
    check_parameters,
    constraints_of,
    pick_device,
    table_shape,
    training_settings,
)
from varjepa.model_folder import open_model, save_model
from varjepa.models.table_rows import TableShape, map_blocks
from varjepa.randomness import seeded_weights
from varjepa.tables import EncodedTable, Scaling, TableCodec
from varjepa.tables import Kind as ColumnKind
from varjepa.tables.many_files import TableFiles
from varjepa.training.checkpoints import Checkpoint, Checkpoints
from varjepa.training.collapse_alarm import CollapseReport
from varjepa.training.loop import train
from varjepa.training.losses import Loss
from varjepa.training.processes import current_team
from varjepa.training.progress import listening, reading_bar
from varjepa.training.row_source import RowSource
from varjepa.training.selection import Selection
from varjepa.training.settings import Precision, TrainingSettings
from varjepa.training.state import Record


class TableEstimator(TransformerMixin, BaseEstimator):
    """A model that is learned from unlabelled rows of a table and turns rows into vectors.

    The constructor only stores; everything learned ends in ``_``.
    """

    # parameters that the constructor of every subclass has
    d: int
    n_cls: int
    context_share: tuple[float, float]
    target_share: tuple[float, float]
    targets: int
    epochs: int | Literal["auto"]
    max_steps: int | None
    batch_size: int | Literal["auto"]
    learning_rate: float
    warm_up_share: float
    weight_decay: float
    check_every: int
    patience: int
    validation_share: float
    column_kinds: Mapping[str, ColumnKind] | None
    scaling: Scaling
    max_levels: int
    output: Output
    device: str
    precision: Precision
    capture: bool
    log_dir: str | None
    tensorboard: bool
    checkpoint_dir: str | None
    checkpoint_every: float
    resume: bool
    verbose: int
    random_state: Any

    # what fit learns
    codec_: TableCodec
    model_: nn.Module
    seed_: int
    history_: list[Record]
    best_epoch_: int
    selected_by_: str
    collapse_: CollapseReport
    frame_: str
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    _discard: ClassVar[float]
    """share of the most uncertain validation rows that picking a checkpoint leaves out"""
    _remedy: ClassVar[str]
    """what to do about a collapse"""

    # --- what a subclass fills in

    def _build(self, shape: TableShape) -> nn.Module:
        """The networks, untrained."""
        raise NotImplementedError

    def _objective(self, model: Any) -> Loss:
        """The model with its loss."""
        raise NotImplementedError

    def _tokens(self, model: Any, rows: EncodedTable) -> Tensor:
        """What :meth:`transform` is made of: a vector per feature.  # (B, D, d)"""
        raise NotImplementedError

    def _cls(self, model: Any, rows: EncodedTable) -> Tensor:
        """The CLS tokens of whole rows.  # (B, N_CLS, d)"""
        raise NotImplementedError

    def _training_settings(self, rows: int) -> TrainingSettings:
        """Optimisation, with what is "auto" decided by the number of rows to train on."""
        return training_settings(self, rows)

    # --- learning

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Learn from unlabelled rows; class labels y, where given, only pick the checkpoint.

        Labels may be missing (None, NaN) for some rows, which are then learned from all the same.
        Inside :func:`varjepa.training.processes.together` all processes train one model.
        """
        before = dict(self.__dict__)
        try:
            self._fit(X, y)
        except BaseException:  # a fit that failed leaves the estimator as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _fit(self, X: Any, y: ArrayLike | None) -> None:
        team = current_team()
        with team.sharing_errors():
            files, rows = table_files(X), None
            if files is None:
                codec, rows = self._begin(X)
            else:
                if self.verbose and team.leads:
                    files = replace(files, watch=reading_bar)
                codec, rows, y = self._begin_files(files, y)
        self.seed_ = int(team.leaders_number(self.seed_))
        with open_checkpoints(self, team) as (checkpoints, past):
            is_asked = checkpoints is not None or team.size > 1
            if rows is not None:
                task = task_in_memory(self, codec, rows, y, team, with_identity=is_asked)
                rows = None  # the task has those it needs
            else:
                assert files is not None
                task = streamed_task(self, codec, files, y, team)
            if files is not None:
                hand_back_memory()
            if is_asked:
                assert task.identity is not None
                team.refuse_different(json.dumps(task.identity).encode())
                claim(checkpoints, past, task.identity)
            log_dir = Path(self.log_dir) if self.log_dir is not None and team.leads else None
            bar = bool(self.verbose) and team.leads
            with listening(bar, log_dir, self.tensorboard) as listeners:
                self._train(
                    codec, task.source, task.settings, task.selection,
                    listeners.on_epoch, listeners.on_step, checkpoints, past,
                )  # fmt: skip

    def _begin(self, X: Any) -> tuple[TableCodec, EncodedTable]:
        """The table as tensors, with a codec fitted to it; this fit's seed."""
        check_parameters(self)
        table = to_arrow(self, X, reset=True)
        codec = TableCodec.fit(
            table, self.column_kinds, scaling=self.scaling, max_levels=self.max_levels
        )
        refuse_too_little(codec, table.num_rows)
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        return codec, self._rows(codec.encode(table))

    def _begin_files(
        self, files: TableFiles, y: ArrayLike | None
    ) -> tuple[TableCodec, EncodedTable | None, ArrayLike | None]:
        """The same of a table in files, and its labels; rows None: too many to hold."""
        check_parameters(self)
        if y is not None and files.labels is not None:
            raise InputError("the labels are either y or a column of the files, not both")
        self.frame_ = "pyarrow"
        self.n_features_in_ = len(files.schema)
        self.feature_names_in_ = np.array(files.schema.names, dtype=object)
        codec = fit_codec(files, self.column_kinds, self.scaling, self.max_levels)
        refuse_too_little(codec, files.rows)
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        if is_streamed(files):
            return codec, None, y
        return codec, self._rows(read_encoded(files, codec)), read_labels(files) if y is None else y

    def _train(
        self,
        codec: TableCodec,
        source: RowSource,
        settings: TrainingSettings,
        selection: Selection,
        on_epoch: Callable[[Record], None] = lambda record: None,
        on_step: Callable[[int, int], None] = lambda step, total: None,
        checkpoints: Checkpoints | None = None,
        past: Checkpoint | None = None,
    ) -> None:
        """Train on rows of this source, and keep what was learned."""
        with seeded_weights(self.seed_):
            model = self._build(table_shape(codec)).to(source.rows.num.device)
        result = train(
            self._objective(model),
            source,
            settings,
            selection,
            self.seed_,
            on_epoch,
            on_step,
            checkpoints=checkpoints,
            past=past,
            team=current_team(),
        )
        self.codec_, self.model_ = codec, model.cpu()
        self.history_ = result.history
        self.best_epoch_ = result.best_epoch
        self.selected_by_ = selection.name
        self.collapse_ = result.collapse
        if result.collapse.collapsed:
            warnings.warn(
                f"the latents have collapsed: {result.collapse.active_units:.1f} of {self.d} "
                f"dimensions per column vary across rows; {self._remedy}",
                stacklevel=4,
            )

    # --- reading

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Embeddings as a 2-D array; ``output`` says which."""
        tokens = self._blockwise(X, self._cls if self.output == "cls" else self._tokens)
        return tokens.mean(1) if self.output == "mean" else tokens.reshape(len(tokens), -1)

    # --- keeping

    def save(self, folder: str | Path) -> None:
        """Write a model folder: config.json, codec.json, model.safetensors, manifest.json."""
        check_is_fitted(self)
        save_model(Path(folder), to_saved(self))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model folder back; embeddings are the same to the last bit.

        Where torch, system or processor are others, the last bits may differ, with a warning.
        """
        with open_model(Path(folder)) as saved:
            estimator = from_saved(cls, saved, Path(folder))
        other = compare_arithmetic(saved.environment)
        if other is not None:
            warnings.warn(
                f"{folder} was saved with {other}: its results may differ in the last bits",
                stacklevel=2,
            )
        return estimator

    # --- scikit-learn

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns of :meth:`transform`; ``input_features`` names those of an array."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        called = dict(zip(self.codec_.schema.names, names, strict=True))
        heads = {
            "flat": [f.name.replace(f.column, called[f.column], 1) for f in self.codec_.features],
            "mean": [type(self).__name__.lower()],
            "cls": [f"cls{i}" for i in range(self.n_cls)],
        }[self.output]
        return np.array([f"{head}_{i}" for head in heads for i in range(self.d)], dtype=object)

    @property
    def _parameter_constraints(self) -> dict[str, list[Any]]:
        return constraints_of(type(self))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []
        tags.non_deterministic = False
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    # --- inside

    def _rows(self, encoded: EncodedTable) -> EncodedTable:
        return encoded.to(pick_device(self.device))

    def _blockwise(self, X: Any, compute: Callable[[Any, EncodedTable], Tensor]) -> NDArray[Any]:
        """Compute something for every row in blocks of one size; the result as one array."""
        check_is_fitted(self)
        rows = self._rows(self.codec_.encode(to_arrow(self, X, reset=False)))
        if not len(rows):
            raise InputError("the table has no rows")
        model = self.model_.to(rows.num.device)

        @torch.no_grad()  # of the thread that computes the block
        def one(block: EncodedTable) -> Tensor:
            return compute(model, block).cpu()

        parts = [part[:count] for part, count in map_blocks(one, rows)]
        self.model_.cpu()  # a fitted estimator stays picklable anywhere
        return torch.cat(parts).numpy()
