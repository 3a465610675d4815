"""``varjepa evaluate``: the paper's comparison on a user's own table."""

from varjepa.evaluate.run import run_evaluation
from varjepa.evaluate.settings import EvaluateSettings, default_predictors

__all__ = ["EvaluateSettings", "default_predictors", "run_evaluation"]
