"""The paper's protocol for a representation: learn from all rows, let some labels pick the moment.

Codec and networks see the features of every row, test rows too, and no label. The labels of the
training rows fit a linear probe, those of the validation rows score it, and the best moment is
kept: labels of test rows select nothing. An estimator's own ``fit(X, y)`` cannot say that, because
it draws its validation rows from the rows it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from varjepa.datasets.dataset import Split
from varjepa.errors import InputError
from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.estimators.base import TableEstimator
from varjepa.estimators.resuming import claim, identity_of, open_checkpoints
from varjepa.experiments.pretraining import Pretraining
from varjepa.experiments.results import plain
from varjepa.models.rows import take_rows
from varjepa.training.distributed import ALONE
from varjepa.training.selection import FilteredProbe
from varjepa.training.sources import HeldRows
from varjepa.training.state import Record, seconds_before

OnEpoch = Callable[[Record], None]


def build_estimator(spec: Pretraining, device: str) -> TableEstimator:
    """The estimator of a training; what the paper leaves open has the estimator's defaults."""
    o = dict(spec.hyperparameters)
    for name in ("dropout", "predictor_dropout", "warm_up_epochs", "anneal_epochs"):
        o.pop(name, None)
    shared = {
        "context_share": tuple(o.pop("context_share")),
        "target_share": tuple(o.pop("target_share")),
        "batch_size": o.pop("batch"),
        "epochs": spec.epochs,
        "check_every": spec.check_every,
        "patience": spec.patience,
        "predictor_depth": spec.predictor_depth,
        "warm_up_share": spec.warm_up_epochs / spec.epochs,
        **spec.open_details,
        "device": device,
        "random_state": spec.seed,
    }
    if spec.model == "t_jepa":
        return TJEPA(momentum=(o.pop("ema"), 1.0), **o, **shared)
    return VarTJEPA(**o, **shared)


def fit_on_all_rows(
    estimator: TableEstimator,
    spec: Pretraining,
    table: pa.Table,
    labels: NDArray[np.int64],  # (N,)
    classes: int,
    split: Split,
    on_epoch: OnEpoch = lambda record: None,
) -> float:
    """Fit in place; the labels of ``split.test`` are not read.

    Returns the seconds that earlier runs spent on it, where it goes on from their checkpoint.
    """
    e = estimator
    codec, rows = e._begin(table)
    device = rows.num.device
    settings = e._training_settings(len(rows))
    if spec.model == "var_t_jepa":
        settings = replace(settings, anneal_epochs=spec.anneal_epochs)
    known, held_out = (torch.as_tensor(part) for part in (split.train, split.validation))
    selection = FilteredProbe(
        take_rows(rows, known.to(device)),
        torch.as_tensor(labels[split.train], device=device),
        take_rows(rows, held_out.to(device)),
        torch.as_tensor(labels[split.validation], device=device),
        classes,
        spec.probe,
        e.seed_,
        e._discard,
        spec.standard_errors,
        ranked_by=spec.ranked_by,
    )
    with open_checkpoints(e, ALONE) as (checkpoints, past):
        if checkpoints is not None:
            identity = identity_of(e, codec, rows, selection)
            identity["settings"] = {**_beside_the_estimator(spec), **identity["settings"]}
            try:
                claim(checkpoints, past, identity)
            except InputError as error:
                raise InputError(f"{error}; remove {checkpoints.folder} to start over") from error
        e._train(
            codec, HeldRows(rows), settings, selection, on_epoch,
            checkpoints=checkpoints, past=past,
        )  # fmt: skip
    return 0.0 if past is None else seconds_before(past.facts)


def _beside_the_estimator(spec: Pretraining) -> dict[str, Any]:
    """What a training has that no parameter of its estimator says."""
    return {k: v for k, v in plain(spec).items() if k not in ("hyperparameters", "open_details")}
