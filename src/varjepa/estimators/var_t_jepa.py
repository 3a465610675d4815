"""VarTJEPA: the scikit-learn shell around tables, model and training.

The constructor only stores; everything learned ends in ``_``. Numbers live in the layers below:
this file turns tables into rows of tensors and results back into tables.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d
from torch import Tensor

from varjepa.errors import InputError
from varjepa.estimators.drawing import draw_marginals, numeric_limits, predicted_table
from varjepa.estimators.frames import (
    as_kind,
    fill_holes,
    frame_kind,
    like_input,
    to_arrow,
    with_all_columns,
)
from varjepa.estimators.parameters import (
    check_parameters,
    elbo_weights,
    model_settings,
    one_of,
    pick_device,
    table_shape,
    training_settings,
)
from varjepa.estimators.saving import restore, to_saved
from varjepa.model_folder import ModelFileError, load_model, save_model
from varjepa.models.var_t_jepa.embedding import (
    blocks_of,
    embed_rows,
    take_rows,
    whole_row_masks,
)
from varjepa.models.var_t_jepa.model import Rows, VarTJepa
from varjepa.models.var_t_jepa.sampling import complete_rows
from varjepa.models.var_t_jepa.scoring import (
    AGGREGATES,
    KINDS,
    Aggregate,
    Kind,
    objective_terms,
    score_rows,
)
from varjepa.randomness import generator_for, seeded_weights
from varjepa.tables import EncodedTable, Scaling, TableCodec, read_table
from varjepa.tables import Kind as ColumnKind
from varjepa.training.probe import ProbeSettings
from varjepa.training.progress import listening
from varjepa.training.selection import FilteredProbe, HeldOutObjective, Selection
from varjepa.training.settings import Precision, TrainingSettings
from varjepa.training.trainer import train
from varjepa.variational.elbo import ElboWeights, weighted_loss

Output = Literal["flat", "mean", "cls"]

ONLINE_PROBE = ProbeSettings(epochs=20, batch=512, learning_rate=1e-3, weight_decay=2e-5, hidden=0)
"""The linear probe that picks the checkpoint where labels are given."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """Posterior of every feature's token: where a row lies, and how sure the model is of it."""

    mean: NDArray[np.float32]  # (n, features, d)
    std: NDArray[np.float32]  # (n, features, d)
    features: tuple[str, ...]
    """names along the second axis"""

    def uncertainty(self, aggregate: Aggregate = "mean") -> NDArray[np.float32]:
        """One number per row: mean or 90th percentile of its standard deviations.  # (n,)"""
        flat = self.std.reshape(len(self.std), -1)
        if aggregate == "mean":
            return flat.mean(1)
        return np.quantile(flat, 0.9, axis=1).astype(np.float32)

    def per_column(self) -> NDArray[np.float32]:
        """One number per row and feature.  # (n, features)"""
        return self.std.mean(2)


class VarTJEPA(TransformerMixin, BaseEstimator):
    """Label-free embeddings of tables, with uncertainty, imputation and sampling.

    Any table: pandas, polars and Arrow frames, numpy arrays, paths of CSV, Parquet and Feather
    files; with numbers, categories, dates and missing cells in any mix.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(50, 3))
        >>> model = VarTJEPA(d=8, depth=1, epochs=60, learning_rate=0.01, random_state=0).fit(X)
        >>> model.transform(X).shape, model.uncertainty(X).shape
        ((50, 24), (50,))
    """

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
        imputer_width: int = 64,
        imputer_depth: int = 3,
        imputer_heads: int = 4,
        imputer_ff: int = 128,
        imputer_kl: float = 0.01,
        n_cls: int = 1,
        l_pool: int = 4,
        auxiliary_layers: int = 2,
        cls_in_context: bool = True,
        min_noise_variance: float = 1e-4,
        context_share: tuple[float, float] = (0.1, 0.9),
        target_share: tuple[float, float] = (0.1, 0.6),
        targets: int = 2,
        alpha_rec: float = 0.1,
        alpha_gen: float = 1.0,
        alpha_kl_sx: float = 1e-4,
        alpha_kl_z: float = 1e-6,
        alpha_kl_sy: float = 1e-5,
        epochs: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float = 1e-3,
        warm_up_share: float = 0.1,
        anneal_share: float = 0.2,
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
        self.imputer_width = imputer_width
        self.imputer_depth = imputer_depth
        self.imputer_heads = imputer_heads
        self.imputer_ff = imputer_ff
        self.imputer_kl = imputer_kl
        self.n_cls = n_cls
        self.l_pool = l_pool
        self.auxiliary_layers = auxiliary_layers
        self.cls_in_context = cls_in_context
        self.min_noise_variance = min_noise_variance
        self.context_share = context_share
        self.target_share = target_share
        self.targets = targets
        self.alpha_rec = alpha_rec
        self.alpha_gen = alpha_gen
        self.alpha_kl_sx = alpha_kl_sx
        self.alpha_kl_z = alpha_kl_z
        self.alpha_kl_sy = alpha_kl_sy
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warm_up_share = warm_up_share
        self.anneal_share = anneal_share
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
        self.verbose = verbose
        self.random_state = random_state

    # --- learning

    def fit(self, X: Any, y: ArrayLike | None = None) -> VarTJEPA:
        """Learn from unlabelled rows; class labels y, where given, only pick the checkpoint."""
        check_parameters(self)
        table = to_arrow(self, X, reset=True)
        codec = TableCodec.fit(
            table, self.column_kinds, scaling=self.scaling, max_levels=self.max_levels
        )
        rows = self._rows(codec.encode(table))
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        with seeded_weights(self.seed_):
            model = VarTJepa(table_shape(codec), model_settings(self)).to(rows.num.device)
        training, validation = self._split(len(rows), rows.num.device)
        settings = training_settings(self, len(training))
        selection = self._selection(rows, training, validation, y, settings)
        log_dir = None if self.log_dir is None else Path(self.log_dir)
        with listening(bool(self.verbose), log_dir, self.tensorboard) as listeners:
            result = train(
                model,
                take_rows(rows, training),
                settings,
                selection,
                self.seed_,
                listeners.on_epoch,
                listeners.on_step,
                row_numbers=training,
            )
        # codec and model together, and only now: a fit that failed leaves no half-fitted estimator
        self.codec_, self.model_ = codec, model.cpu()
        self.history_ = result.history
        self.best_epoch_ = result.best_epoch
        self.selected_by_ = selection.name
        self.collapse_ = result.collapse
        if result.collapse.collapsed:
            warnings.warn(
                f"the latents have collapsed: {result.collapse.active_units:.1f} of {self.d} "
                "dimensions per column vary across rows; train longer, raise alpha_rec and "
                "alpha_gen, or lower the KL weights",
                stacklevel=2,
            )
        return self

    # --- reading

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Posterior means as a 2-D array; ``output`` says which."""
        if self.output == "cls":
            return self._blockwise(X, cls_means).reshape(-1, self.n_cls * self.d)
        mean = self._blockwise(X, lambda model, rows: embed_rows(model, rows).mean)
        return mean.mean(1) if self.output == "mean" else mean.reshape(len(mean), -1)

    def embed(self, X: Any) -> Embedding:
        """Posterior means and standard deviations of every feature's token."""
        both = self._blockwise(X, mean_and_std)
        mean, std = np.split(both, 2, axis=-1)
        return Embedding(mean, std, tuple(f.name for f in self.codec_.features))

    def uncertainty(
        self,
        X: Any,
        kind: Kind = "posterior",
        aggregate: Aggregate = "mean",
        per_column: bool = False,
    ) -> NDArray[np.float32]:
        """How uncertain each row is, or with ``per_column`` each of its features (NaN: no value).

        ``kind``: "posterior", the paper's (std of the latents given the row); "predictive" (std
        given the other columns); "surprise" (how far the row moves the latents from what the
        other columns predict); "nll" (how unlikely its values are given the other columns).
        """
        one_of("kind", kind, KINDS)
        one_of("aggregate", aggregate, AGGREGATES)

        def score(model: VarTJepa, rows: Rows) -> Tensor:
            scores = score_rows(model, rows, kind, self.seed_)
            return scores.per_column() if per_column else scores.per_row(aggregate)

        return self._blockwise(X, score)

    def score_samples(self, X: Any, terms: bool = False) -> Any:
        """Minus the objective of each row, latents at their means: higher is more typical.

        With ``terms``, a dict of the five terms (rec, gen, kl_sx, kl_z, kl_sy) per row instead.
        """
        names = list(ElboWeights.__dataclass_fields__)

        def score(model: VarTJepa, rows: Rows) -> Tensor:
            found = objective_terms(model, rows, self.seed_)
            each = [getattr(found, name) for name in names]
            return torch.stack([*each, -weighted_loss(found, elbo_weights(self))], dim=-1)

        columns = self._blockwise(X, score)  # (n, 6)
        if terms:
            return {name: columns[:, i] for i, name in enumerate(names)}
        return columns[:, -1]

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of :meth:`score_samples`, so that a grid search works without labels."""
        return float(np.mean(self.score_samples(X)))

    # --- filling and drawing

    def impute(
        self,
        X: Any,
        n_samples: int = 1,
        z: Literal["posterior", "prior"] = "posterior",
        random_state: Any = None,
    ) -> Any:
        """Fill the missing cells; every other cell is returned as it came.

        One sample is the model's best guess (mean or most likely level); several are draws, in a
        list. Values go through the predictor and the decoder, never through the target posterior.
        """
        check_is_fitted(self)
        one_of("z", z, ("posterior", "prior"))
        if n_samples < 1:
            raise InputError(f"n_samples must be at least 1, not {n_samples}")
        table = to_arrow(self, X, reset=False)
        rows = self._rows(self.codec_.encode(table))
        generator = self._generator(random_state)
        model = self.model_.to(rows.num.device)
        draws = [
            predicted_table(model, self.codec_, rows, generator, n_samples > 1, z == "prior")
            for _ in range(n_samples)
        ]
        self.model_.cpu()
        filled = [like_input(fill_holes(table, draw), X) for draw in draws]
        return filled[0] if n_samples == 1 else filled

    def sample(
        self,
        n: int = 1,
        given: Any = None,
        z: Literal["posterior", "prior"] = "posterior",
        random_state: Any = None,
    ) -> Any:
        """Draw n rows; ``given`` fixes some columns (n rows of them, or one row for all).

        The result is of given's frame library, or of the one the model was fitted with.
        Whole rows are drawn column by column in random order, each given those already drawn.
        """
        check_is_fitted(self)
        one_of("z", z, ("posterior", "prior"))
        if n < 1:
            raise InputError(f"n must be at least 1, not {n}")
        fixed = self._given(n, given)
        encoded = self.codec_.encode(fixed)
        rows = self._rows(encoded)
        rows = Rows(rows.num, rows.cat, encoded.observed.to(rows.num.device))
        generator = self._generator(random_state)
        marginal = draw_marginals(self.codec_, n, generator)
        limits = numeric_limits(self.codec_, generator.device)
        model = self.model_.to(generator.device)
        drawn = complete_rows(model, rows, marginal, limits, generator, z == "prior")
        self.model_.cpu()  # a fitted estimator stays picklable anywhere
        values = self.codec_.decode(drawn.num.cpu().numpy(), drawn.cat.cpu().numpy())
        filled = fill_holes(fixed, values)
        return as_kind(filled, self.frame_ if given is None else frame_kind(given))

    # --- keeping

    def save(self, folder: str | Path) -> None:
        """Write a model folder: config.json, codec.json, model.safetensors, manifest.json."""
        check_is_fitted(self)
        save_model(Path(folder), to_saved(self))

    @classmethod
    def load(cls, folder: str | Path) -> VarTJEPA:
        """Read a model folder back; embeddings are the same to the last bit."""
        saved = load_model(Path(folder))
        try:
            if saved.config["estimator"] != cls.__name__:
                raise ValueError(saved.config["estimator"])
            estimator = cls(**saved.config["parameters"])
            restore(estimator, saved)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ModelFileError(
                f"{folder} does not hold a {cls.__name__} of this version"
            ) from error
        return estimator

    # --- scikit-learn

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns of :meth:`transform`."""
        check_is_fitted(self)
        heads = {
            "flat": [feature.name for feature in self.codec_.features],
            "mean": ["vartjepa"],
            "cls": [f"cls{i}" for i in range(self.n_cls)],
        }[self.output]
        return np.array([f"{head}_{i}" for head in heads for i in range(self.d)], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []
        tags.non_deterministic = False
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    # --- inside

    def _split(self, rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Rows to train on and rows to select with; the same rows where there are too few."""
        order = torch.randperm(rows, generator=generator_for(self.seed_, "split")).to(device)
        held_out = int(rows * self.validation_share)
        if held_out == 0:
            return order, order
        return order[held_out:], order[:held_out]

    def _selection(
        self,
        rows: Rows,
        training: Tensor,
        validation: Tensor,
        y: ArrayLike | None,
        settings: TrainingSettings,
    ) -> Selection:
        held_out = take_rows(rows, validation)
        if y is not None:
            labels = column_or_1d(y)
            check_consistent_length(rows.num, labels)
            if any(label is None or label != label for label in labels):
                raise InputError("y has missing labels; leave those rows out, or fit without y")
            if type_of_target(labels) in ("binary", "multiclass"):
                classes, codes = np.unique(labels, return_inverse=True)
                numbers = torch.as_tensor(codes, device=rows.num.device)
                return FilteredProbe(
                    take_rows(rows, training),
                    numbers[training],
                    held_out,
                    numbers[validation],
                    len(classes),
                    ONLINE_PROBE,
                    self.seed_,
                )
        return HeldOutObjective(held_out, settings.masks, settings.weights, self.seed_)

    def _rows(self, encoded: EncodedTable) -> Rows:
        encoded = encoded.to(pick_device(self.device))
        complete = bool(encoded.observed.all())
        return Rows(encoded.x_num, encoded.x_cat, None if complete else encoded.observed)

    def _blockwise(self, X: Any, compute: Callable[[VarTJepa, Rows], Tensor]) -> NDArray[Any]:
        """Compute something for every row in blocks of one size; the result as one array."""
        check_is_fitted(self)
        rows = self._rows(self.codec_.encode(to_arrow(self, X, reset=False)))
        if not len(rows):
            raise InputError("the table has no rows")
        model = self.model_.to(rows.num.device)
        parts = []
        with torch.no_grad():
            for block, count in blocks_of(rows):
                parts.append(compute(model, block)[:count].cpu())
        self.model_.cpu()
        return torch.cat(parts).numpy()

    def _given(self, n: int, given: Any) -> pa.Table:
        """The fixed columns of n rows to draw, and the others empty."""
        if given is None:
            nothing = {c.name: pa.nulls(n, c.type) for c in self.codec_.schema.columns}
            return pa.table(nothing)
        table = read_table(given)
        if table.num_rows == 1:
            table = table.take(pa.array(np.zeros(n, dtype=np.int64)))
        if table.num_rows != n:
            raise InputError(f"given has {table.num_rows} rows; give 1 row or {n}")
        return with_all_columns(table, self.codec_)

    def _generator(self, random_state: Any) -> torch.Generator:
        """Random numbers of one call: None continues from the fit's seed, the same every time."""
        seed = (
            self.seed_
            if random_state is None
            else check_random_state(random_state).randint(2**31 - 1)
        )
        generator = torch.Generator(pick_device(self.device))
        return generator.manual_seed(generator_for(int(seed), "drawing").initial_seed())


def mean_and_std(model: VarTJepa, rows: Rows) -> Tensor:
    """Both moments side by side.  # (B, D, 2d)"""
    q = embed_rows(model, rows)
    return torch.cat([q.mean, q.std], dim=-1)


def cls_means(model: VarTJepa, rows: Rows) -> Tensor:
    """Means of the context encoder's CLS latents, the whole row as context.  # (B, N_CLS, d)"""
    masks = whole_row_masks(rows, model.shape.features)
    return model.q_s_x(rows, masks).mean[:, : model.settings.n_cls]
