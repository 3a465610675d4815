"""The paper's protocol for a representation: learn from all rows, embed them, cache both.

Codec and networks see the features of every row, test rows too, and no label. The labels of the
training rows fit a linear probe, those of the validation rows score it, and the best checkpoint is
taken: labels of test rows select nothing.

In the results folder: a model folder in ``models/``, the embeddings with the uncertainties of every
row in ``embeddings/`` (safetensors). A run that was killed goes on from whichever of the two is
whole, and a training from its last checkpoint, in ``checkpoints/`` until the model is saved.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from paper.datasets.loading import Dataset
from paper.settings import CONSTANTS, FIRST_VERSION, DefaultTraining, Pretraining
from paper.store import Log, plain, same_settings
from varjepa import TJEPA, Run, Validation, VarTJEPA
from varjepa.environment import describe_environment
from varjepa.errors import InputError
from varjepa.evaluate.splits import Split
from varjepa.files import make_folder, read_json, replacing, write_json
from varjepa.metrics.collapse import diagnose_collapse
from varjepa.models.inference import MEASURES, Aggregate, Question
from varjepa.settings import field_names, nested, pick_device
from varjepa.tables import Kind, infer_schema
from varjepa.training.checkpoints import remove_checkpoints
from varjepa.training.loop import Record

OnEpoch = Callable[[Record], None]
AnyTraining = Pretraining | DefaultTraining


def build_estimator(spec: Pretraining, device: str) -> VarTJEPA | TJEPA:
    """The estimator of a training; what neither it nor the paper says is the first version's."""
    o = dict(spec.hyperparameters)
    for name in ("dropout", "predictor_dropout", "warm_up_epochs", "anneal_epochs"):
        o.pop(name, None)
    o |= {
        "batch_size": o.pop("batch"),
        "epochs": spec.epochs,
        "validate_every": spec.check_every,
        "patience": spec.patience,
        "predictor_depth": spec.predictor_depth,
        "warm_up_share": spec.warm_up_epochs / spec.epochs,
        "rank_by": spec.ranked_by,
        "standard_errors": spec.standard_errors,
        **{k: v for k, v in spec.open_details.items() if k not in CONSTANTS},
        "device": device,
        "random_state": spec.seed,
    }
    kind: type[VarTJEPA] | type[TJEPA] = VarTJEPA
    if spec.model == "t_jepa":
        kind, o["momentum"] = TJEPA, (o.pop("ema"), 1.0)
    else:
        o["anneal_share"] = tuple(epochs / spec.epochs for epochs in spec.anneal_epochs)
    known = {"scaling", *(n for one in kind.settings_kinds.values() for n in field_names(one))}
    first = {name: value for name, value in FIRST_VERSION.items() if name in known}
    return kind().set_params(**nested(kind.settings_kinds, {**first, **o}))


def all_kinds(table: pa.Table) -> dict[str, Kind]:
    """The kind of every column; a column whose kind is given is modelled whatever it holds."""
    return {column.name: column.kind for column in infer_schema(table).columns}


def fit_on_all_rows(
    estimator: VarTJEPA | TJEPA,
    table: pa.Table,
    labels: NDArray[np.int64],  # (N,)
    split: Split,
    run: Run | None = None,
    on_epoch: OnEpoch = lambda record: None,
) -> None:
    """Fit in place; the labels of ``split.test`` are not read.

    All columns are modelled, as in the paper: constant ones too, such as rare soils of Covertype.
    """
    estimator.set_params(column_kinds=all_kinds(table))
    known = labels.astype(object)
    known[split.test] = None
    rows = Validation(split.validation, probe_rows=split.train, held_out=False)
    estimator.fit(table, known, validation=rows, run=run, on_epoch=on_epoch)


# --- embeddings of all rows, cached in the results folder

RANKING = tuple(measure for measure in MEASURES if measure[1] != "balanced")
"""What rows may be ranked by. Without "balanced": where columns are of one kind it is the mean
again, and what was chosen among the others stays comparable."""
SCORES = tuple(f"{kind} {aggregate}" for kind, aggregate in RANKING)
"""their names"""

ANSWERS: tuple[tuple[Question, Aggregate], ...] = (
    ("unpredictable", "mean"), ("atypical", "mean"), ("ambiguous", "mean"),
)  # fmt: skip
"""What the setting "default" asks besides: questions of ``VarTJEPA.uncertainty``."""
ANSWER_SCORES = tuple(f"{kind} {aggregate}" for kind, aggregate in ANSWERS)
DEFAULT_SCORE = "unpredictable mean"
"""What ``uncertainty(table)`` gave when the rows of the setting "default" were made."""
LOG_EVERY = 10
"""epochs of a training with defaults between two lines"""

CHUNK = 2048
"""rows embedded at a time: MNIST's 784 × 64 numbers a row are 400 MB of them"""
DIAGNOSED = 1000
"""rows that are checked for a collapse"""
HALF_FROM = 2**30
"""bytes in float32 from which embeddings are stored in half precision"""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Embedded:
    """A learned representation of all rows."""

    tokens: Tensor  # (N, D, d) float32, or float16 where large
    scores: Mapping[str, Floats]
    """of ``SCORES`` and, in the setting "default", ``ANSWER_SCORES``, (N,) each; empty for a model
    without uncertainty"""
    training: Mapping[str, Any]
    """how it was made: seconds, epochs, the best epoch, where, and what ``CollapseDiagnosis`` says
    of the first rows"""


def obtain(
    folder: Path, name: str, spec: AnyTraining, data: Dataset, device: str, log: Log
) -> Embedded:
    """Load the embeddings, or make them from the model, which is loaded or trained."""
    path = embedding_path(folder, name)
    if path.exists():
        return read_embedded(path, _stamp(spec, data))
    estimator, training = obtain_model(folder, name, spec, data, device, log)
    log(f"{name}: embedding {data.table.num_rows} rows")
    tokens = embed_table(estimator, data.table)
    scores = {}
    if isinstance(estimator, VarTJEPA):
        measures = (*RANKING, *ANSWERS) if isinstance(spec, DefaultTraining) else RANKING
        scores = score_table(estimator, data.table, measures)
    # T-JEPA's embeddings can collapse in several ways
    diagnosis = diagnose_collapse(tokens[:DIAGNOSED].float().numpy())
    for figure in ("scale", "effective_rank", "varying_share", "silent_share"):
        training[figure] = round(getattr(diagnosis, figure), 6)
    made = Embedded(tokens, scores, training)
    tensors = {"tokens": tokens}
    tensors |= {name: torch.from_numpy(values.copy()) for name, values in scores.items()}
    make_folder(path.parent)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={"training": json.dumps(dict(made.training))})
    return made


def obtain_model(
    results: Path, name: str, spec: AnyTraining, data: Dataset, device: str, log: Log
) -> tuple[VarTJEPA | TJEPA, dict[str, Any]]:
    """The fitted estimator and what its training was: from its model folder, or trained now."""
    folder, checkpoints = results / "models" / name, results / "checkpoints" / name
    stamp = _stamp(spec, data)
    record = folder / "training.json"  # written last: with it the folder is whole
    if record.exists():
        training: dict[str, Any] = read_json(record)
        refuse_other(folder, training["stamp"], stamp)
        _forget(checkpoints)  # of a run that was killed before it could
        kind = TJEPA if spec.model == "t_jepa" else VarTJEPA
        return kind.load(folder).set_params(device=device), training
    estimator: VarTJEPA | TJEPA
    if isinstance(spec, DefaultTraining):
        estimator, every = VarTJEPA(device=device, random_state=spec.seed), LOG_EVERY
        if spec.epochs:  # a smoke run
            estimator.set_params(training__epochs=spec.epochs)
    else:
        estimator, every = build_estimator(spec, device), spec.check_every
    start = time.perf_counter()

    def on_epoch(epoch: Mapping[str, Any]) -> None:
        if epoch["epoch"] % every == 0:
            scores = ", ".join(
                f"{key} {epoch[key]:.4f}"
                for key in ("loss", "filtered accuracy", "accuracy")
                if epoch.get(key) is not None
            )
            most = "" if spec.epochs is None else f" of {spec.epochs}"
            log(f"{name}: epoch {epoch['epoch']}{most}, {scores}")

    run = Run(checkpoint_dir=checkpoints, resume=True)
    try:
        if isinstance(spec, DefaultTraining):
            estimator.fit(data.table, run=run, on_epoch=on_epoch)
        else:
            split = data.split(spec.split_seed)
            fit_on_all_rows(estimator, data.table, data.label, split, run, on_epoch)
    except InputError as error:
        if "resume" in str(error):
            raise InputError(f"{error}; remove {checkpoints} to start over") from error
        raise
    seconds = time.perf_counter() - start
    before = max(0.0, sum(epoch["seconds"] for epoch in estimator.history_) - seconds)
    training = {
        "stamp": stamp,
        "seconds": round(before + seconds, 1),
        "seconds_before": round(before, 3),  # of earlier runs, maybe on other machines
        "best_epoch": estimator.best_epoch_,
        "epochs": len(estimator.history_),
        "sha256": data.sha256,
        "environment": describe_environment(str(pick_device(device))),
    }
    if isinstance(spec, DefaultTraining):
        kinds = estimator.settings_kinds
        training["defaults"] = {part: plain(estimator.settings(part)) for part in kinds}
    estimator.save(folder)
    write_json(record, training)
    _forget(checkpoints)
    return estimator, training


def embedding_path(results: Path, name: str) -> Path:
    return results / "embeddings" / f"{name}.safetensors"


def refuse_orphans(results: Path, name: str) -> None:
    """A model that is trained anew is not the one that cached embeddings are of."""
    path, folder = embedding_path(results, name), results / "models" / name
    if path.exists() and not (folder / "training.json").exists():
        raise InputError(
            f"{path} is there but its model {folder} is not: bring it back, or remove the "
            "embeddings to train both again"
        )


def _stamp(spec: AnyTraining, data: Dataset) -> dict[str, Any]:
    """What a cached model or embedding must be of."""
    return {"settings": plain(spec), "dataset": data.name}


def _forget(checkpoints: Path) -> None:
    remove_checkpoints(checkpoints)
    with suppress(OSError):  # of another training, or never there
        checkpoints.parent.rmdir()


def embed_table(estimator: VarTJEPA | TJEPA, table: pa.Table) -> Tensor:
    """Tokens of all rows, a block at a time; half precision where they are large.  # (N, D, d)"""
    tokens, start = torch.empty(0), 0
    for block in estimator.embed_blocks(table, CHUNK):
        if not start:
            shape = (table.num_rows, *block.mean.shape[1:])
            is_large = 4 * math.prod(shape) >= HALF_FROM
            tokens = torch.empty(shape, dtype=torch.float16 if is_large else torch.float32)
        tokens[start : start + len(block.mean)] = torch.from_numpy(block.mean)
        start += len(block.mean)
    if not tokens.isfinite().all():
        raise InputError("the embeddings are not finite; the training has diverged")
    return tokens


def score_table(
    estimator: VarTJEPA, table: pa.Table, measures: Sequence[tuple[Any, Any]] = RANKING
) -> dict[str, Floats]:
    """Every score of ``measures`` of every row, all in one pass."""
    scores = estimator.uncertainties(table, measures)
    return {name: values.astype(np.float64) for name, values in scores.items()}


def read_embedded(path: Path, stamp: Mapping[str, Any]) -> Embedded:
    """Read embeddings back, or refuse them in one sentence."""
    try:
        with safe_open(path, "pt") as file:
            training = json.loads(file.metadata()["training"])
            refuse_other(path, training["stamp"], stamp)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged; delete it, and it is made again") from error
    tokens = tensors.pop("tokens")
    scores = {name: tensors[name].numpy() for name in (*SCORES, *ANSWER_SCORES) if name in tensors}
    return Embedded(tokens, scores, training)


def refuse_other(path: Path, theirs: Any, ours: Any) -> None:
    """Nothing made with other settings is used, and nothing of it is overwritten."""
    if not same_settings(theirs, ours):
        raise InputError(f"{path} was made with other settings; choose another folder")
