"""scikit-learn estimators around the models."""

from varjepa.estimators.embedder import Embedder
from varjepa.estimators.t_jepa import TJEPA, PointEmbedding
from varjepa.estimators.var_t_jepa import Embedding, VarTJEPA

__all__ = ["TJEPA", "Embedder", "Embedding", "PointEmbedding", "VarTJEPA"]
