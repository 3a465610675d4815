"""What a fit trains on and validates with.

A table in files is held in memory if its encoded rows fit, and streamed otherwise. Either way the
files are read a block at a time.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_consistent_length, column_or_1d
from torch import Tensor

from varjepa.errors import InputError
from varjepa.estimators.frames import to_arrow
from varjepa.estimators.resuming import identity_of, identity_of_files
from varjepa.metrics.target import infer_task
from varjepa.models.inference import MEASURES, Measure
from varjepa.randomness import generator_for
from varjepa.settings import Training
from varjepa.tables import EncodedTable, Kind, Scaling, TableCodec
from varjepa.tables.columns import MemoryLimits, TableInMemory
from varjepa.tables.describe import TableDescription
from varjepa.tables.messages import TableWarnings, collect_warnings
from varjepa.tables.reading import are_files
from varjepa.tables.shuffling import ShuffledFiles
from varjepa.tables.streaming import TableFiles, pick_rows
from varjepa.training.loop import (
    FilteredProbe,
    HeldOutCells,
    HeldOutLoss,
    LinearProbeSettings,
    Selection,
)
from varjepa.training.processes import ALONE, World
from varjepa.training.step import RowSource
from varjepa.training.streamed_rows import WindowedRows, window_rows

if TYPE_CHECKING:
    from varjepa.estimators.base import TableEstimator

MAX_CELLS_IN_MEMORY = 1 << 25
"""Cells of a table that is held in memory; each takes 5 bytes, a category's 9, and twice that for a
while. So the largest such table takes hardly more than a streamed one."""

MAX_BYTES_IN_MEMORY = 1 << 28
"""Bytes of its files at most: few cells may be much text, of which a codec holds the levels."""

MAX_VALIDATION_ROWS = 10_000
"""Rows held out of a streamed table at most: more would not pick another epoch."""

CALIBRATION_ROWS = 2048
"""Rows that a trained model is calibrated on, and its clusters are learned from, at most."""

PROBE_ROWS = 8192
"""Training rows at most that a probe draws its own from. Of a streamed table, the collapse alarm
reads some of them."""


def table_files(X: Any) -> TableFiles | None:
    """The files that a user means: several, or one that is too large to be read at once."""
    if isinstance(X, TableFiles):
        return X
    if are_files(X):
        return TableFiles.find(X)
    if isinstance(X, str | os.PathLike) and Path(X).suffix.lower() == ".parquet":
        with suppress(InputError):  # reading it will say so
            files = TableFiles.find(X)
            return files if is_streamed(files) else None
    return None


def is_streamed(files: TableFiles) -> bool:
    return files.cells > MAX_CELLS_IN_MEMORY or files.bytes > MAX_BYTES_IN_MEMORY


def fit_codec(
    files: TableFiles, kinds: Mapping[str, Kind] | None, scaling: Scaling, max_levels: int
) -> TableCodec:
    """The codec of all rows; within bounded memory where they are streamed."""
    limits = MemoryLimits() if is_streamed(files) else None
    codec = TableCodec.fit(files, kinds, scaling, max_levels, limits)
    hand_back_memory()
    if limits is not None:
        _warn_of_rare_levels(files, codec)
    return codec


def read_rows(
    files: TableFiles, codec: TableCodec, numbers: NDArray[np.int64] | None = None
) -> tuple[EncodedTable, NDArray[Any] | None]:
    """Rows as encoding the whole table would have given them, and their labels, if files have any.

    ``numbers``: of some rows, in ascending order. None: all, with a warning of odd cells.
    """
    names = [*files.schema.names, *([] if files.labels is None else [files.labels])]
    blocks: Iterable[pa.Table] = files.blocks(names)
    if numbers is not None:
        blocks = pick_rows(blocks, numbers)
    rows, place, labels = codec.empty(files.rows if numbers is None else len(numbers), True), 0, []
    with collect_warnings() as collected:
        for block in blocks:
            if files.labels is not None:
                labels.append(block[files.labels].to_numpy(zero_copy_only=False))
            rows.write(place, codec.to_unit(block.select(files.schema.names)))
            place += block.num_rows
    if numbers is None:  # infinite ones: said by the codec
        TableWarnings(unseen=collected.unseen).warn(stacklevel=3)
    return rows.drop_full_mask(), np.concatenate(labels) if labels else None


def hand_back_memory() -> None:
    """Let the system have what reading has freed; the steps ask for memory of other shapes.

    Arrow keeps its own, and so does glibc in a process that was told to.
    """
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError, TypeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _warn_of_rare_levels(files: TableFiles, codec: TableCodec) -> None:
    """Warn about levels too rare for the codec, as encoding every row would."""
    rare = {
        category.column: files.rows
        - sum(category.levels.counts)
        - round(category.missing_share * files.rows)
        for category in codec.categorical
    }
    TableWarnings(unseen=rare).warn(stacklevel=3)


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """Rows drawn from the whole table: the first to validate with, the others to train on."""

    encoded: EncodedTable
    labels: NDArray[Any] | None
    held_out: NDArray[np.int64]
    """row numbers that training leaves out, sorted"""

    @property
    def validation(self) -> torch.Tensor:
        """Which of the rows are held out; where none is, those learned from."""
        count = len(self.held_out)
        return torch.arange(count) if count else self.training

    @property
    def training(self) -> torch.Tensor:
        return torch.arange(len(self.held_out), len(self.encoded))


def draw_rows(
    files: TableFiles, codec: TableCodec, y: NDArray[Any] | None, share: float, seed: int
) -> DrawnRows:
    """Draw and read rows to hold out, a ``share`` of all but not too many, and some to learn from.

    ``y``: labels of all rows, where they are not a column of the files.
    """
    count = min(MAX_VALIDATION_ROWS, int(files.rows * share))
    wanted = min(files.rows, count + PROBE_ROWS)
    drawn = draw_numbers(files.rows, wanted, generator_for(seed, "split"))
    ascending = np.sort(drawn)
    encoded, labels = read_rows(files, codec, ascending)
    order = np.searchsorted(ascending, drawn)  # as drawn, so that the first few are of any place
    if y is not None:
        labels = y[drawn]
    elif labels is not None:
        labels = labels[order]
    return DrawnRows(encoded.take(torch.from_numpy(order)), labels, np.sort(drawn[:count]))


def draw_numbers(rows: int, count: int, generator: torch.Generator) -> NDArray[np.int64]:
    """So many different row numbers in random order, without a list of all there are."""
    if rows < 4 * count:
        return torch.randperm(rows, generator=generator)[:count].numpy()
    drawn = torch.randint(rows, (2 * count + 100,), generator=generator).numpy()
    _, first = np.unique(drawn, return_index=True)
    return drawn[np.sort(first)[:count]]


# --- what a fit is given

ONLINE_PROBE = LinearProbeSettings(rows=1024)
"""The linear probe that picks the checkpoint where labels are given."""

SCORED_ROWS = 2048
"""Validation rows at most that it is scored on: a validation must cost little compared with the
steps between."""

NAMED_PROBE = LinearProbeSettings()
"""Where a user names the rows that it learns from, as the paper's protocol does: it learns from
more of them, and all validation rows count."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Which rows of X pick the checkpoint, by their numbers."""

    rows: ArrayLike
    """row numbers (or a mask) of the rows that score a checkpoint"""
    probe_rows: ArrayLike | None = None
    """row numbers of the rows whose labels fit the probe; None: some of those trained on"""
    held_out: bool = True
    """False: training sees the validation rows too, but none of their labels. With all rows of
    all splits in X this is the paper's transductive protocol"""


@dataclass(frozen=True, slots=True)
class TrainingData:
    """A table to learn from, encoded, and its labels."""

    codec: TableCodec
    rows: EncodedTable | None
    """None: too many to hold, read from ``files`` in windows"""
    files: TableFiles | None
    labels: ArrayLike | None
    description: TableDescription | None = None
    """what was inferred, where somebody asks"""
    validation: Validation | None = None


def with_validation(estimator: TableEstimator, data: TrainingData, validation: Any) -> TrainingData:
    """The data with the validation rows that a user gave; a table of its own is put behind X."""
    if validation is None:
        return data
    if data.rows is None:
        raise InputError("validation: a table larger than memory picks its own rows")
    if isinstance(validation, Validation):
        return replace(data, validation=validation)
    if isinstance(validation, tuple) and len(validation) != 2:
        raise InputError("validation must be a table, a table and its labels, or a Validation")
    X, y = validation if isinstance(validation, tuple) else (validation, None)
    if (y is None) != (data.labels is None):
        raise InputError("y and the labels of the validation rows go together: give both or none")
    table = TableInMemory(to_arrow(estimator, X, reset=False))
    rows = estimator._rows(data.codec.encode(table))
    numbers = np.arange(len(data.rows), len(data.rows) + len(rows))
    labels = None
    if y is not None:
        check_consistent_length(rows.num, y)
        labels = np.concatenate([column_or_1d(part).astype(object) for part in (data.labels, y)])
    both = join_rows(data.rows, rows)
    return replace(data, rows=both, labels=labels, validation=Validation(numbers))


def join_rows(first: EncodedTable, second: EncodedTable) -> EncodedTable:
    has_missing = first.observed is not None or second.observed is not None
    observed = torch.cat([first.known, second.known]) if has_missing else None
    num, cat = torch.cat([first.num, second.num]), torch.cat([first.cat, second.cat])
    return EncodedTable(num, cat, observed)


# --- what a training needs


@dataclass(frozen=True, slots=True)
class PreparedTraining:
    """One training: its rows, its length, and how its checkpoint is picked."""

    source: RowSource
    rows: int
    """that are trained on"""
    training: Training
    selection: Selection
    some_training: EncodedTable
    some_validation: EncodedTable
    """a few rows that are trained on, and a few that pick the checkpoint"""
    identity: dict[str, Any] | None
    """what a training that resumes this one must share; None: not needed"""


def prepare_training(
    estimator: TableEstimator, data: TrainingData, world: World, with_identity: bool
) -> PreparedTraining:
    """Some rows pick the checkpoint, the others are trained on."""
    if data.rows is None:
        return _prepare_streamed(estimator, data, world)
    e, rows = estimator, data.rows
    asked: Training = e.settings("training")
    training, probe, validation = _parts(rows, data.validation, asked.validation_share, e.seed_)
    has_named_rows = data.validation is not None and data.validation.probe_rows is not None
    selection = make_selection(e, rows, probe, validation, data.labels, world, has_named_rows)
    identity = None
    if with_identity:
        identity = identity_of(e, data.codec, rows, selection, data.validation)
    source = RowSource(rows if training is None else rows.take(training), training)
    return PreparedTraining(
        source,
        len(source.rows),
        asked.resolve(len(source.rows)),
        selection,
        some_rows(source.rows, e.seed_),
        some_rows(rows.take(validation), e.seed_),
        identity,
    )


def _parts(
    rows: EncodedTable, validation: Validation | None, share: float, seed: int
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Numbers of the rows to train on (None: all, in order), to fit a probe on, to score with."""
    if validation is None:
        training, held_out = hold_out(rows, share, seed)
        return training, training[:PROBE_ROWS], held_out
    scored = _row_numbers(validation.rows, "validation.rows", rows)
    training = torch.arange(len(rows), device=rows.num.device)
    if validation.held_out:
        training = training[~torch.isin(training, scored)]
        if not len(training):
            raise InputError("the validation rows leave no row to train on")
    probe = training
    if validation.probe_rows is not None:
        probe = _row_numbers(validation.probe_rows, "validation.probe_rows", rows)
    return (training if validation.held_out else None), probe, scored


def _row_numbers(rows: ArrayLike, name: str, table: EncodedTable) -> Tensor:
    numbers = np.asarray(rows)
    if numbers.dtype == bool and numbers.shape == (len(table),):
        numbers = np.flatnonzero(numbers)
    is_valid = numbers.ndim == 1 and numbers.dtype.kind in "iu" and len(numbers)
    if not is_valid or numbers.min() < 0 or numbers.max() >= len(table):
        raise InputError(f"{name} must be row numbers below {len(table)}, or a mask of the rows")
    return torch.as_tensor(numbers.astype(np.int64), device=table.num.device)


def hold_out(rows: EncodedTable, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows to validate with; the same rows where there are too few."""
    order = torch.randperm(len(rows), generator=generator_for(seed, "split")).to(rows.num.device)
    held_out = int(len(rows) * share)
    if held_out == 0:
        return order, order
    return order[held_out:], order[:held_out]


def some_rows(rows: EncodedTable, seed: int) -> EncodedTable:
    """At most :data:`CALIBRATION_ROWS` of the rows, drawn at random."""
    order = torch.randperm(len(rows), generator=generator_for(seed, "calibration"))
    return rows.take(order[:CALIBRATION_ROWS].to(rows.num.device))


def make_selection(
    estimator: TableEstimator,
    rows: EncodedTable,
    training: Tensor,
    validation: Tensor,
    y: ArrayLike | None,
    world: World = ALONE,
    has_named_rows: bool = False,
) -> Selection:
    """A probe where y holds classes, else the held-out loss.

    Rows whose label is missing (None, NaN) are trained on and take no part in the probe.
    ``has_named_rows``: a user named the rows that it learns from.
    """
    settings: Training = estimator.settings("training")
    if y is not None:
        labels = column_or_1d(y)
        check_consistent_length(rows.num, labels)
        known = np.array([label is not None and label == label for label in labels], dtype=bool)
        if not known.any():
            raise InputError("y has no label at all; fit without y")
        if labels.dtype.kind == "f" and np.isinf(labels).any():
            raise InputError("y has an infinite value")
        if infer_task(labels[known]) == "classification":
            classes, codes = np.unique(labels[known], return_inverse=True)
            numbers = torch.full((len(rows),), -1)
            numbers[torch.as_tensor(known)] = torch.as_tensor(codes)
            numbers = numbers.to(rows.num.device)
            learned, scored = (part[numbers[part] >= 0] for part in (training, validation))
            if not len(learned) or not len(scored):
                raise InputError(
                    f"{known.sum()} labels are too few to pick a checkpoint by; fit without y"
                )
            if not has_named_rows:
                scored = _some(scored, SCORED_ROWS, estimator.seed_)
            return FilteredProbe(
                rows.take(learned),
                numbers[learned],
                rows.take(scored),
                numbers[scored],
                len(classes),
                NAMED_PROBE if has_named_rows else ONLINE_PROBE,
                estimator.seed_,
                settings.discard_share if estimator._has_uncertainty else 0.0,
                settings.standard_errors,
                world,
                _measure(settings.rank_by),
            )
    held_out = rows.take(validation)
    if estimator._predicts_values:
        return HeldOutCells(held_out, estimator.seed_, world=world)
    return HeldOutLoss(held_out, estimator.seed_, world=world)


def _some(rows: Tensor, most: int, seed: int) -> Tensor:
    """At most so many of the rows, of any place: a user's own validation rows may be sorted."""
    if len(rows) <= most:
        return rows
    order = torch.randperm(len(rows), generator=generator_for(seed, "scored rows"))
    return rows[order[:most].to(rows.device)]


def _measure(rank_by: tuple[str, str]) -> Measure:
    if rank_by not in MEASURES:
        raise InputError(f"rank_by must be one of {MEASURES}, not {rank_by}")
    return rank_by


def _prepare_streamed(
    estimator: TableEstimator, data: TrainingData, world: World
) -> PreparedTraining:
    """A table in files: the rows that pick the checkpoint are held, the others come in windows."""
    e, codec, files = estimator, data.codec, data.files
    assert files is not None
    asked: Training = e.settings("training")
    labels = None if data.labels is None else column_or_1d(data.labels)
    if labels is not None and len(labels) != files.rows:
        raise InputError(f"y has {len(labels):,} labels, and {files.source} {files.rows:,} rows")
    with world.sharing_errors():
        drawn = draw_rows(files, codec, labels, asked.validation_share, e.seed_)
        shuffled = ShuffledFiles(files, drawn.held_out, e.seed_)
    rows = e._rows(drawn.encoded)
    training, validation = (part.to(rows.num.device) for part in (drawn.training, drawn.validation))
    size = window_rows(codec, len(shuffled))
    resolved = asked.resolve(size)
    selection = make_selection(e, rows, training, validation, drawn.labels, world)
    epochs = math.ceil(resolved.length(size))
    source = WindowedRows(shuffled, codec, size, epochs, rows.take(training), world)
    identity = identity_of_files(e, codec, files, size, selection)
    some = [some_rows(rows.take(part), e.seed_) for part in (training, validation)]
    return PreparedTraining(source, len(shuffled), resolved, selection, some[0], some[1], identity)
