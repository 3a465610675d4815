"""What an evaluation compares and how, checked before any work is done."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import get_args

from varjepa.environment import pick_device
from varjepa.errors import InputError
from varjepa.evaluate.predictors import PREDICTORS, default_predictors, require
from varjepa.evaluate.target import TaskChoice
from varjepa.tables import Kind

REPRESENTATIONS = {
    "raw": "raw",
    "pca": "PCA of raw",
    "t_jepa": "T-JEPA",
    "var_t_jepa": "Var-T-JEPA",
    "raw+var_t_jepa": "raw + Var-T-JEPA",
}
"""Names on the command line, and in tables."""

NEED_VAR_T_JEPA = ("var_t_jepa", "raw+var_t_jepa")


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """One comparison."""

    target: str
    """column to predict"""
    task: TaskChoice = "auto"
    """auto: numbers with many values are regressed on, everything else is classified"""
    representations: tuple[str, ...] = tuple(REPRESENTATIONS)
    """which to compare"""
    predictors: tuple[str, ...] = ()
    """which to train on each; empty: :func:`default_predictors`"""
    runs: int = 3
    """trainings of each predictor, on one split and one fitted representation"""
    epochs: int | None = None
    """of T-JEPA and Var-T-JEPA; None: the estimators' own default"""
    transductive: bool = False
    """fit representations on all rows, the paper's protocol; labels of test rows are never used"""
    labels_pick_checkpoint: bool = False
    """training labels choose the epoch of T-JEPA and Var-T-JEPA"""
    kinds: tuple[tuple[str, Kind], ...] = ()
    """columns that are not what they look like"""
    rows: int | None = None
    """evaluate on a random sample of this many rows; None: on all"""
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
    predictors = settings.predictors or default_predictors()
    representations = _ordered("--representations", settings.representations, REPRESENTATIONS)
    predictors = _ordered("--predictors", predictors, PREDICTORS)
    for name in predictors:
        require(name)
    if settings.task not in get_args(TaskChoice):
        raise InputError(f"--task {settings.task!r} is not one of {_listed(get_args(TaskChoice))}")
    if settings.labels_pick_checkpoint and settings.transductive:
        raise InputError(
            "--labels-pick-checkpoint needs labels of all rows that a representation is fitted on, "
            "so it does not go with --transductive"
        )
    pick_device(settings.device)
    return replace(settings, representations=representations, predictors=predictors)


def _ordered(option: str, chosen: Collection[str], known: Collection[str]) -> tuple[str, ...]:
    for name in chosen:
        if name not in known:
            raise InputError(f"{option} {name!r} is not one of {_listed(known)}")
    return tuple(name for name in known if name in chosen)


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)
