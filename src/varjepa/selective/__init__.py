"""Abstention people can act on: classifiers that answer only where a guarantee covers them."""

from varjepa.selective.classifier import SelectiveClassifier
from varjepa.selective.display import RiskCoverageDisplay

__all__ = ["RiskCoverageDisplay", "SelectiveClassifier"]
