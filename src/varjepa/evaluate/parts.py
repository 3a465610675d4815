"""Finished parts of an evaluation, from which an interrupted one continues.

Rows of ``models.json`` and ``cells.json`` say what is finished and from which inputs; models and
predictions are in files next to them. Rows of other inputs are refused, so that two evaluations
never mix; more representations, predictors or runs continue from what is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from varjepa.errors import InputError
from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.evaluate.settings import EvaluateSettings
from varjepa.files import make_folder, write_bytes
from varjepa.report.store import ResultStore
from varjepa.version import __version__

Arrays = dict[str, NDArray[Any]]


class FinishedParts:
    """A folder of models and predictions."""

    def __init__(self, folder: Path, table: pa.Table, settings: EvaluateSettings) -> None:
        make_folder(folder)
        self.folder = folder
        inputs = describe_inputs(table, settings)
        self.models = ResultStore(folder / "models.json", ("model",), lambda row: inputs)
        key = ("representation", "predictor", "seed")
        self.cells = ResultStore(folder / "cells.json", key, lambda row: inputs)

    def write(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        content = save({k: np.ascontiguousarray(v) for k, v in arrays.items()})
        write_bytes(self.folder / f"{name}.safetensors", content)

    def read(self, name: str) -> Arrays:
        path = self.folder / f"{name}.safetensors"
        try:
            return load(path.read_bytes())
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path} is damaged; delete {self.folder} and start again") from error


def describe_inputs(table: pa.Table, settings: EvaluateSettings) -> dict[str, Any]:
    """What models and predictions depend on, as plain JSON."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    parts = ("target", "task", "seed", "epochs", "transductive", "labels_pick_checkpoint")
    return {
        "table": hashlib.sha256(sink.getvalue()).hexdigest(),
        **{name: getattr(settings, name) for name in parts},
        "kinds": [list(pair) for pair in settings.kinds],
        "estimators": {
            estimator.__name__: {k: repr(v) for k, v in estimator().get_params().items()}
            for estimator in (TJEPA, VarTJEPA)
        },
        "version": __version__,
    }
