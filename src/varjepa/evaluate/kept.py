"""What an interrupted evaluation has finished: models and predictions, found again by name.

A stamp says what everything in the folder depends on. Other settings are refused rather than mixed
in; more representations, predictors or runs of the same evaluation go on from what is there.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from varjepa.errors import InputError
from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.estimators.base import TableEstimator
from varjepa.evaluate.settings import EvaluateSettings
from varjepa.files import make_folder, read_json, write_bytes, write_json
from varjepa.version import __version__

Arrays = dict[str, NDArray[Any]]
Estimator = TypeVar("Estimator", bound=TableEstimator)

SECONDS = "seconds"


class Kept:
    """A folder of finished parts."""

    def __init__(self, folder: Path, stamp: dict[str, Any]) -> None:
        self.folder = folder
        make_folder(folder)
        path = folder / "stamp.json"
        if path.exists():
            theirs = read_json(path)
            for name, ours in stamp.items():
                if not isinstance(theirs, dict) or theirs.get(name) != ours:
                    raise InputError(
                        f"{folder} holds parts of another evaluation ({name} differs); choose "
                        "another --out"
                    )
        else:
            write_json(path, stamp)

    def arrays(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """Arrays of that name, computed where they are not there; ``seconds`` among them."""
        path = self.folder / f"{name}.safetensors"
        if path.exists():
            try:
                return load_arrays(path.read_bytes())
            except SafetensorError as error:
                raise InputError(f"{path} is damaged; delete it and start again") from error
        start = time.perf_counter()
        found = {k: np.ascontiguousarray(v) for k, v in compute().items()}
        found[SECONDS] = np.array([time.perf_counter() - start])
        write_bytes(path, save_arrays(found))
        return found

    def estimator(self, unfitted: Estimator, fit: Callable[[], Estimator]) -> tuple[Estimator, Any]:
        """A fitted estimator with its training record."""
        folder = self.folder / type(unfitted).__name__
        record = folder.with_suffix(".json")
        if record.exists():  # written last
            found = type(unfitted).load(folder)
            return found.set_params(device=unfitted.device), read_json(record)
        start = time.perf_counter()
        fitted = fit()
        seconds = time.perf_counter() - start
        fitted.save(folder)
        described = {
            "seconds": seconds,
            "epochs": len(fitted.history_),
            "best_epoch": fitted.best_epoch_,
            "selected_by": fitted.selected_by_,
            "active_units": fitted.collapse_.active_units,
            "d": fitted.d,
            "history": fitted.history_,
        }
        write_json(record, described)
        return fitted, described


def stamp_of(table: pa.Table, settings: EvaluateSettings) -> dict[str, Any]:
    """What fitted representations and predictions depend on, as plain JSON."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    own = {"verbose", "device", "random_state", "epochs", "column_kinds"}
    models = {
        type(model).__name__: {
            k: list(v) if isinstance(v, tuple) else v
            for k, v in model.get_params().items()
            if k not in own
        }
        for model in (TJEPA(), VarTJEPA())
    }
    return {
        "table": hashlib.sha256(sink.getvalue()).hexdigest(),
        "target": settings.target,
        "task": settings.task,
        "seed": settings.seed,
        "epochs": settings.epochs,
        "transductive": settings.transductive,
        "labels_pick_checkpoint": settings.labels_pick_checkpoint,
        "kinds": [list(pair) for pair in settings.kinds],
        "estimators": models,
        "version": __version__,
    }
