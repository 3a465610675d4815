"""Going on with a training: from its checkpoints, with the same settings and the same table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from varjepa.errors import InputError
from varjepa.settings import Run, pick_device, to_json
from varjepa.tables import TableCodec
from varjepa.tables.codec import EncodedTable
from varjepa.tables.messages import listed
from varjepa.tables.streaming import TableFiles
from varjepa.training.checkpoints import (
    Checkpoint,
    Checkpoints,
    broadcast_checkpoint,
    checkpointing,
)
from varjepa.training.loop import FilteredProbe, Selection
from varjepa.training.processes import World

if TYPE_CHECKING:
    from varjepa.estimators.base import TableEstimator
    from varjepa.estimators.fitting import Validation

IRRELEVANT = {"device", "output", "random_state", "verbose"}
"""Parameters that change no weight, or that are in an identity as what became of them."""


@contextmanager
def open_checkpoints(
    estimator: TableEstimator, run: Run, world: World
) -> Iterator[tuple[Checkpoints | None, Checkpoint | None]]:
    """A run's folder of checkpoints, and the one to resume from, where there are any.

    Where no seed is asked for, the fit has that of the checkpoint. Of several processes only the
    main process touches the folder.
    """
    assert run.checkpoint_dir is not None
    folder, every = Path(run.checkpoint_dir), run.checkpoint_every
    with (
        checkpointing(folder, every, run.resume)
        if world.is_main
        else nullcontext(Checkpoints(folder, every))
    ) as checkpoints:
        past = checkpoints.latest() if world.is_main else None
        past = broadcast_checkpoint(past, folder, world)
        if past is not None and estimator.random_state is None:
            try:
                estimator.seed_ = int(past.facts["identity"]["settings"]["seed"])
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(f"the checkpoint in {folder} has no seed") from error
        yield checkpoints, past


def identity_of(
    estimator: TableEstimator,
    codec: TableCodec,
    rows: EncodedTable,
    selection: Selection,
    validation: Validation | None,
) -> dict[str, Any]:
    """Settings as JSON gives them back, and a SHA-256 of every encoded column."""
    cells = [*rows.num.T, *rows.cat.T]
    if rows.observed is not None:  # which cells are known counts only where not all are
        cells = [
            column if bool(known.all()) else torch.stack([column, known.to(column.dtype)])
            for column, known in zip(cells, rows.observed.T, strict=True)
        ]
    columns = {
        feature.name: _sha256(column) for feature, column in zip(codec.features, cells, strict=True)
    }
    settings: dict[str, Any] = {"device": rows.num.device.type}
    if validation is not None:
        numbers = [np.asarray(validation.rows), np.asarray(validation.probe_rows)]
        rows_of = hashlib.sha256(b"".join(map(bytes, numbers))).hexdigest()
        settings["validation"] = [rows_of, validation.held_out]
    return _identity(estimator, settings, len(rows), columns, selection)


def identity_of_files(
    estimator: TableEstimator,
    codec: TableCodec,
    files: TableFiles,
    window: int,
    selection: Selection,
) -> dict[str, Any]:
    """The same of a table that is streamed, with its files' fingerprints instead of its cells.

    These are of the files' footers, so what the codec found in every column is there too.
    """
    settings = {"device": pick_device(estimator.device).type, "rows of an epoch": window}
    fitted = codec.to_json()
    columns = {
        feature.name: hashlib.sha256(json.dumps(item).encode()).hexdigest()
        for feature, item in zip(
            codec.features, [*fitted["numeric"], *fitted["categorical"]], strict=True
        )
    }
    identity = _identity(estimator, settings, files.rows, columns, selection)
    return identity | {"files": {file.name: file.fingerprint for file in files.files}}


def _identity(
    estimator: TableEstimator,
    settings: dict[str, Any],
    rows: int,
    columns: dict[str, str],
    selection: Selection,
) -> dict[str, Any]:
    parts = [to_json(estimator.settings(name)) for name in estimator.settings_kinds]
    outer = estimator.get_params(deep=False)
    settings = {
        **{k: v for k, v in outer.items() if k not in IRRELEVANT | estimator.settings_kinds.keys()},
        **{k: v for part in parts for k, v in part.items()},
        "seed": estimator.seed_,
        **settings,
    }
    labels = None
    if isinstance(selection, FilteredProbe):
        labels = _sha256(selection.train_labels, selection.validation_labels)
    identity = {
        "estimator": type(estimator).__name__,
        "settings": settings,
        "rows": rows,
        "columns": columns,
        "labels": labels,
    }
    same: dict[str, Any] = json.loads(json.dumps(identity, default=_as_json))
    return same


def claim(
    checkpoints: Checkpoints | None, past: Checkpoint | None, identity: dict[str, Any]
) -> None:
    """Checkpoints are of this training from now on; the one to go on from has to be already."""
    if checkpoints is not None:
        checkpoints.identity = identity
    if past is not None:
        refuse_another(past.facts["identity"], identity)


def refuse_another(then: Any, now: dict[str, Any]) -> None:
    """Say in one sentence how a checkpoint's training differs from this one."""
    if then == now:
        return
    if not isinstance(then, dict) or {*then, "files"} != {*now, "files"}:
        raise InputError("the checkpoint to resume from is not of this version")
    differences = []
    if then["estimator"] != now["estimator"]:
        differences.append(f"the estimator was {then['estimator']}")
    for name in then["settings"] | now["settings"]:
        before, value = then["settings"].get(name), now["settings"].get(name)
        if before != value:
            differences.append(f"{name} was {before!r} and is {value!r}")
    columns, before = now["columns"], then["columns"]
    if before.keys() != columns.keys():
        differences.append(
            f"the columns are not the same: {listed(sorted(before.keys() ^ columns))}"
        )
    elif files := _other_files(then.get("files"), now.get("files")):
        differences.append(files)
    elif then["rows"] != now["rows"]:
        differences.append(f"the table had {then['rows']:,} rows and has {now['rows']:,}")
    elif changed := [name for name in columns if columns[name] != before[name]]:
        differences.append(f"there are other values in {listed(changed)}")
    if then["labels"] != now["labels"]:
        differences.append("the labels are others")
    if differences:  # a setting that is None may be younger than the checkpoint
        raise InputError(
            f"the checkpoint to resume from is of another training: {'; '.join(differences)}"
        )


def _other_files(then: dict[str, str] | None, now: dict[str, str] | None) -> str | None:
    """How the files of a streamed table are not what they were."""
    if then == now:
        return None
    if then is None or now is None:
        return f"the table was {'held in memory' if then is None else 'streamed'}"
    if then.keys() != now.keys():
        return f"the files are not the same: {listed(sorted(then.keys() ^ now))}"
    changed = [name for name in now if then[name] != now[name]]
    return f"there is other content in {listed(changed)}"


def _as_json(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def _sha256(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
