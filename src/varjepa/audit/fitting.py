"""The model of a table that is audited without one: fitted to its own rows.

One fit for all rows: a model that is fitted to half of the rows and scores the other half finds no
more (benchmarks/results/audit-folds.json). What is obviously odd is kept from the model.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.base import clone

from varjepa.audit.scoring import ModelView, number_tails, replace_texts
from varjepa.audit.text import decorated_numbers
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.files import make_folder, read_json, write_json
from varjepa.settings import Run, pick_device
from varjepa.tables import TableCodec, TableFiles
from varjepa.tables.columns import Kind
from varjepa.tables.messages import MOST_NAMES, collect_warnings, joined
from varjepa.tables.values import is_text, undictionary, value_type
from varjepa.tables.writing import table_sha256
from varjepa.version import __version__


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How a model is fitted for an audit."""

    estimator: VarTJEPA = field(default_factory=VarTJEPA)
    """not fitted: its settings"""
    column_kinds: Mapping[str, Kind] | None = None
    time_limit: float | None = None
    verbose: int = 0
    folder: Path | None = None
    """for checkpoints and the model, from which an interrupted audit continues"""
    overwrite: bool = False
    """whether a fit of another table or with other settings in the folder is replaced"""


def fit_own(
    table: pa.Table | TableFiles, options: FitOptions
) -> tuple[VarTJEPA, TableCodec | None]:
    """A model of the table, and a codec that counts all its levels.

    Of a table in files, which is not read at once, the model's own codec counts them.
    """
    if isinstance(table, TableFiles):
        return _fitted(table, None, options), None
    plain = plain_numbers(table)
    codec = TableCodec.fit(_without_absurd_numbers(plain), options.column_kinds)
    seen = what_to_learn_from(plain, codec)
    kinds = {column.name: column.kind for column in codec.schema.modelled}
    return _fitted(seen, kinds, options), codec


def plain_numbers(table: pa.Table) -> pa.Table:
    """Numbers in another form than their column's as the others are: "5%" among numbers as "5"."""
    for place, name in enumerate(table.column_names):
        column = table[name]
        if not is_text(value_type(column.type)):
            continue
        text = undictionary(column).cast(pa.large_string())
        counts = pc.value_counts(text.drop_null())
        found = decorated_numbers({
            one["values"]: one["counts"] for one in counts.to_pylist()
        })  # fmt: skip
        if found:
            table = table.set_column(place, name, replace_texts(text, found)[0])
    return table


ABSURD = 1e12
"""Times a column's median absolute number: beyond it, float64 cannot tell the others apart."""


def _without_absurd_numbers(table: pa.Table) -> pa.Table:
    """Without marks such as −1.8e308 or the smallest integer, which no range should hold."""
    for place, name in enumerate(table.column_names):
        if not (pa.types.is_floating(table[name].type) or pa.types.is_integer(table[name].type)):
            continue
        size = np.abs(table[name].to_numpy().astype(np.float64))
        known = size[np.isfinite(size) & (size > 0.0)]
        absurd = size / ABSURD > np.median(known) if len(known) else np.zeros(len(size), bool)
        if absurd.any():
            keep = pa.array(np.arange(len(size)), mask=absurd)
            table = table.set_column(place, name, table[name].take(keep))
    return table


def what_to_learn_from(table: pa.Table, codec: TableCodec) -> pa.Table:
    """The modelled columns without far numbers and without texts that one row alone has.

    A column of which that would leave less than half keeps its texts: there they are the rule.
    """
    view = ModelView.of(codec, number_tails(codec), table)
    columns = {column.name: view.table[column.name] for column in codec.schema.modelled}
    for category in codec.categorical:
        counts = np.array([0, *category.levels.counts])
        texts = pa.array(view.texts[category.column], pa.large_string())
        codes = category.levels.encode(pa.chunked_array([texts]))
        once = counts[codes] == 1
        if 2 * once.sum() < (codes > 0).sum():
            keep = pa.array(np.arange(len(once)), mask=once)
            columns[category.column] = columns[category.column].take(keep)
    return pa.table(columns)


def _fitted(
    table: pa.Table | TableFiles, kinds: Mapping[str, Kind] | None, options: FitOptions
) -> VarTJEPA:
    model = clone(options.estimator).set_params(verbose=options.verbose)
    model.set_params(column_kinds=kinds or options.column_kinds)
    if options.time_limit is not None:
        model.set_params(training__time_limit=options.time_limit)
    if options.folder is None:
        with collect_warnings():
            return model.fit(table)
    folder, key = options.folder, _key(model, table)
    differing = _differences(folder, key)
    if differing and not options.overwrite:
        what = joined(differing[:MOST_NAMES], len(differing))
        raise InputError(f"{folder} holds a fit that differs in {what}; overwrite it to begin anew")
    if differing:
        for name in ("model", "checkpoints"):
            shutil.rmtree(folder / name, ignore_errors=True)
    make_folder(folder)
    write_json(folder / "key.json", key)
    if (folder / "model" / "manifest.json").exists():
        return VarTJEPA.load(folder / "model").set_params(device=model.device)
    checkpoints = folder / "checkpoints"
    with collect_warnings():
        model.fit(table, run=Run(checkpoint_dir=checkpoints, resume=True))
    model.save(folder / "model")
    shutil.rmtree(checkpoints, ignore_errors=True)
    return model


UNSAVED = ("device", "training__time_limit")
"""Settings that may differ once a fit is finished. Checkpoints of an unfinished one need them."""


def _key(model: VarTJEPA, table: pa.Table | TableFiles) -> dict[str, Any]:
    """What a fit that is used again must share."""
    settings = {
        name: value
        for name, value in model.get_params(deep=True).items()
        if name not in (*model.settings_kinds, "verbose")
    } | {"device": pick_device(model.device).type}
    key = {"table": _sha256(table), "version": __version__, "settings": settings}
    same: dict[str, Any] = json.loads(json.dumps(key, default=repr))
    return same


def _differences(folder: Path, now: dict[str, Any]) -> list[str]:
    """In what the fit in the folder differs from this one."""
    if not (folder / "key.json").exists():
        return []
    then = read_json(folder / "key.json")
    if not isinstance(then, dict) or then.get("version") != now["version"]:
        return ["the version"]
    if then.get("table") != now["table"]:
        return ["the table"]
    old, new = then.get("settings"), now["settings"]
    if not isinstance(old, dict):
        return ["the settings"]
    free = UNSAVED if (folder / "model" / "manifest.json").exists() else ()
    return [
        name
        if isinstance(new.get(name), dict)
        else f"{name} ({old.get(name)}, now {new.get(name)})"
        for name in old | new
        if name not in free and old.get(name) != new.get(name)
    ]


def _sha256(table: pa.Table | TableFiles) -> str:
    """What tells this table from others."""
    if isinstance(table, TableFiles):
        return hashlib.sha256(
            " ".join(file.fingerprint for file in table.files).encode()
        ).hexdigest()
    return table_sha256(table)
