"""The paper's predictors on raw features or embeddings, the seeds of one trained as one model."""

from paper.predictors.inputs import (
    COMPONENTS,
    DEFAULT_ADAPTER,
    SIZES,
    Adapter,
    InputEncoder,
    Inputs,
    RawEncoder,
    RawFeatures,
    Tokens,
    token_moments,
)
from paper.predictors.networks import require
from paper.predictors.training import (
    FIGURE_PROBE,
    PREDICTORS,
    FitOptions,
    LabelledInputs,
    PredictorKind,
    SeedModels,
    TrainingSettings,
    XGBoostSettings,
    fit_models,
)

__all__ = [
    "COMPONENTS",
    "DEFAULT_ADAPTER",
    "FIGURE_PROBE",
    "PREDICTORS",
    "SIZES",
    "Adapter",
    "FitOptions",
    "InputEncoder",
    "Inputs",
    "LabelledInputs",
    "PredictorKind",
    "RawEncoder",
    "RawFeatures",
    "SeedModels",
    "Tokens",
    "TrainingSettings",
    "XGBoostSettings",
    "fit_models",
    "require",
    "token_moments",
]
