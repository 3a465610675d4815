"""scikit-learn estimators around the models."""

from varjepa.estimators.var_t_jepa import Embedding, VarTJEPA

__all__ = ["Embedding", "VarTJEPA"]
