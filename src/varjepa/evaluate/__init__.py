"""``varjepa evaluate``: raw features compared with embeddings on a user's own table."""

from varjepa.evaluate.predictors import default_predictors
from varjepa.evaluate.run import EvaluateSettings, run_evaluation

__all__ = ["EvaluateSettings", "default_predictors", "run_evaluation"]
