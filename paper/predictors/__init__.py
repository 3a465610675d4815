"""Supervised predictors on raw features or embeddings, the seeds of one trained as one model."""

from paper.predictors.inputs import ADAPTERS, DEFAULT_ADAPTER, Inputs, RawFeatures, Tokens
from paper.predictors.predictor import (
    FitOptions,
    Predictor,
    SeedModels,
    SeedPredictions,
    fit_models,
    fit_seeds,
)
from paper.predictors.registry import FIGURE_PROBE, PREDICTORS, PredictorKind, TrainingSettings

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
    "Tokens",
    "TrainingSettings",
    "fit_models",
    "fit_seeds",
]
