"""TJEPA: the deterministic baseline (Appendix D.4), in scikit-learn's manner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from varjepa.estimators.base import TableEstimator
from varjepa.models.t_jepa import TJepa, embed_points
from varjepa.settings import PointArchitecture, PointObjective, PointTraining, at_least_one
from varjepa.tables.codec import EncodedTable
from varjepa.training.losses import TJepaLoss


@dataclass(frozen=True, slots=True)
class PointEmbedding:
    """A vector for every feature of every row."""

    mean: NDArray[np.float32]  # (n, features, d), named as in the variational Embedding
    features: tuple[str, ...]
    """names along the second axis"""


class TJEPA(TableEstimator):
    """Label-free embeddings of tables by predicting a slowly following copy of oneself.

    The baseline that :class:`VarTJEPA` is compared with: the same tables, tokens, masks and
    training; points instead of posteriors, so no uncertainty, no imputation and no sampling. What
    has a counterpart there has the same default here.

    Nothing in its loss forbids a collapse: see ``collapse_``, the ``scale`` and ``spread`` of the
    targets in ``history_``, and :func:`varjepa.metrics.collapse.diagnose_collapse`. With class
    labels the checkpoint is the one with the best validation accuracy of a linear probe. Without,
    it is the one with the least held-out loss, a weak criterion: the targets move, and a loss that
    is small because they all look alike is small too.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(50, 3))
        >>> small = PointArchitecture(d=8, depth=1)
        >>> model = TJEPA(small, training=PointTraining(epochs=20), random_state=0).fit(X)
        >>> model.transform(X).shape, model.embed(X).mean.shape
        ((50, 24), (50, 3, 8))
    """

    model_: TJepa
    settings_kinds: ClassVar = {
        "architecture": PointArchitecture,
        "objective": PointObjective,
        "training": PointTraining,
    }
    _network = TJepa
    _has_uncertainty = False
    _scaling = "min_max"
    _remedy = "train longer or with a lower learning rate, fit with labels, or use VarTJEPA"

    def embed(self, X: Any) -> PointEmbedding:
        """The target encoder's token of every feature."""
        return self._embed(self.encode(X))

    def embed_blocks(self, X: Any, rows: int = 2048) -> Iterator[PointEmbedding]:
        """The same a block of rows at a time, for tables whose embeddings do not fit in memory."""
        at_least_one("rows", rows)
        for block in self.encode(X).split(rows):
            yield self._embed(block)

    # --- inside

    def _loss(self, model: TJepa) -> TJepaLoss:
        return TJepaLoss(model, self.settings("objective"))

    def _tokens(self, model: TJepa, rows: EncodedTable) -> Tensor:
        return embed_points(model, rows)

    def _embed(self, rows: EncodedTable) -> PointEmbedding:
        tokens = self._compute(rows, self._tokens)
        return PointEmbedding(tokens, tuple(f.name for f in self.codec_.features))

    def _cls(self, model: TJepa, rows: EncodedTable) -> Tensor:
        return model.s_w(rows)[:, : model.settings.n_cls]
