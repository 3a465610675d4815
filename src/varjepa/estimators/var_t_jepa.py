"""VarTJEPA: embeddings with uncertainty, imputation and sampling, in scikit-learn's manner.

Numbers are made in the layers below: this file turns tables into rows of tensors, and results back
into tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from varjepa.errors import InputError
from varjepa.estimators import calibration
from varjepa.estimators.base import TableEstimator
from varjepa.estimators.calibration import DOUBT_SPLITS, DOUBTS
from varjepa.estimators.cells import (
    Asked,
    CellPredictions,
    cell_predictions,
    decode_values,
    draw_marginals,
    numeric_limits,
)
from varjepa.estimators.frames import (
    as_kind,
    fill_missing,
    frame_kind,
    in_own_types,
    like_input,
    to_arrow,
    with_all_columns,
    with_known_cells,
)
from varjepa.estimators.similar import comparable_rows, nearest_rows, row_numbers
from varjepa.estimators.summary import SHOWN, html_table, map_svg
from varjepa.models.cells import (
    MAX_PASSES,
    NORMAL_ENTROPY,
    Marginals,
    cell_statistics,
    conformity_scores,
    score_cells,
)
from varjepa.models.inference import (
    AGGREGATES,
    CELL_QUESTIONS,
    LATENT_KINDS,
    QUESTIONS,
    SPLITS,
    Aggregate,
    FeatureScores,
    LatentKind,
    Question,
    complete_rows,
    default_aggregate,
    embed_rows,
    most_likely_cells,
    objective_terms,
    predict_latents,
    sample_cells,
    score_rows,
    whole_row_masks,
)
from varjepa.models.masking import masks_from_cells
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.nn.row_threads import RowThreads
from varjepa.randomness import generator_for
from varjepa.settings import (
    Architecture,
    Objective,
    Training,
    at_least_one,
    is_share,
    one_of,
    pick_device,
)
from varjepa.tables import TableCodec, read_table
from varjepa.tables.codec import EncodedTable
from varjepa.tables.codec_json import StrictObject
from varjepa.tables.scaling import Bins
from varjepa.training.losses import VarTJepaLoss, elbo_weights
from varjepa.variational.elbo import ElboWeights, weighted_loss
from varjepa.variational.gaussian import DiagonalGaussian


@dataclass(frozen=True, slots=True, repr=False)
class Embedding:
    """Posterior of every feature's token: where a row lies, and how sure the model is of it."""

    mean: NDArray[np.float32]  # (n, features, d)
    std: NDArray[np.float32]  # (n, features, d)
    features: tuple[str, ...]
    """names along the second axis"""

    def __repr__(self) -> str:
        return f"Embedding({self._size()})"

    def _size(self) -> str:
        rows, features, d = self.mean.shape
        return f"{rows:,} rows, {features:,} features, {d} dimensions"

    def _repr_html_(self) -> str:
        """A map of the rows; per feature how much its means vary, how wide the posteriors are."""
        features = len(self.features)
        lines = [
            (name, f"{spread:.3g}", f"{width:.3g}")
            for name, spread, width in zip(
                self.features, self.mean.std(0).mean(-1), self.std.mean((0, 2)), strict=True
            )
        ]
        head = ("feature", "spread of the means over rows", "mean posterior deviation")
        more = f"<p>{features - SHOWN:,} more features.</p>" if features > SHOWN else ""
        table = html_table(head, lines[:SHOWN])
        return f"<div><b>Embedding</b>: {self._size()}{map_svg(self.mean)}{table}{more}</div>"


# --- predicted and sampled cells as tables

_BATCH = 1024

MAX_CALIBRATION_PASSES = 1 << 15
"""Rows times passes that the calibration of intervals takes at most."""


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

    def predict(part: EncodedTable) -> EncodedTable:
        observed = part.observed
        if observed is None or bool(observed.all()):
            return part
        masks = masks_from_cells(observed, ~observed)
        latents = predict_latents(model, part, masks, generator if z_from_prior else None)
        if draw:
            return sample_cells(model, latents, generator)
        return most_likely_cells(model, latents)

    # one generator: parts that draw from it come in order
    in_order = draw or z_from_prior or rows.num.device.type != "cpu"
    with RowThreads(1 if in_order else None) as threads:
        parts = list(threads.map(predict, list(rows.split(_BATCH))))
    num = torch.cat([part.num for part in parts])
    cat = torch.cat([part.cat for part in parts])
    if draw and model.settings.numbers == "bins":
        return decode_values(codec, num.cpu().numpy(), cat.cpu().numpy())
    return codec.decode(num.cpu().numpy(), cat.cpu().numpy(), on_step=draw)


def _entropy(shares: np.ndarray) -> float:
    return float(-(shares * np.log(np.maximum(shares, 1e-300))).sum())


def _mean(bins: Bins) -> float:
    """Mean of a number's training values; 0 where there are none."""
    return float((np.array(bins.share) * np.array(bins.mean)).sum())


def _std(bins: Bins) -> float:
    """Standard deviation of a number's training values; 1 where they do not vary."""
    off = np.array(bins.mean) - _mean(bins)
    return float(np.sqrt((np.array(bins.share) * off**2).sum())) or 1.0


# --- the estimator

DEFAULT_KIND: Question = "doubtful"
"""What :meth:`VarTJEPA.uncertainty` answers; how it was chosen is said there."""

Scorer = Callable[[VarTJepa, EncodedTable, DiagonalGaussian | None], FeatureScores]
"""Scores a block of rows; the last argument is their posterior, if it has been computed."""


class VarTJEPA(TableEstimator):
    """Label-free embeddings of tables, with uncertainty, imputation and sampling.

    Any table: pandas, polars and Arrow frames, numpy arrays, paths of CSV, Parquet and Feather
    files; with numbers, categories, dates and missing cells in any mix. ``fit`` also takes a folder
    or a pattern of Parquet files, which may be larger than memory.

    Args:
        architecture: sizes of the networks. None: ``Architecture()``, half as wide for a table of
            up to 2,000 training rows.
        objective: masks and weights of the ELBO's terms.
        training: length, optimisation, validation. Every field of these three is documented in
            :mod:`varjepa.settings`; change one with ``set_params(training__epochs=20)``.
        column_kinds: columns that are not what they look like, e.g. {"zip": "categorical"}.
        scaling: of numbers: "standard" (the default), "min_max" or "quantile".
        max_levels: most frequent levels of a category to keep; the others count as missing.
        output: what ``transform`` gives: "flat" (columns · d), "mean" over columns, "cls" tokens.
        device: "auto" (a GPU where there is one), "cpu" or "cuda".
        verbose: 1 shows progress; 2 also, before training, what was inferred of the table.
        random_state: seed of weights, split, order, masks and noise.

    Attributes:
        history_: a record per epoch.
        best_epoch_, selected_by_: the epoch selected, and by what score.
        collapse_: what the collapse alarm saw.
        calibration_: what :meth:`predict_cells` learned of its intervals on validation rows: for
            every numeric feature, the central mass to take for coverages .5, .8, .9, .95 and .99.
        clusters_: Gaussian mixtures of the embeddings, for ``uncertainty(X, "ambiguous")``.
        doubt_: how the parts of ``uncertainty(X, "doubtful")`` are distributed in training rows.
        neighbours_: up to 2,048 training rows, coded, for :meth:`outlier_score`; a model folder
            holds them too. :meth:`forget_rows` drops them.
        codec_: how columns become tensors.
        model_: the networks.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(50, 3))
        >>> small, short = Architecture(d=8, depth=1), Training(epochs=60, learning_rate=0.01)
        >>> model = VarTJEPA(small, training=short, random_state=0).fit(X)
        >>> model.transform(X).shape, model.uncertainty(X).shape
        ((50, 24), (50,))
    """

    model_: VarTJepa
    calibration_: NDArray[np.float64]  # (F_num, coverages)
    clusters_: calibration.Clusters
    neighbours_: calibration.Neighbours
    doubt_: calibration.Scales
    settings_kinds: ClassVar = {
        "architecture": Architecture,
        "objective": Objective,
        "training": Training,
    }
    _network = VarTJepa
    _has_uncertainty = True
    _scaling = "standard"
    _remedy = "train longer, raise alpha_rec and alpha_gen, or lower the KL weights"

    # --- embeddings and uncertainty

    def embed(self, X: Any) -> Embedding:
        """Posterior means and standard deviations of every feature's token."""
        return self._embed(self.encode(X))

    def embed_blocks(self, X: Any, rows: int = 2048) -> Iterator[Embedding]:
        """The same a block of rows at a time, for tables whose embeddings do not fit in memory."""
        at_least_one("rows", rows)
        for block in self.encode(X).split(rows):
            yield self._embed(block)

    def uncertainty(
        self,
        X: Any,
        kind: LatentKind | Question = DEFAULT_KIND,
        aggregate: Aggregate | None = None,
        splits: int = SPLITS,
    ) -> NDArray[np.float32]:
        """How uncertain each row is: one number a row.  # (n,)

        Args:
            X: a table.
            kind: which question is asked.

                - "doubtful" (the default): is it inconsistent, and are its values unlikely? The sum
                  of "inconsistent" and "nll", each in standard deviations of training rows.
                - "inconsistent": do its columns speak against each other?
                  log p(cell) − log p(cell | other columns), in units of the column's entropy; of a
                  row, the 75th percentile over its known cells. Below 0, the other columns support
                  the value.
                - "unpredictable": are its cells undecided given its other columns? The mean entropy
                  of the predicted cells, in the same units.
                - "atypical": are its values unlikely given its other columns? The mean of
                  −log p(cell | other columns). Rows unlike all others have high values.
                - "ambiguous": does it lie between clusters of the embeddings? The entropy of its
                  memberships in Gaussian mixtures that the fit has learned.
                - "posterior", the paper's: the spread of its latents given the whole row.
                - "predictive": the spread of its latents given the other columns.
                - "surprise": how far the row moves the latents from what the other columns predict.
                - "nll": minus the log-likelihood of its values given half of the columns.
            aggregate: over a row's values: "mean" or the percentile "q90"; of the first three also
                "q75" (the default for "inconsistent"); of standard deviations also "geometric" (the
                default for "predictive"); of "nll" also "balanced": numbers and categories weigh
                the same, however many there are of each. "ambiguous" has one value a row.
            splits: how often the columns are split into halves that predict each other, for
                "predictive", "surprise" and "nll"; more is steadier and takes longer. "doubtful"
                takes 8 for its likelihood.

        The default was chosen on ten tables, by how much it raises the accuracy of a classifier
        that leaves out uncertain rows (benchmarks/results/uncertainty-choice.json). Where labels
        exist, the classifier's own confidence does that better than any of these.
        """
        over = self._aggregate(kind, aggregate)
        at_least_one("splits", splits)
        return self._row_scores(self.encode(X), kind, over, splits)

    def uncertainties(
        self, X: Any, measures: Sequence[tuple[LatentKind | Question, Aggregate]] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Several uncertainties of each row, by name ("nll mean").  # (n,) each

        ``measures`` are pairs of kind and aggregate; None: the four kinds of the latents
        ("posterior", "predictive", "surprise", "nll"), with their usual aggregates.
        """
        pairs: Sequence[tuple[LatentKind | Question, Aggregate]]
        pairs = [(k, default_aggregate(k)) for k in LATENT_KINDS] if measures is None else measures
        if not isinstance(pairs, Sequence) or any(
            not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs
        ):
            raise InputError(f"measures must be pairs of kind and aggregate, not {measures!r}")
        wanted = [(kind, self._aggregate(kind, over)) for kind, over in pairs]
        kinds = dict.fromkeys(kind for kind, _ in wanted)
        latent = tuple(kind for kind in LATENT_KINDS if kind in kinds)
        others = {kind: self._scorer(kind, SPLITS) for kind in kinds if kind not in latent}

        def score(model: VarTJepa, rows: EncodedTable) -> Tensor:
            scores: dict[Any, FeatureScores] = {
                **score_rows(model, rows, latent, self.seed_),
                **{kind: scorer(model, rows, None) for kind, scorer in others.items()},
            }
            return torch.stack([scores[k].per_row(over) for k, over in wanted], dim=1)

        names = [f"{kind} {aggregate}" for kind, aggregate in wanted]
        return dict(zip(names, self._compute(self.encode(X), score).T, strict=True))

    def cell_uncertainty(
        self, X: Any, kind: LatentKind | Question = DEFAULT_KIND, splits: int = SPLITS
    ) -> Any:
        """How uncertain each cell is: a frame with the table's own columns in their own order.

        Kinds as in :meth:`uncertainty`, except "ambiguous"; a cell is "doubtful" as far as it is
        "inconsistent". A date counts with the mean over its
        parts. NaN where a column has no values and, for all kinds but "unpredictable", "posterior"
        and "predictive", where a cell is missing.
        """
        one_of("kind", kind, ("doubtful", *CELL_QUESTIONS, *LATENT_KINDS))
        at_least_one("splits", splits)
        check_is_fitted(self)
        table = to_arrow(self, X, reset=False)
        rows, scorer = self._encode(table), self._scorer(kind, splits)
        cells = self._compute(rows, lambda model, part: scorer(model, part, None).per_column())
        columns = self.by_column(cells, table.column_names)
        by_name = pa.table({name: pa.array(column) for name, column in columns.items()})
        return like_input(by_name, X, with_types=False)

    def outlier_score(self, X: Any) -> NDArray[np.float32]:
        """How unlike the training rows each row is: one number a row, higher is more so.  # (n,)

        Two parts, each in standard deviations of the training rows: the log distance to the 20th
        nearest of up to 2,048 training rows that the model keeps, and a quarter of
        ``uncertainty(X, "atypical")``. :meth:`outlier_parts` gives them one by one. How
        the score was chosen: benchmarks/results/outlier-choice.json.

        Missing cells count with the model's best guess, and so do levels that training did not
        have: they make no row an outlier. After :meth:`forget_rows` only the second part counts.
        """
        parts = self.outlier_parts(X)
        return self.neighbours_.combine(parts)

    def outlier_parts(self, X: Any) -> calibration.Parts:
        """What :meth:`outlier_score` is made of: "distance" (its logarithm) and "atypical"."""
        return self._outlier_parts(self.encode(X))

    def forget_rows(self) -> Self:
        """Drop the training rows that the model keeps for :meth:`outlier_score`.

        For models that are given away: ``model.forget_rows().save(folder)``. The folder still
        holds what the codec needs: the levels of categories with their counts, and quantiles and
        bins of numbers and dates.
        """
        check_is_fitted(self)
        self.neighbours_ = self.neighbours_.without_rows()
        return self

    def score_samples(self, X: Any) -> NDArray[np.float32]:
        """Minus the weighted ELBO terms of each row, latents at their means; higher: more typical.

        The prediction of values, which training adds to them, does not count here.
        """
        weights = elbo_weights(self.settings("objective"))

        def score(model: VarTJepa, rows: EncodedTable) -> Tensor:
            return -weighted_loss(objective_terms(model, rows, self.seed_), weights)

        return self._compute(self.encode(X), score)

    def score_terms(self, X: Any) -> dict[str, NDArray[np.float32]]:
        """The five unweighted terms of the objective (rec, gen, kl_sx, kl_z, kl_sy), per row."""
        names = list(ElboWeights.__dataclass_fields__)

        def score(model: VarTJepa, rows: EncodedTable) -> Tensor:
            terms = objective_terms(model, rows, self.seed_)
            return torch.stack([getattr(terms, name) for name in names], dim=-1)

        return dict(zip(names, self._compute(self.encode(X), score).T, strict=True))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of :meth:`score_samples`, so that a grid search works without labels."""
        return float(np.mean(self.score_samples(X)))

    def similar(self, X: Any, query: Any = None, k: int = 5) -> Any:
        """The k rows of X that are most similar to each row of ``query``, without any label.

        Args:
            X: the table that is searched.
            query: rows to find similar ones for: a table, or row numbers of X, as a list, a range
                or an array. None, or X itself: every row of X. A row of X is compared with the
                others and is never its own neighbour. A copy of it in another table does find it,
                at distance 0 but for rounding.
            k: how many.

        Returns:
            A frame of the query's library with k rows for each row of the query: ``query`` and
            ``row``, the numbers of both from 0; ``rank``, 1 for the most similar; ``distance``. Of
            a numpy array: these four as columns of an array.

        The distance is Euclidean, between rows that are described three times: by their values, by
        what is expected of each cell given the others, and by their latents. All columns count
        alike. Two rows of X have a squared distance of 1 on average. The search is exact.
        """
        at_least_one("k", k)
        rows = self.encode(X)
        numbers = None if query is X else row_numbers(query, len(rows))
        is_own = query is None or query is X or numbers is not None
        if k > len(rows) - is_own:
            have = f"{len(rows) - is_own} other" if is_own else f"{len(rows)}"
            raise InputError(f"k is {k}, but each row has only {have} rows to be compared with")
        points, asked = comparable_rows(self, rows, None if is_own else self.encode(query))
        distances, neighbours = nearest_rows(points, asked if numbers is None else numbers, k)
        numbers = np.arange(len(neighbours)) if numbers is None else numbers
        by_name = {
            "query": numbers.repeat(k),
            "rank": np.tile(np.arange(1, k + 1), len(numbers)),
            "row": neighbours.ravel(),
            "distance": distances.ravel(),
        }
        return as_kind(pa.table(by_name), frame_kind(X if is_own else query))

    # --- missing cells and new rows

    def impute(
        self, X: Any, z: Literal["posterior", "prior"] = "posterior", random_state: Any = None
    ) -> Any:
        """Fill missing cells with the model's best guess; every other cell stays as it came.

        The best guess is the mean, or the most likely level, given the known cells of the row.
        ``z`` "prior" samples z from its prior instead.
        """
        return self._filled(X, 1, False, z, random_state)[0]

    def impute_samples(
        self,
        X: Any,
        n: int = 5,
        z: Literal["posterior", "prior"] = "posterior",
        random_state: Any = None,
    ) -> list[Any]:
        """Several tables whose missing cells are sampled (multiple imputation).

        ``random_state`` None: the same samples every time, from the fit's seed.
        """
        at_least_one("n", n)
        return self._filled(X, n, True, z, random_state)

    def predict_cells(
        self, X: Any, coverage: float = 0.9, cells: Asked = "missing"
    ) -> CellPredictions:
        """Distributions of cells: best guesses, intervals, probabilities of levels.

        Args:
            X: a table.
            coverage: share of the cells that the intervals of numbers and dates hold. They are
                calibrated column by column on the fit's validation rows.
            cells: "missing", the missing cells given the known ones of their row; "all", also
                every known cell given all other columns of its row. That takes a pass per column;
                tables of more than 32 columns take 32 passes, which leave out several columns at a
                time.
        """
        check_is_fitted(self)
        one_of("cells", cells, ("missing", "all"))
        if not is_share(coverage):
            raise InputError(f"coverage must be above 0 and below 1, not {coverage!r}")
        table = to_arrow(self, X, reset=False)
        mass = torch.from_numpy(calibration.level_for(self.calibration_, coverage))

        def statistics(model: VarTJepa, block: EncodedTable, columns: Tensor) -> Tensor:
            here = mass.to(columns.device)
            return cell_statistics(model, block, columns, here, cells == "all")

        numbers = self.map_rows(self._encode(table), statistics)
        return cell_predictions(self.codec_, table, X, numbers, coverage, cells)

    def map_rows(
        self, X: Any, compute: Callable[[VarTJepa, EncodedTable, Tensor], Tensor]
    ) -> NDArray[Any]:
        """What ``compute`` gives for the rows of a table, a block at a time.

        It is called with the networks, encoded rows, and the number of every feature's column.
        """
        rows = self._rows(X if isinstance(X, EncodedTable) else self.encode(X))
        columns = torch.from_numpy(self.codec_.column_numbers()).to(rows.num.device)
        return self._compute(rows, lambda model, block: compute(model, block, columns))

    def sample(
        self,
        n: int = 1,
        given: Any = None,
        z: Literal["posterior", "prior"] = "posterior",
        random_state: Any = None,
    ) -> Any:
        """Draw n rows; ``given`` fixes some columns (n rows of them, or one row for all).

        The result is of the frame library that the model was fitted with, or of given's.
        Whole rows are drawn column by column in random order, each given those already drawn.
        ``random_state`` None: the same rows every time, from the fit's seed.
        """
        check_is_fitted(self)
        one_of("z", z, ("posterior", "prior"))
        at_least_one("n", n)
        fixed = self._given(n, given)
        rows = self._encode(fixed)
        generator = self._generator(random_state)
        marginal = draw_marginals(self.codec_, n, generator, self._has_bins)
        limits = numeric_limits(self.codec_, generator.device)
        model = self.model_.to(generator.device)
        drawn = complete_rows(model, rows, marginal, limits, generator, z == "prior")
        self.model_.cpu()  # a fitted estimator stays picklable anywhere
        num, cat = drawn.num.cpu().numpy(), drawn.cat.cpu().numpy()
        decode = decode_values if self._has_bins else TableCodec.decode
        values = decode(self.codec_, num, cat)
        filled = fill_missing(fixed, values, self.codec_)
        like_fit = given is None or isinstance(given, Mapping)
        return as_kind(filled, self.frame_ if like_fit else frame_kind(given))

    # --- inside

    @property
    def _predicts_values(self) -> bool:
        return bool(self.settings("objective").alpha_prediction)

    @property
    def _has_bins(self) -> bool:
        return bool(self.settings("architecture").numbers == "bins")

    def _loss(self, model: VarTJepa) -> VarTJepaLoss:
        return VarTJepaLoss(model, self.settings("objective"))

    def _calibrate(self, training: EncodedTable, validation: EncodedTable) -> None:
        """Find clusters of the embeddings, keep some rows, calibrate the intervals of numbers.

        The last on fewer rows where there are many columns.
        """
        means = self._compute(training, lambda model, rows: embed_rows(model, rows).mean.mean(1))
        self.clusters_ = calibration.fit_clusters(means, self.seed_)
        self._keep_neighbours(training)
        some = training.take(slice(0, calibration.SCALE_ROWS))
        self.doubt_ = calibration.scales_of(
            {part: self._row_scores(some, part, over) for part, over in DOUBTS.items()}
        )
        passes = min(MAX_PASSES, len(self.codec_.places))
        rows = validation.take(slice(0, MAX_CALIBRATION_PASSES // passes))
        scores = self.map_rows(rows, conformity_scores)
        self.calibration_ = calibration.calibrate_levels(
            scores.reshape(math.prod(scores.shape[:-1]), scores.shape[-1])
        )

    def _learned_to_json(self) -> dict[str, Any]:
        return {
            "calibration": self.calibration_.tolist(),
            "clusters": calibration.clusters_to_json(self.clusters_),
            "doubt": calibration.scales_to_json(self.doubt_),
            "neighbours": calibration.neighbours_to_json(self.neighbours_),
        }

    def _restore_learned(self, config: StrictObject) -> None:
        check = calibration.levels_from_json(len(self.codec_.numeric))
        self.calibration_ = config.take("calibration", check)
        width = self.settings("architecture").d
        self.clusters_ = config.take("clusters", calibration.clusters_from_json(width))
        levels = tuple(len(category.levels) for category in self.codec_.categorical)
        self.doubt_ = config.take("doubt", calibration.scales_from_json(DOUBTS))
        rows = calibration.neighbours_from_json(len(self.codec_.numeric), levels)
        self.neighbours_ = config.take("neighbours", rows)

    def _tokens(self, model: VarTJepa, rows: EncodedTable) -> Tensor:
        return embed_rows(model, rows).mean

    def _cls(self, model: VarTJepa, rows: EncodedTable) -> Tensor:
        """Means of the context encoder's CLS latents, the whole row as context."""
        masks = whole_row_masks(rows, model.shape.features)
        return model.q_s_x(rows, masks).mean[:, : model.settings.n_cls]

    def _embed(self, rows: EncodedTable) -> Embedding:
        def moments(model: VarTJepa, block: EncodedTable) -> Tensor:
            q = embed_rows(model, block)
            return torch.cat([q.mean, q.std], dim=-1)  # (B, D, 2d)

        mean, std = np.split(self._compute(rows, moments), 2, axis=-1)
        return Embedding(mean, std, tuple(f.name for f in self.codec_.features))

    def _aggregate(self, kind: LatentKind | Question, aggregate: Aggregate | None) -> Aggregate:
        """What is asked for over a row's values, checked; None: the kind's usual one."""
        one_of("kind", kind, (*QUESTIONS, *LATENT_KINDS))
        over = default_aggregate(kind) if aggregate is None else aggregate
        one_of(f"aggregate of {kind!r}", over, AGGREGATES[kind])
        return over

    def _scorer(self, kind: LatentKind | Question, splits: int) -> Scorer:
        """What scores a block of rows; it may be given their posterior, if that is known."""
        check_is_fitted(self)
        if kind == "ambiguous":
            clusters = self.clusters_
            return lambda model, rows, posterior: clusters.score(
                posterior or embed_rows(model, rows)
            )
        if kind == "doubtful":
            return self._doubt
        if kind == "inconsistent" or kind == "unpredictable" or kind == "atypical":
            columns = torch.from_numpy(self.codec_.column_numbers())
            own, question = self._marginals(), kind
            return lambda model, rows, posterior: score_cells(
                model, rows, columns.to(rows.num.device), own.to(rows.num.device), question
            )
        latent = kind
        return lambda model, rows, posterior: score_rows(
            model, rows, (latent,), self.seed_, posterior, splits
        )[latent]

    def _doubt(
        self, model: VarTJepa, rows: EncodedTable, posterior: DiagonalGaussian | None
    ) -> FeatureScores:
        """Cells as "inconsistent"; rows by both parts."""
        parts = {part: self._scorer(part, DOUBT_SPLITS)(model, rows, None) for part in DOUBTS}
        row = torch.zeros(len(rows), device=rows.num.device)
        for part, over in DOUBTS.items():
            mean, std = self.doubt_[part]
            row = row + (parts[part].per_row(over) - mean) / std
        return replace(parts["inconsistent"], row=row)

    def _row_scores(
        self,
        rows: EncodedTable,
        kind: LatentKind | Question,
        over: Aggregate,
        splits: int = DOUBT_SPLITS,
    ) -> NDArray[np.float32]:
        scorer = self._scorer(kind, splits)
        return self._compute(rows, lambda model, part: scorer(model, part, None).per_row(over))

    def _marginals(self) -> Marginals:
        """How the features are distributed in the training rows."""
        bins = [number.bins for number in self.codec_.numeric]
        shares = [np.array(one.share) for one in bins]
        levels = [category.marginal.frequencies() for category in self.codec_.categorical]
        if self._has_bins:
            numbers = [_entropy(share) for share in shares]
        else:
            numbers = [NORMAL_ENTROPY if len(share) > 1 else 0.0 for share in shares]
        entropies, means = [*numbers, *map(_entropy, levels)], [_mean(one) for one in bins]
        rarity = [np.append(0.0, -np.log(np.maximum(share, 1e-30))) for share in levels]
        return Marginals(
            torch.tensor(entropies, dtype=torch.float32),
            torch.tensor(means, dtype=torch.float32),
            torch.tensor([_std(one) for one in bins], dtype=torch.float32),
            tuple(torch.tensor(one, dtype=torch.float32) for one in rarity),
        )

    def cell_baseline(self) -> float | None:
        """Mean log-likelihood of a cell under its column's distribution in the training rows.

        In the units of the validation score: of a binned number it counts the bin and the value,
        as the likelihood does.
        """
        own, codec = self._marginals(), self.codec_
        nll = own.entropy.numpy().astype(np.float64)
        spread = np.log(own.std.numpy().astype(np.float64))
        missing = [number.marginal.missing_share for number in codec.numeric]
        known = 1.0 - np.array([*missing, *(c.missing_share for c in codec.categorical)])
        nll[: len(spread)] += spread + (NORMAL_ENTROPY if self._has_bins else 0.0)
        return -float(np.average(nll, weights=known)) if known.any() else None

    def _units(self) -> calibration.Units:
        """Scale of numbers and rarity of levels, for distances between rows."""
        shares = [category.marginal.frequencies() for category in self.codec_.categorical]
        rarity = [np.append(0.0, 1.0 / np.maximum(share, 1e-9)) for share in shares]
        return calibration.Units(
            self._marginals().std, tuple(torch.tensor(r, dtype=torch.float32) for r in rarity)
        )

    def _keep_neighbours(self, training: EncodedTable) -> None:
        """Keep some training rows, and learn how the outlier score's parts are distributed."""
        units, numeric = self._units().to(training.num.device), len(self.codec_.numeric)

        def cells(model: VarTJepa, rows: EncodedTable) -> Tensor:
            filled = calibration.fill_rows(model, rows)
            return torch.cat([filled.num / units.std, filled.cat.float()], dim=1)

        some = training.take(slice(0, calibration.rows_to_keep(len(self.codec_.features))))
        self.neighbours_ = calibration.Neighbours.keep(self._compute(some, cells), numeric)
        scored = training.take(slice(0, calibration.SCALE_ROWS))
        self.neighbours_ = self.neighbours_.scaled_by(self._outlier_parts(scored))

    def _outlier_parts(self, rows: EncodedTable) -> calibration.Parts:
        units, atypical = self._units().to(rows.num.device), self._scorer("atypical", SPLITS)
        kept = self.neighbours_

        def parts(model: VarTJepa, block: EncodedTable) -> Tensor:
            by_name = {"atypical": atypical(model, block, None).per_row("mean")}
            if len(kept):
                by_name["distance"] = kept.log_distance(calibration.fill_rows(model, block), units)
            return torch.stack([by_name[name] for name in names], dim=1)

        names = [name for name in calibration.PART_WEIGHTS if len(kept) or name != "distance"]
        return dict(zip(names, self._compute(rows, parts).T, strict=True))

    def by_column(
        self, cells: NDArray[np.float32], names: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """Numbers per feature (n, features) as numbers per column, in the order of ``names``."""
        places = self.codec_.places
        nothing = np.full(len(cells), np.nan, dtype=np.float32)
        return {
            name: cells[:, places[name]].mean(1) if name in places else nothing for name in names
        }

    def _filled(self, X: Any, n: int, is_sampled: bool, z: str, random_state: Any) -> list[Any]:
        """``n`` tables whose missing cells went through imputer and decoder.

        They never go through the target posterior, which sees the row.
        """
        check_is_fitted(self)
        one_of("z", z, ("posterior", "prior"))
        table = to_arrow(self, X, reset=False)
        rows = self._encode(table)
        generator = self._generator(random_state)
        model = self.model_.to(rows.num.device)
        draws = [
            predicted_table(model, self.codec_, rows, generator, is_sampled, z == "prior")
            for _ in range(n)
        ]
        self.model_.cpu()
        missing = self.codec_.missing_cells(table)
        filled = [like_input(fill_missing(table, draw, self.codec_), X) for draw in draws]
        return [with_known_cells(one, X, missing) for one in filled]

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
        if isinstance(given, Mapping):
            table = in_own_types(table, self.codec_)
        return with_all_columns(table, self.codec_)

    def _generator(self, random_state: Any) -> torch.Generator:
        """Random numbers of one call: None continues from the fit's seed, the same every time."""
        seed = self.seed_
        if random_state is not None:
            seed = check_random_state(random_state).randint(2**31 - 1)
        generator = torch.Generator(pick_device(self.device))
        return generator.manual_seed(generator_for(int(seed), "drawing").initial_seed())
