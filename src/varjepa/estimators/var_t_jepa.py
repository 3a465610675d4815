"""VarTJEPA: embeddings with uncertainty, imputation and sampling, in scikit-learn's manner.

What ``VarTJEPA.embed`` gives back: a posterior per row and feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from varjepa.errors import InputError
from varjepa.estimators.base import TableEstimator
from varjepa.estimators.frames import (
    as_kind,
    fill_missing,
    frame_kind,
    like_input,
    to_arrow,
    with_all_columns,
)
from varjepa.estimators.settings import (
    Output,
    at_least_one,
    length_of,
    one_of,
    pick_device,
    settings_of,
)
from varjepa.models.inference import (
    AGGREGATES,
    KINDS,
    SPLITS,
    Aggregate,
    Cells,
    Kind,
    complete_rows,
    default_aggregate,
    draw_cells,
    embed_rows,
    likely_cells,
    objective_terms,
    predict_latents,
    score_rows,
    whole_row_masks,
)
from varjepa.models.masking import masks_from_cells
from varjepa.models.table_rows import TableShape
from varjepa.models.var_t_jepa import VarTJepa, VarTJepaSettings
from varjepa.randomness import generator_for
from varjepa.tables import Kind as ColumnKind
from varjepa.tables import Scaling, TableCodec, read_table
from varjepa.tables.encoded import EncodedTable
from varjepa.training.losses import VarTJepaLoss
from varjepa.training.settings import Precision, TrainingSettings
from varjepa.variational.elbo import ElboWeights, weighted_loss


@dataclass(frozen=True, slots=True)
class Embedding:
    """Posterior of every feature's token: where a row lies, and how sure the model is of it."""

    mean: NDArray[np.float32]  # (n, features, d)
    std: NDArray[np.float32]  # (n, features, d)
    features: tuple[str, ...]
    """names along the second axis"""

    def uncertainty(self, aggregate: Aggregate = "mean") -> NDArray[np.float32]:
        """The paper's score: how spread out a row's latents are given the whole row.  # (n,)

        ``VarTJEPA.uncertainty`` has others, and by default one that ranks rows more reliably.
        """
        one_of("aggregate", aggregate, AGGREGATES["posterior"])
        flat = self.std.reshape(len(self.std), -1)  # numpy: torch's quantile has a largest size
        if aggregate == "q90":
            return np.quantile(flat, 0.9, axis=1).astype(np.float32)
        return np.exp(np.log(flat).mean(1)) if aggregate == "geometric" else flat.mean(1)

    def per_column(self) -> NDArray[np.float32]:
        """One number per row and feature.  # (n, features)"""
        return self.std.mean(2)


# --- Predicted and drawn cells as tables.

_BATCH = 1024


def predicted_table(
    model: VarTJepa,
    codec: TableCodec,
    rows: EncodedTable,
    generator: torch.Generator,
    draw: bool,
    z_from_prior: bool,
) -> pa.Table:
    """A table with every unobserved cell predicted from the observed ones of its row.

    Cells are drawn, or are the model's best guess.
    """
    parts = []
    for part in rows.split(_BATCH):
        observed = part.observed
        if observed is None or bool(observed.all()):
            parts.append(Cells(part.num, part.cat))
            continue
        masks = masks_from_cells(observed, ~observed)
        latents = predict_latents(model, part, masks, generator if z_from_prior else None)
        parts.append(
            draw_cells(model, latents, generator) if draw else likely_cells(model, latents)
        )
    num = torch.cat([part.num for part in parts])
    cat = torch.cat([part.cat for part in parts])
    return codec.decode(num.cpu().numpy(), cat.cpu().numpy())


def draw_marginals(codec: TableCodec, n: int, generator: torch.Generator) -> Cells:
    """Independent values of every feature, as they are distributed in the training rows."""
    uniform = torch.rand(n, len(codec.features), generator=generator, device=generator.device)
    draws = uniform.cpu().double().numpy()  # (n, D)
    columns = [
        _quantile(marginal.quantiles, draws[:, j])
        if marginal.quantiles
        else _level(marginal.frequencies(), draws[:, j])
        for j, marginal in enumerate(codec.marginals)
    ]
    numeric = len(codec.numeric)
    num = np.column_stack([*columns[:numeric], np.empty((n, 0))])
    cat = np.column_stack([*columns[numeric:], np.empty((n, 0))])
    device = generator.device
    return Cells(
        torch.as_tensor(num, dtype=torch.float32, device=device),
        torch.as_tensor(cat, dtype=torch.long, device=device),
    )


def numeric_limits(codec: TableCodec, device: torch.device) -> tuple[Tensor, Tensor]:
    """Smallest and largest training value of every numeric feature, in network scale."""
    ends = [
        (m.quantiles[0], m.quantiles[-1]) if m.quantiles else (0.0, 0.0) for m in codec.marginals
    ]
    both = torch.tensor(ends[: len(codec.numeric)], dtype=torch.float32, device=device).view(-1, 2)
    return both[:, 0], both[:, 1]


def _quantile(quantiles: tuple[float, ...], uniform: np.ndarray) -> np.ndarray:
    return np.interp(uniform, np.linspace(0, 1, len(quantiles)), quantiles)


def _level(frequencies: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Level codes start at 1; a feature without levels stays MISSING."""
    if not len(frequencies):
        return np.zeros(len(uniform))
    return 1 + np.searchsorted(np.cumsum(frequencies)[:-1], uniform, side="right")


# --- VarTJEPA: embeddings with uncertainty, imputation and sampling, in scikit-learn's manner.
#
# Numbers live in the layers below: this file turns tables into rows of tensors and results
# back into
# tables.


class VarTJEPA(TableEstimator):
    """Label-free embeddings of tables, with uncertainty, imputation and sampling.

    Any table: pandas, polars and Arrow frames, numpy arrays, paths of CSV, Parquet and Feather
    files; with numbers, categories, dates and missing cells in any mix. ``fit`` also takes a folder
    or a pattern of Parquet files, which may be larger than memory.

    Args:
        d: width of tokens and latents; a multiple of ``heads``.
        depth, heads, ff: layers, attention heads and feed-forward width of both encoders.
        predictor_width, predictor_depth, predictor_heads, predictor_ff: the same of the predictor.
            A narrow one keeps the posterior's spread informative.
        imputer_width, imputer_depth, imputer_heads, imputer_ff: the same of the imputer, which
            fills holes and judges cells and changes nothing else. Depth 0: none, the predictor
            does it.
        imputer_kl: weight of KL(q ‖ r) in the imputer's own loss.
        n_cls: learned tokens in front of both encoders, at least 1.
        l_pool: tokens that the context is pooled to.
        auxiliary_layers: hidden layers of q(z | s_x).
        cls_in_context: whether pooling and predictor see the CLS latents; their KL then counts.
        noise_variance: σ² of the decoders before training.
        min_noise_variance: floor of σ².
        context_share: smallest and largest share of columns in a context.
        target_share: the same of a target.
        targets: K, target views per row and step.
        alpha_rec, alpha_gen: weights of −log p(x | s_x) and −log p(w | s_w).
        alpha_kl_sx, alpha_kl_z, alpha_kl_sy: final weights of the three KL terms.
        epochs: at most so many; "auto": about 1,400 steps, within 10 to 200 epochs. Of a table that
            is streamed, an epoch is a window of its rows, and the next one goes on from there.
        max_steps: at most so many optimiser steps, whatever ``epochs`` says; None: no limit.
        batch_size: rows per step; "auto": a twentieth of the training rows, within 32 to 512.
        learning_rate: AdamW's peak; a warm-up before it, a cosine to 0 after.
        warm_up_share: share of the epochs in which the rate rises.
        anneal_share: share of the epochs in which the KL weights rise.
        weight_decay: AdamW's, on matrices only.
        check_every: epochs between two looks at the validation rows.
        patience: looks without improvement before training stops.
        validation_share: rows held out to pick the checkpoint; 0: the training rows pick it.
        column_kinds: columns that are not what they look like, e.g. {"zip": "categorical"}.
        scaling: of numbers: "min_max", "standard" or "quantile".
        max_levels: most frequent levels of a category to keep; the others count as missing.
        output: what ``transform`` gives: "flat" (columns · d), "mean" over columns, "cls" tokens.
        device: "auto" (a GPU where there is one), "cpu" or "cuda".
        precision: "auto" (bfloat16 on a GPU, else float32), "float32", or "bfloat16" on a GPU.
        capture: whether a GPU replays recorded training steps.
        log_dir: folder for history.jsonl, a line per epoch.
        tensorboard: also write TensorBoard events there.
        checkpoint_dir: folder for checkpoints of the training, of which the newest two stay; a fit
            that is stopped (Ctrl-C, SIGTERM) leaves one of its very last step. Yours to remove once
            the model is saved.
        checkpoint_every: seconds between two, at least as many as keep their cost at 1 % of the
            training's time; 0: after every step, at any cost.
        resume: go on from the newest checkpoint there, where there is one, to the same weights as
            without the interruption; with other settings or another table, refuse. False: start
            over.
        verbose: 1 shows a progress bar.
        random_state: seed of weights, split, order, masks and noise.

    Attributes:
        history_: a record per epoch.
        best_epoch_, selected_by_: the epoch kept, and by what score.
        collapse_: what the collapse alarm saw.
        codec_: how columns become tensors.
        model_: the networks.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(50, 3))
        >>> model = VarTJEPA(d=8, depth=1, epochs=60, learning_rate=0.01, random_state=0).fit(X)
        >>> model.transform(X).shape, model.uncertainty(X).shape
        ((50, 24), (50,))
    """

    model_: VarTJepa
    _discard = 0.2
    _remedy = "train longer, raise alpha_rec and alpha_gen, or lower the KL weights"

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
        imputer_kl: float = 0.001,
        n_cls: int = 1,
        l_pool: int = 4,
        auxiliary_layers: int = 2,
        cls_in_context: bool = True,
        noise_variance: float = 1.0,
        min_noise_variance: float = 1e-4,
        context_share: tuple[float, float] = (0.1, 0.9),
        target_share: tuple[float, float] = (0.1, 0.6),
        targets: int = 2,
        alpha_rec: float = 0.1,
        alpha_gen: float = 1.0,
        alpha_kl_sx: float = 1e-4,
        alpha_kl_z: float = 1e-6,
        alpha_kl_sy: float = 1e-2,
        epochs: int | Literal["auto"] = "auto",
        max_steps: int | None = None,
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
        self.imputer_width = imputer_width
        self.imputer_depth = imputer_depth
        self.imputer_heads = imputer_heads
        self.imputer_ff = imputer_ff
        self.imputer_kl = imputer_kl
        self.n_cls = n_cls
        self.l_pool = l_pool
        self.auxiliary_layers = auxiliary_layers
        self.cls_in_context = cls_in_context
        self.noise_variance = noise_variance
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
        self.max_steps = max_steps
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
        self.checkpoint_dir = checkpoint_dir
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.verbose = verbose
        self.random_state = random_state

    # --- reading

    def embed(self, X: Any) -> Embedding:
        """Posterior means and standard deviations of every feature's token."""
        both = self._blockwise(X, mean_and_std)
        mean, std = np.split(both, 2, axis=-1)
        return Embedding(mean, std, tuple(f.name for f in self.codec_.features))

    def uncertainty(
        self,
        X: Any,
        kind: Kind = "predictive",
        aggregate: Aggregate | None = None,
        per_column: bool = False,
        splits: int = SPLITS,
    ) -> NDArray[np.float32]:
        """How uncertain each row is, or with ``per_column`` each of its features (NaN: no value).

        ``kind``: "predictive" (std of the latents given the other columns); "posterior", the
        paper's (given the whole row); "surprise" (how far the row moves the latents from what the
        other columns predict); "nll" (how unlikely its values are given the other columns).
        ``aggregate``, of a row's values: "mean" (the default, but for "predictive") or "q90"; of
        standard deviations also "geometric" (the default for "predictive"); of "nll" also
        "balanced": numbers and categories weigh the same, however many there are of each. A single
        feature needs none. ``splits``: how often the columns are cut into halves that predict each
        other; more is steadier and takes longer. "posterior" predicts nothing and has none.

        The default is not the paper's score: on Adult that one's ranking depends on the seed, and
        this one's does not (paper/LOG.md). "nll" sees rows unlike all others, "predictive"
        rows whose columns leave each other undecided.
        """
        one_of("kind", kind, KINDS)
        over = default_aggregate(kind) if aggregate is None else aggregate
        one_of(f"aggregate of {kind!r}", over, AGGREGATES[kind])
        at_least_one("splits", splits)

        def score(model: VarTJepa, rows: EncodedTable) -> Tensor:
            scores = score_rows(model, rows, (kind,), self.seed_, splits=splits)[kind]
            return scores.per_column() if per_column else scores.per_row(over)

        return self._blockwise(X, score)

    def uncertainties(self, X: Any) -> dict[str, NDArray[np.float32]]:
        """Every kind of :meth:`uncertainty` of each row, in one pass.  # (n,) each"""

        def score(model: VarTJepa, rows: EncodedTable) -> Tensor:
            found = score_rows(model, rows, KINDS, self.seed_)
            return torch.stack([found[k].per_row(default_aggregate(k)) for k in KINDS], dim=1)

        names: tuple[str, ...] = KINDS
        return dict(zip(names, self._blockwise(X, score).T, strict=True))

    def embed_and_judge(
        self, X: Any, kind: Kind = "predictive"
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Embeddings and uncertainties in one pass over the rows.

        Shape: means ``(n, features, d)``, one uncertainty per row ``(n,)`` and one per feature
        ``(n, features)``, as :meth:`embed` and :meth:`uncertainty` give them apart.
        """
        one_of("kind", kind, KINDS)
        features = len(self.codec_.features)

        def both(model: VarTJepa, rows: EncodedTable) -> Tensor:
            q = embed_rows(model, rows)
            scores = score_rows(model, rows, (kind,), self.seed_, q)[kind]
            per_row = scores.per_row(default_aggregate(kind)).unsqueeze(1)
            return torch.cat([q.mean.flatten(1), per_row, scores.per_column()], dim=1)

        flat, per_row, per_column = np.split(
            self._blockwise(X, both), [features * self.d, features * self.d + 1], axis=1
        )
        return flat.reshape(len(flat), features, self.d), per_row[:, 0], per_column

    def score_samples(self, X: Any, terms: bool = False) -> Any:
        """Minus the objective of each row, latents at their means: higher is more typical.

        With ``terms``, a dict of the five terms (rec, gen, kl_sx, kl_z, kl_sy) per row instead.
        """
        names = list(ElboWeights.__dataclass_fields__)

        def score(model: VarTJepa, rows: EncodedTable) -> Tensor:
            found = objective_terms(model, rows, self.seed_)
            each = [getattr(found, name) for name in names]
            return torch.stack([*each, -weighted_loss(found, self._weights())], dim=-1)

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
        list. Values go through imputer and decoder, never through the target posterior, which sees
        the row. ``random_state`` None: the same draws every time, from the fit's seed.
        """
        check_is_fitted(self)
        one_of("z", z, ("posterior", "prior"))
        at_least_one("n_samples", n_samples)
        table = to_arrow(self, X, reset=False)
        rows = self._rows(self.codec_.encode(table))
        generator = self._generator(random_state)
        model = self.model_.to(rows.num.device)
        draws = [
            predicted_table(model, self.codec_, rows, generator, n_samples > 1, z == "prior")
            for _ in range(n_samples)
        ]
        self.model_.cpu()
        filled = [like_input(fill_missing(table, draw, self.codec_), X) for draw in draws]
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
        ``random_state`` None: the same rows every time, from the fit's seed.
        """
        check_is_fitted(self)
        one_of("z", z, ("posterior", "prior"))
        at_least_one("n", n)
        fixed = self._given(n, given)
        rows = self._rows(self.codec_.encode(fixed))
        generator = self._generator(random_state)
        marginal = draw_marginals(self.codec_, n, generator)
        limits = numeric_limits(self.codec_, generator.device)
        model = self.model_.to(generator.device)
        drawn = complete_rows(model, rows, marginal, limits, generator, z == "prior")
        self.model_.cpu()  # a fitted estimator stays picklable anywhere
        values = self.codec_.decode(drawn.num.cpu().numpy(), drawn.cat.cpu().numpy())
        filled = fill_missing(fixed, values, self.codec_)
        return as_kind(filled, self.frame_ if given is None else frame_kind(given))

    # --- inside

    def _build(self, shape: TableShape) -> VarTJepa:
        return VarTJepa(shape, settings_of(self, VarTJepaSettings))

    def _objective(self, model: VarTJepa) -> VarTJepaLoss:
        return VarTJepaLoss(model, self._weights())

    def _tokens(self, model: VarTJepa, rows: EncodedTable) -> Tensor:
        return embed_rows(model, rows).mean

    def _cls(self, model: VarTJepa, rows: EncodedTable) -> Tensor:
        """Means of the context encoder's CLS latents, the whole row as context."""
        masks = whole_row_masks(rows, model.shape.features)
        return model.q_s_x(rows, masks).mean[:, : model.settings.n_cls]

    def _training_settings(self, rows: int) -> TrainingSettings:
        settings = super()._training_settings(rows)
        anneal = self.anneal_share * length_of(settings, rows)
        return replace(settings, anneal_epochs=(anneal, anneal, anneal))

    def _weights(self) -> ElboWeights:
        """Final weights of the five terms."""
        return ElboWeights(
            self.alpha_rec, self.alpha_gen, self.alpha_kl_sx, self.alpha_kl_z, self.alpha_kl_sy
        )

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


def mean_and_std(model: VarTJepa, rows: EncodedTable) -> Tensor:
    """Both moments side by side.  # (B, D, 2d)"""
    q = embed_rows(model, rows)
    return torch.cat([q.mean, q.std], dim=-1)
