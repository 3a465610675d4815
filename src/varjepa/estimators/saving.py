"""A fitted estimator as a model folder's content, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from varjepa.estimators.parameters import model_settings, table_shape
from varjepa.model_folder import SavedModel
from varjepa.models.var_t_jepa.model import VarTJepa
from varjepa.tables import TableCodec
from varjepa.training.alarm import CollapseReport

if TYPE_CHECKING:
    from varjepa.estimators.var_t_jepa import VarTJEPA

_NOT_SAVED = ("log_dir", "verbose")
"""Parameters about one machine's folders and screens."""


def to_saved(estimator: VarTJEPA) -> SavedModel:
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


def restore(estimator: VarTJEPA, saved: SavedModel) -> None:
    """Make an estimator with the saved parameters a fitted one."""
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
    estimator.model_ = VarTJepa(table_shape(estimator.codec_), model_settings(estimator))
    estimator.model_.load_state_dict(saved.tensors, strict=True)
    estimator.model_.eval()
