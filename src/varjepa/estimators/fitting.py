"""What a fit trains on and validates with, for tables in memory and streamed ones.

Tables in Parquet files: held in memory where their encoded rows fit, else streamed.

Either way the files are read a block at a time, so that never more than that is there decoded.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, column_or_1d
from torch import Tensor

from varjepa.errors import InputError
from varjepa.estimators.resuming import identity_of, identity_of_files
from varjepa.estimators.settings import length_of
from varjepa.models.masking import MaskSettings
from varjepa.randomness import generator_for
from varjepa.tables import EncodedTable, Kind, Scaling, TableCodec
from varjepa.tables.many_files import TableFiles, are_files
from varjepa.tables.messages import TableWarnings, collect_warnings
from varjepa.tables.shuffling import ShuffledFiles
from varjepa.tables.summaries import MemoryLimits
from varjepa.training.processes import ALONE, Team
from varjepa.training.row_source import RowsInMemory, RowSource, WindowedRows, window_rows
from varjepa.training.selection import (
    FilteredProbe,
    HeldOutLoss,
    LinearProbeSettings,
    Selection,
)
from varjepa.training.settings import TrainingSettings

if TYPE_CHECKING:
    from varjepa.estimators.base import TableEstimator

MAX_CELLS_IN_MEMORY = 1 << 25
"""Cells of a table that is held in memory; each takes 5 bytes, a category's 9, and twice that for a
while. So the largest such table takes hardly more than a streamed one."""

MAX_BYTES_IN_MEMORY = 1 << 28
"""Bytes of its files at most: few cells may be much text, of which a codec holds the levels."""

MAX_VALIDATION_ROWS = 10_000
"""Rows held out of a streamed table at most: more would not pick another moment."""

PROBE_ROWS = 8192
"""Rows of a streamed table that a probe may learn from; the collapse alarm looks at some."""


def table_files(X: Any) -> TableFiles | None:
    """The files that a user means: several, or one that is too large to be read at once."""
    if isinstance(X, TableFiles):
        return X
    if are_files(X):
        return TableFiles.find(X)
    if isinstance(X, str | os.PathLike) and Path(X).suffix.lower() == ".parquet":
        with suppress(InputError):  # reading it will say so
            found = TableFiles.find(X)
            return found if is_streamed(found) else None
    return None


def is_streamed(files: TableFiles) -> bool:
    """Whether there is too much to hold."""
    return files.cells > MAX_CELLS_IN_MEMORY or files.bytes > MAX_BYTES_IN_MEMORY


def fit_codec(
    files: TableFiles,
    kinds: Mapping[str, Kind] | None,
    scaling: Scaling,
    max_levels: int,
) -> TableCodec:
    """The codec of all rows; within bounded memory where they are streamed."""
    limits = MemoryLimits() if is_streamed(files) else None
    codec = TableCodec.fit_blocks(
        files.schema, files.rows, files.blocks, kinds, scaling, max_levels, limits
    )
    hand_back_memory()
    if limits is not None:
        _warn_of_rare_levels(files, codec)
    return codec


def read_encoded(files: TableFiles, codec: TableCodec) -> EncodedTable:
    """All rows, as encoding the whole table would have given them."""
    whole, place = codec.empty(files.rows, has_missing=True), 0
    with collect_warnings() as remarks:
        for block in files.blocks(files.schema.names):
            whole.write(place, codec.to_unit(block))
            place += block.num_rows
    TableWarnings(unseen=remarks.unseen).warn(stacklevel=3)  # infinite ones: said by the codec
    return whole.drop_full_mask()


def read_labels(files: TableFiles) -> NDArray[Any] | None:
    """The labels of all rows, where there is a column of them."""
    if files.labels is None:
        return None
    parts = [
        block[files.labels].to_numpy(zero_copy_only=False) for block in files.blocks([files.labels])
    ]
    return np.concatenate(parts)


def hand_back_memory() -> None:
    """Let the system have what reading has freed; the steps ask for memory of other shapes.

    Arrow keeps its own, and so does glibc in a process that was told to.
    """
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError, TypeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _warn_of_rare_levels(files: TableFiles, codec: TableCodec) -> None:
    """What encoding every row would have remarked: levels too rare for the codec."""
    rare = {
        category.column: files.rows
        - sum(category.levels.counts)
        - round(category.missing_share * files.rows)
        for category in codec.categorical
    }
    TableWarnings(unseen=rare).warn(stacklevel=3)


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """Rows drawn from the whole table: the first to judge by, the others to learn from."""

    encoded: EncodedTable
    labels: NDArray[Any] | None
    held_out: NDArray[np.int64]
    """row numbers that training leaves out, sorted"""

    @property
    def judges(self) -> torch.Tensor:
        """Which of the rows are held out; where none is, those learned from."""
        count = len(self.held_out)
        return torch.arange(count) if count else self.learns

    @property
    def learns(self) -> torch.Tensor:
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
    encoded, labels = _read_numbers(files, codec, ascending)
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
    found = torch.randint(rows, (2 * count + 100,), generator=generator).numpy()
    _, first = np.unique(found, return_index=True)
    return found[np.sort(first)[:count]]


def _read_numbers(
    files: TableFiles, codec: TableCodec, numbers: NDArray[np.int64]
) -> tuple[EncodedTable, NDArray[Any] | None]:
    """Some rows by their numbers, which ascend, and their labels."""
    encoded, place, labels = codec.empty(len(numbers), has_missing=True), 0, []
    with collect_warnings():
        for block in _pick(files, numbers):
            if files.labels is not None:
                labels.append(block[files.labels].to_numpy(zero_copy_only=False))
            encoded.write(place, codec.to_unit(block.select(files.schema.names)))
            place += block.num_rows
    encoded = encoded.drop_full_mask()
    return encoded, np.concatenate(labels) if labels else None


def _pick(files: TableFiles, numbers: NDArray[np.int64]) -> Iterator[pa.Table]:
    labels = [] if files.labels is None else [files.labels]
    start = 0
    for block in files.blocks([*files.schema.names, *labels]):
        ends = np.searchsorted(numbers, (start, start + block.num_rows))
        here = numbers[slice(*ends)]
        if len(here):
            yield block.take(here - start)
        start += block.num_rows


# --- The rows that training does not see, and the question they are asked to pick a checkpoint.

ONLINE_PROBE = LinearProbeSettings()
"""The linear probe that picks the checkpoint where labels are given."""

STANDARD_ERRORS = 1.0
"""A linear probe is as good early on as at the end, and the accuracy of some thousand rows tells
the two apart by chance. Predictions of values take the whole training, so the latest look wins that
is not worse than the best by more than its standard error."""


def hold_out(rows: EncodedTable, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows to select with; the same rows where there are too few."""
    order = torch.randperm(len(rows), generator=generator_for(seed, "split")).to(rows.num.device)
    held_out = int(len(rows) * share)
    if held_out == 0:
        return order, order
    return order[held_out:], order[:held_out]


def make_selection(
    rows: EncodedTable,
    training: Tensor,
    validation: Tensor,
    y: ArrayLike | None,
    masks: MaskSettings,
    discard: float,
    seed: int,
    team: Team = ALONE,
) -> Selection:
    """A probe where y holds classes, else the objective itself.

    Rows whose label is missing (None, NaN) are trained on and take no part in the probe.
    ``discard`` is the share of the most uncertain validation rows that the probe leaves out.
    """
    if y is not None:
        labels = column_or_1d(y)
        check_consistent_length(rows.num, labels)
        known = np.array([label is not None and label == label for label in labels], dtype=bool)
        if not known.any():
            raise InputError("y has no label at all; fit without y")
        if type_of_target(labels[known].tolist()) in ("binary", "multiclass"):
            classes, codes = np.unique(labels[known], return_inverse=True)
            numbers = torch.full((len(rows),), -1)
            numbers[torch.as_tensor(known)] = torch.as_tensor(codes)
            numbers = numbers.to(rows.num.device)
            learn, judge = (part[numbers[part] >= 0] for part in (training, validation))
            if not len(learn) or not len(judge):
                raise InputError(
                    f"{known.sum()} labels are too few to pick a checkpoint by; fit without y"
                )
            return FilteredProbe(
                rows.take(learn),
                numbers[learn],
                rows.take(judge),
                numbers[judge],
                len(classes),
                ONLINE_PROBE,
                seed,
                discard,
                STANDARD_ERRORS,
                team,
            )
    return HeldOutLoss(rows.take(validation), masks, seed, team=team)


# --- What a fit has to do once its table is known: rows to train on, and how a moment is picked.


@dataclass(frozen=True, slots=True)
class Task:
    """One training."""

    source: RowSource
    settings: TrainingSettings
    selection: Selection
    identity: dict[str, Any] | None
    """what another training that goes on with this one must share; None: nobody asks"""


def task_in_memory(
    estimator: TableEstimator,
    codec: TableCodec,
    rows: EncodedTable,
    y: ArrayLike | None,
    team: Team,
    with_identity: bool,
) -> Task:
    """A table in memory: some of its rows pick the moment, the others are trained on."""
    e = estimator
    training, validation = hold_out(rows, e.validation_share, e.seed_)
    settings = e._training_settings(len(training))
    selection = make_selection(
        rows, training, validation, y, settings.masks, e._discard, e.seed_, team
    )
    identity = identity_of(e, codec, rows, selection) if with_identity else None
    return Task(RowsInMemory(rows.take(training), training), settings, selection, identity)


def streamed_task(
    estimator: TableEstimator, codec: TableCodec, files: TableFiles, y: ArrayLike | None, team: Team
) -> Task:
    """A table in files: the rows that pick the moment are held, the others come in windows."""
    e = estimator
    labels = None if y is None else column_or_1d(y)
    if labels is not None and len(labels) != files.rows:
        raise InputError(f"y has {len(labels):,} labels, and {files.source} {files.rows:,} rows")
    with team.sharing_errors():
        drawn = draw_rows(files, codec, labels, e.validation_share, e.seed_)
        shuffled = ShuffledFiles(files, drawn.held_out, e.seed_)
    rows = e._rows(drawn.encoded)
    learns, judges = (part.to(rows.num.device) for part in (drawn.learns, drawn.judges))
    size = window_rows(codec, len(shuffled))
    settings = e._training_settings(size)
    selection = make_selection(
        rows, learns, judges, drawn.labels, settings.masks, e._discard, e.seed_, team
    )
    epochs = math.ceil(length_of(settings, size))
    source = WindowedRows(shuffled, codec, size, epochs, rows.take(learns), team)
    return Task(source, settings, selection, identity_of_files(e, codec, files, size, selection))
