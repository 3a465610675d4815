"""What an evaluation compares and how, checked before any work is done."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from varjepa.downstream import PREDICTORS, TrainingSettings
from varjepa.downstream.optional import require
from varjepa.downstream.registry import predictor_kind
from varjepa.errors import InputError
from varjepa.estimators.parameters import pick_device
from varjepa.experiments.few_labels import longer_training
from varjepa.tables import Kind as ColumnKind

Task = Literal["auto", "classification", "regression"]
TASKS: tuple[Task, ...] = ("auto", "classification", "regression")

REPRESENTATIONS = {
    "raw": "raw",
    "pca": "PCA of raw",
    "t_jepa": "T-JEPA",
    "var_t_jepa": "Var-T-JEPA",
    "raw+var_t_jepa": "raw + Var-T-JEPA",
}
"""Names on the command line, and in tables."""

NEED_VAR_T_JEPA = ("var_t_jepa", "raw+var_t_jepa")

_PACKAGES = {
    "xgboost": "xgboost",
    "resnet": "rtdl_revisiting_models",
    "ft_transformer": "rtdl_revisiting_models",
}

LEAST_STEPS = 4000
"""Training steps that every neural predictor may take. Fifty epochs, the paper's, are plenty for
its datasets; on a table of a hundred rows they would leave a predictor of few inputs half trained,
and raw features would lose for that reason alone."""


def default_predictors() -> tuple[str, ...]:
    """A linear one, a network, and trees where they are installed: the cheap ones."""
    trees = ("xgboost",) if importlib.util.find_spec("xgboost") else ()
    return ("linear_probe", "mlp", *trees)


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """One comparison."""

    target: str
    """column to predict"""
    task: Task = "auto"
    """auto: numbers with many values are regressed, everything else is classified"""
    representations: tuple[str, ...] = tuple(REPRESENTATIONS)
    """which to compare"""
    predictors: tuple[str, ...] = ()
    """which to train on each; empty: :func:`default_predictors`"""
    runs: int = 3
    """trainings of each predictor, on one split and one fitted representation, as in the paper"""
    epochs: int | None = None
    """of T-JEPA and Var-T-JEPA; None: as many as the estimators take by themselves"""
    transductive: bool = False
    """fit representations on all rows, the paper's protocol; labels of test rows are never used"""
    labels_pick_checkpoint: bool = False
    """training labels pick the moment at which T-JEPA and Var-T-JEPA are kept"""
    kinds: tuple[tuple[str, ColumnKind], ...] = ()
    """columns that are not what they look like"""
    rows: int | None = None
    """evaluate on this many rows, drawn at random; None: on all"""
    device: str = "auto"
    """auto, cpu or cuda"""
    seed: int = 0
    """of the split, the representations and the first training of a predictor"""

    @property
    def seeds(self) -> list[int]:
        """One for each training of a predictor."""
        return [self.seed + run for run in range(self.runs)]


def check_settings(settings: EvaluateSettings) -> EvaluateSettings:
    """Refuse what cannot be done; the names in the order of their tables, defaults filled in."""
    for name in settings.representations:
        if name not in REPRESENTATIONS:
            raise InputError(
                f"--representations {name!r} is not one of {', '.join(REPRESENTATIONS)}"
            )
    for name in settings.predictors:
        if name not in PREDICTORS:
            raise InputError(f"--predictors {name!r} is not one of {', '.join(PREDICTORS)}")
        if name in _PACKAGES:
            require(_PACKAGES[name], name)
    if settings.task not in TASKS:
        raise InputError(f"--task {settings.task!r} is not one of {', '.join(TASKS)}")
    if settings.labels_pick_checkpoint and settings.transductive:
        raise InputError(
            "--labels-pick-checkpoint needs labels of all rows that a representation is fitted on, "
            "so it does not go with --transductive"
        )
    pick_device(settings.device)
    predictors = settings.predictors or default_predictors()
    return replace(
        settings,
        representations=_in_order(settings.representations, tuple(REPRESENTATIONS)),
        predictors=_in_order(predictors, tuple(PREDICTORS)),
    )


def training_of(predictor: str, rows: int) -> TrainingSettings:
    """The predictor's own settings; on few rows with smaller batches and more epochs."""
    return longer_training(predictor_kind(predictor).training, rows, LEAST_STEPS)


def _in_order(chosen: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in known if name in chosen)
