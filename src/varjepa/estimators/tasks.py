"""What a fit has to do once its table is known: rows to train on, and how a moment is picked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike
from sklearn.utils.validation import column_or_1d

from varjepa.errors import InputError
from varjepa.estimators.large_tables import draw_rows
from varjepa.estimators.parameters import length_of
from varjepa.estimators.resuming import identity_of, identity_of_files
from varjepa.estimators.validating import hold_out, make_selection
from varjepa.models.rows import Rows, take_rows
from varjepa.tables import TableCodec
from varjepa.tables.many_files import TableFiles
from varjepa.tables.shuffling import ShuffledFiles
from varjepa.training.distributed import Team
from varjepa.training.selection import Selection
from varjepa.training.settings import TrainingSettings
from varjepa.training.sources import HeldRows, RowSource
from varjepa.training.windows import WindowedRows, window_rows

if TYPE_CHECKING:
    from varjepa.estimators.base import TableEstimator


@dataclass(frozen=True, slots=True)
class Task:
    """One training."""

    source: RowSource
    settings: TrainingSettings
    selection: Selection
    identity: dict[str, Any] | None
    """what another training that goes on with this one must share; None: nobody asks"""


def held_task(
    estimator: TableEstimator,
    codec: TableCodec,
    rows: Rows,
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
    return Task(HeldRows(take_rows(rows, training), training), settings, selection, identity)


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
    source = WindowedRows(shuffled, codec, size, epochs, take_rows(rows, learns), team)
    return Task(source, settings, selection, identity_of_files(e, codec, files, size, selection))
