"""A fitted estimator as a model folder's content, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from varjepa.model_folder import SavedModel
from varjepa.tables import TableCodec
from varjepa.training.alarm import CollapseReport

if TYPE_CHECKING:
    from varjepa.estimators.base import TableEstimator

_NOT_SAVED = ("log_dir", "verbose")
"""Parameters about one machine's folders and screens."""


def to_saved(estimator: TableEstimator) -> SavedModel:
    """Everything a loaded estimator needs to answer as this one does."""
    parameters = {k: v for k, v in estimator.get_params().items() if k not in _NOT_SAVED}
    if not isinstance(estimator.random_state, int | None):
        parameters["random_state"] = None  # a generator's state is not a setting
    names = getattr(estimator, "feature_names_in_", None)
    config = {
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "seed": estimator.seed_,
        "best_epoch": estimator.best_epoch_,
        "selected_by": estimator.selected_by_,
        "collapse": asdict(estimator.collapse_),
        "n_features": estimator.n_features_in_,
        "feature_names": None if names is None else list(names),
        "frame": estimator.frame_,
        "history": estimator.history_,
    }
    return SavedModel(config, estimator.codec_.to_json(), dict(estimator.model_.state_dict()))


def restore(estimator: TableEstimator, saved: SavedModel) -> None:
    """Give an estimator with the saved parameters everything it had learned but the networks."""
    config = saved.config
    estimator.codec_ = TableCodec.from_json(saved.codec)
    estimator.seed_ = config["seed"]
    estimator.best_epoch_ = config["best_epoch"]
    estimator.selected_by_ = config["selected_by"]
    silent = tuple(config["collapse"]["silent_features"])
    estimator.collapse_ = CollapseReport(**{**config["collapse"], "silent_features": silent})
    estimator.n_features_in_ = config["n_features"]
    if config["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(config["feature_names"], dtype=object)
    estimator.frame_ = config["frame"]
    estimator.history_ = config["history"]
