"""One training of a representation: everything it depends on, from the tables of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any

from varjepa.datasets.catalogue import dataset_info
from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.estimators.parameters import OF_THE_RUN
from varjepa.estimators.validating import ONLINE_PROBE
from varjepa.experiments.our_settings import our_changes
from varjepa.experiments.tabular_settings import (
    PAPER,
    SCHEDULES,
    SPLIT_SEED,
    VARIATIONAL,
    Hyperparameters,
    Model,
    Schedule,
    Setting,
    paper_measure,
)
from varjepa.models.var_t_jepa.scoring import Measure
from varjepa.training.linear_probe import LinearProbeSettings

_DECIDED_ELSEWHERE = (
    *OF_THE_RUN, "precision", "random_state", "column_kinds", "validation_share", "output",
    "batch_size", "warm_up_share", "anneal_share", "momentum",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything; smaller than full for a smoke run. Part of every row's settings."""

    rows: int | None = None
    """first rows of a dataset (their order is random already); None: all"""
    epochs: int | None = None
    """of a representation, warm-up and annealing shortened alike; None: its schedule's"""
    depth: int | None = None
    """most layers of any transformer of a representation; None: its setting's"""
    predictor_epochs: int | None = None
    """of a neural predictor; None: 50"""


FULL = Scale()

QUICK = Scale(rows=1500, epochs=8, depth=2, predictor_epochs=8)
"""a smoke form: shows that everything runs, not what comes out"""


@dataclass(frozen=True, slots=True)
class Pretraining:
    """Everything a learned representation depends on besides the data."""

    model: Model
    hyperparameters: Mapping[str, Any]
    """of ``Hyperparameters``, those the model has"""
    open_details: Mapping[str, Any]
    """parameters of the estimator that the paper does not have"""
    probe: LinearProbeSettings
    """the classifier that picks the moment to keep"""
    ranked_by: Measure
    """how uncertain a validation row is: the most uncertain ones do not count for the probe"""
    standard_errors: float
    """of the probe's accuracy, by which a later moment may be worse than the best"""
    epochs: int
    check_every: int
    patience: int
    warm_up_epochs: float
    """as trained, shortened with the epochs"""
    anneal_epochs: tuple[float, float, float]
    """likewise; ignored by T-JEPA"""
    predictor_depth: int
    rows: int | None
    split_seed: int
    seed: int


def pretraining(
    dataset: str,
    model: Model,
    setting: Setting,
    scale: Scale,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> Pretraining:
    """The training that makes one representation.

    ``changes`` replaces hyperparameters, parts of the schedule or the estimator's parameters.
    """
    name = dataset_info(dataset).name
    wanted = {**(_our_changes(name, model) if setting == "ours" else {}), **(changes or {})}
    row = replace(PAPER[name], **_taken(wanted, Hyperparameters))
    schedule = replace(SCHEDULES[name], **_taken(wanted, Schedule))
    details = {**_defaults(model), **wanted}
    if details.keys() != _defaults(model).keys():
        raise ValueError(f"not a setting of {model}: {sorted(details.keys() - _defaults(model))}")
    epochs = scale.epochs or schedule.epochs
    shorter = min(1.0, epochs / schedule.epochs)
    if scale.depth is not None:
        row = replace(row, depth=min(row.depth, scale.depth))
    a, b, c = (shorter * epoch for epoch in row.anneal_epochs)
    unused = ("ema",) if model == "var_t_jepa" else VARIATIONAL
    return Pretraining(
        model=model,
        hyperparameters={
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(row).items()
            if key not in unused
        },
        open_details=details,
        probe=ONLINE_PROBE,
        ranked_by=schedule.ranked_by or paper_measure(name),
        standard_errors=schedule.standard_errors,
        epochs=epochs,
        check_every=min(schedule.check_every, epochs),
        patience=schedule.patience,
        warm_up_epochs=shorter * row.warm_up_epochs,
        anneal_epochs=(a, b, c),
        predictor_depth=min(schedule.predictor_depth, scale.depth or schedule.predictor_depth),
        rows=scale.rows,
        split_seed=SPLIT_SEED,
        seed=seed,
    )


def _our_changes(dataset: str, model: Model) -> dict[str, Any]:
    """T-JEPA takes those of Var-T-JEPA's that it has."""
    lacking = _defaults("var_t_jepa").keys() - _defaults(model).keys()
    return {k: v for k, v in our_changes(dataset).items() if k not in lacking}


def _taken(changes: dict[str, Any], kind: type) -> dict[str, Any]:
    """Remove and return the changes that are fields of a dataclass."""
    return {f.name: changes.pop(f.name) for f in fields(kind) if f.name in changes}


@cache
def _defaults(model: Model) -> Mapping[str, Any]:
    """Parameters of an estimator that neither the paper nor the machine decides."""
    estimator = VarTJEPA() if model == "var_t_jepa" else TJEPA()
    elsewhere = {f.name for kind in (Hyperparameters, Schedule) for f in fields(kind)}
    elsewhere |= set(_DECIDED_ELSEWHERE)
    return {k: v for k, v in estimator.get_params().items() if k not in elsewhere}
