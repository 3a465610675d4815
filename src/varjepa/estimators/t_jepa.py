"""TJEPA: the deterministic baseline (Appendix D.4), in scikit-learn's manner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from varjepa.estimators.base import TableEstimator
from varjepa.estimators.settings import Output, settings_of
from varjepa.models.t_jepa import TJepa, TJepaSettings, embed_points
from varjepa.models.table_rows import TableShape
from varjepa.tables import Kind as ColumnKind
from varjepa.tables import Scaling
from varjepa.tables.encoded import EncodedTable
from varjepa.training.losses import TJepaLoss
from varjepa.training.settings import Precision


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
        >>> model = TJEPA(d=8, depth=1, epochs=20, random_state=0).fit(X)
        >>> model.transform(X).shape, model.embed(X).mean.shape
        ((50, 24), (50, 3, 8))
    """

    model_: TJepa
    _discard = 0.0
    _remedy = "train longer or with a lower learning rate, fit with labels, or use VarTJEPA"

    def __init__(
        self,
        *,
        d: int = 64,
        depth: int = 3,
        heads: int = 4,
        ff: int = 128,
        predictor_width: int = 16,
        predictor_depth: int = 4,
        predictor_heads: int = 4,
        predictor_ff: int = 256,
        n_cls: int = 1,
        n_aux: int = 4,
        momentum: tuple[float, float] = (0.996, 1.0),
        context_share: tuple[float, float] = (0.1, 0.9),
        target_share: tuple[float, float] = (0.1, 0.6),
        targets: int = 2,
        epochs: int | Literal["auto"] = "auto",
        max_steps: int | None = None,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float = 1e-3,
        warm_up_share: float = 0.1,
        weight_decay: float = 0.0,
        check_every: int = 4,
        patience: int = 5,
        validation_share: float = 0.1,
        column_kinds: Mapping[str, ColumnKind] | None = None,
        scaling: Scaling = "min_max",
        max_levels: int = 1000,
        output: Output = "flat",
        device: str = "auto",
        precision: Precision = "auto",
        capture: bool = True,
        log_dir: str | None = None,
        tensorboard: bool = False,
        checkpoint_dir: str | None = None,
        checkpoint_every: float = 30.0,
        resume: bool = False,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.d = d
        self.depth = depth
        self.heads = heads
        self.ff = ff
        self.predictor_width = predictor_width
        self.predictor_depth = predictor_depth
        self.predictor_heads = predictor_heads
        self.predictor_ff = predictor_ff
        self.n_cls = n_cls
        self.n_aux = n_aux
        self.momentum = momentum
        self.context_share = context_share
        self.target_share = target_share
        self.targets = targets
        self.epochs = epochs
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warm_up_share = warm_up_share
        self.weight_decay = weight_decay
        self.check_every = check_every
        self.patience = patience
        self.validation_share = validation_share
        self.column_kinds = column_kinds
        self.scaling = scaling
        self.max_levels = max_levels
        self.output = output
        self.device = device
        self.precision = precision
        self.capture = capture
        self.log_dir = log_dir
        self.tensorboard = tensorboard
        self.checkpoint_dir = checkpoint_dir
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.verbose = verbose
        self.random_state = random_state

    def embed(self, X: Any) -> PointEmbedding:
        """The target encoder's token of every feature."""
        tokens = self._blockwise(X, self._tokens)
        return PointEmbedding(tokens, tuple(f.name for f in self.codec_.features))

    # --- inside

    def _build(self, shape: TableShape) -> TJepa:
        return TJepa(shape, settings_of(self, TJepaSettings))

    def _objective(self, model: TJepa) -> TJepaLoss:
        return TJepaLoss(model)

    def _tokens(self, model: TJepa, rows: EncodedTable) -> Tensor:
        return embed_points(model, rows)

    def _cls(self, model: TJepa, rows: EncodedTable) -> Tensor:
        return model.s_w(rows)[:, : model.settings.n_cls]
