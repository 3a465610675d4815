"""All studies together: which datasets each takes, and what can be refused before hours of work.

The order is simulation, defaults, downstream, labels, uncertainty, sensitivity, tries. The
downstream study trains every embedding that the studies of few labels and of uncertainty look at,
and the first column of the sensitivity tables is its Adult; all find them in the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paper.datasets.loading import load_dataset, locate_dataset
from paper.defaults import DefaultsSettings, open_defaults
from paper.downstream import open_downstream, open_trainings
from paper.labels import open_labels
from paper.predictors.networks import require
from paper.sensitivity import open_sensitivity
from paper.settings import SENSITIVITY_DATASET, Scale
from paper.simulation import SimulationSettings, open_results
from paper.tries import open_tries
from paper.uncertainty import UncertaintyPlan, open_uncertainty

DEFAULTS_DATASETS = ("adult", "sim")
REPEATED_DATASETS = ("adult", "credit_default", "sim")
"""whose embeddings are trained from three seeds, so that a reader sees how much they vary"""
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Shares:
    """What each study takes of the datasets that are wanted, in the studies' own order."""

    downstream: list[str]
    repeated: list[str]
    """of them, with further pre-training seeds"""
    uncertainty: list[str]
    defaults: list[str]
    sensitivity: list[str]
    """Adult or nothing"""


def share_out(datasets: Sequence[str]) -> Shares:
    """Give every study its part; one whose part is empty has nothing to do.

    Examples:
        >>> share_out(["sim", "mnist"]).uncertainty, share_out(["sim", "mnist"]).sensitivity
        (['sim', 'mnist'], [])
    """

    def those_of(names: Sequence[str]) -> list[str]:
        return [name for name in names if name in datasets]

    return Shares(
        downstream=list(datasets),
        repeated=those_of(REPEATED_DATASETS),
        uncertainty=those_of(UncertaintyPlan().datasets),
        defaults=those_of(DEFAULTS_DATASETS),
        sensitivity=those_of([SENSITIVITY_DATASET]),
    )


def check_everything(
    folder: Path, datasets: Sequence[str], scale: Scale, defaults: DefaultsSettings
) -> None:
    """Refuse now what the last study would refuse: rows of other settings, packages, no data.

    A dataset that is nowhere on this machine is fetched now, unless it has rows already: a finished
    study needs no data.
    """
    open_results(folder, SimulationSettings())
    open_defaults(folder, defaults)
    found = open_downstream(folder, scale)
    open_trainings(folder, scale)
    open_uncertainty(folder, scale)
    open_sensitivity(folder, scale)
    open_labels(folder, scale)
    open_tries(folder, scale)
    require("xgboost", "xgboost")
    require("rtdl_revisiting_models", "resnet")
    for name in datasets:
        if locate_dataset(name).where == "not here" and not found.has(dataset=name):
            load_dataset(name)
