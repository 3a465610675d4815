"""Supervised predictors on raw features or embeddings, the seeds of one trained as one model."""

from varjepa.downstream.inputs import ADAPTERS, DEFAULT_ADAPTER, Inputs, RawFeatures, Split, Tokens
from varjepa.downstream.predictor import (
    FitOptions,
    Predictor,
    SeedModels,
    SeedPredictions,
    fit_models,
    fit_seeds,
)
from varjepa.downstream.registry import FIGURE_PROBE, PREDICTORS, PredictorKind, TrainingSettings

__all__ = [
    "ADAPTERS",
    "DEFAULT_ADAPTER",
    "FIGURE_PROBE",
    "PREDICTORS",
    "FitOptions",
    "Inputs",
    "Predictor",
    "PredictorKind",
    "RawFeatures",
    "SeedModels",
    "SeedPredictions",
    "Split",
    "Tokens",
    "TrainingSettings",
    "fit_models",
    "fit_seeds",
]
