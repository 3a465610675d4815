"""The loss of a training step, for Var-T-JEPA and for T-JEPA."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from varjepa.models.inference import embed_in_blocks
from varjepa.models.masking import FeatureMasks
from varjepa.models.t_jepa import TJepa, embed_points_in_blocks
from varjepa.models.var_t_jepa import ALL_ROWS, VarTJepa, draw_latent_noise
from varjepa.nn.layers import TableShape
from varjepa.settings import MaskSettings, Objective, PointObjective
from varjepa.tables.codec import EncodedTable
from varjepa.variational.diagnostics import ACTIVE_VARIANCE
from varjepa.variational.elbo import ElboTerms, ElboWeights, weighted_loss
from varjepa.variational.model import LatentNoise

TERMS = tuple(field.name for field in fields(ElboTerms))


@dataclass(frozen=True, slots=True)
class StepLosses:
    """One value per row for everything a step computes."""

    loss: Tensor  # (B,) the objective, as the history shows it
    descended: Tensor  # (B,) what gradients are taken of
    recorded: tuple[Tensor, ...]  # (B,) each, in the order of the loss's names


@dataclass(frozen=True, slots=True)
class ElboRows:
    """Which rows of a batch are in the ELBO: every so many, each counting for the others too."""

    every: int = 1
    first: int = 0
    """place of the first of them"""
    weight: Tensor | float = 1.0
    """how many rows each of them stands for"""

    @classmethod
    def of_batch(cls, every: int, shares: Tensor) -> ElboRows:
        """``shares (B,)`` are the rows' shares of the batch's mean."""
        return cls() if every == 1 else cls(every, 0, 1.0 / shares[::every].sum())

    @property
    def rows(self) -> slice:
        return ALL_ROWS if self.every == 1 else slice(self.first, None, self.every)

    def after(self, start: int) -> ElboRows:
        """Of the rows from ``start`` on."""
        return replace(self, first=(self.first - start) % self.every)

    def spread(self, values: Tensor, rows: int) -> Tensor:
        """Their values at their places among all rows, 0 elsewhere.  # → (rows,)"""
        if self.every == 1:
            return values
        everywhere = values.new_zeros(rows)
        everywhere[self.rows] = self.weight * values
        return everywhere


@dataclass(frozen=True, slots=True)
class Draw:
    """Everything random about one step, and which of its rows are in the ELBO."""

    masks: FeatureMasks
    noise: LatentNoise | None
    elbo: ElboRows = ElboRows()

    def rows(self, here: slice) -> Draw:
        """The part of some of the batch's rows."""
        n = self.noise
        noise = None if n is None else LatentNoise(n.s_x[here], n.z[here], n.s_y[here])
        return Draw(self.masks.rows(here), noise, self.elbo.after(here.start or 0))


class Loss(ABC):
    """A model together with its loss. It draws no random number but in ``draw_noise``."""

    model: VarTJepa | TJepa
    names: tuple[str, ...]
    """what the history records besides the loss"""
    elbo_every = 1
    """one row in so many of a batch is in the ELBO"""
    active_variance: float
    """variance across rows above which a dimension of an embedding is active"""
    masks: MaskSettings
    """sizes and number of contexts and targets"""

    @property
    def shape(self) -> TableShape:
        return self.model.shape

    def draw_noise(self, rows: int, m_ctx: int, generator: torch.Generator) -> LatentNoise | None:
        """Noise of a whole batch's latents, if the model has any."""
        return None

    @abstractmethod
    def losses(self, w: EncodedTable, draw: Draw, ramps: Tensor) -> StepLosses:
        """The losses of a batch; ``ramps (3,)`` anneals the KL terms."""

    def after_step(self, progress: Tensor | float) -> None:  # noqa: B027 - most have nothing to do
        """Called after the weights have changed; ``progress`` runs from 0 to 1."""

    @abstractmethod
    def embed(self, rows: EncodedTable) -> Tensor:
        """The current model's embeddings of any number of rows.  # (N, D, d)"""


class VarTJepaLoss(Loss):
    """The weighted ELBO terms and the prediction of values, which train all components together.

    An imputer, where there is one, has a loss of its own, which trains the imputer alone.
    """

    model: VarTJepa
    active_variance = ACTIVE_VARIANCE

    def __init__(self, model: VarTJepa, objective: Objective) -> None:
        self.model, self.masks, self.imputer_kl = model, objective, objective.imputer_kl
        self.weights, self.alpha_prediction = elbo_weights(objective), objective.alpha_prediction
        self.elbo_every = objective.elbo_every
        prediction = ("prediction",) if self.alpha_prediction else ()
        imputation = () if model.imputer is None else ("imputation",)
        self.names = (*TERMS, *prediction, *imputation)

    def draw_noise(self, rows: int, m_ctx: int, generator: torch.Generator) -> LatentNoise:
        return draw_latent_noise(self.model, rows, m_ctx, generator)

    def losses(self, w: EncodedTable, draw: Draw, ramps: Tensor) -> StepLosses:
        rows, elbo = len(w), draw.elbo
        path = self.model(w, draw.masks, draw.noise, elbo.rows)
        part, masks = path.of_targets(elbo.rows), draw.masks.rows(elbo.rows)
        some = w.take(elbo.rows)
        terms = self.model.terms(some, masks, part)
        each = tuple(elbo.spread(getattr(terms, name), rows) for name in TERMS)
        loss = weighted_loss(annealed(ElboTerms(*each), ramps), self.weights)
        if self.alpha_prediction:
            prediction = self.model.prediction_loss(w, draw.masks, path.p_s_y)
            loss, each = loss + self.alpha_prediction * prediction, (*each, prediction)
        if self.model.imputer is None:
            return StepLosses(loss, loss, each)
        imputation = self.model.imputation_loss(some, masks, part, self.imputer_kl)
        imputation = elbo.spread(imputation, rows)
        return StepLosses(loss, loss + imputation, (*each, imputation))

    def embed(self, rows: EncodedTable) -> Tensor:
        return embed_in_blocks(self.model, rows).mean


def elbo_weights(objective: Objective) -> ElboWeights:
    """Final weights of the five terms."""
    o = objective
    return ElboWeights(o.alpha_rec, o.alpha_gen, o.alpha_kl_sx, o.alpha_kl_z, o.alpha_kl_sy)


def annealed(terms: ElboTerms, factors: Tensor) -> ElboTerms:
    """The KL terms times their factors (3,); the likelihoods as they are."""
    sx, z, sy = factors
    return replace(terms, kl_sx=sx * terms.kl_sx, kl_z=z * terms.kl_z, kl_sy=sy * terms.kl_sy)


class TJepaLoss(Loss):
    """The distance to the target encoder's tokens, which follow the context encoder's.

    The history also records ``scale``, the mean norm of the target tokens, and ``spread``, their
    mean variance across the rows computed together. A loss that falls only because one of these
    does is a collapse.
    """

    model: TJepa
    names = ("scale", "spread")
    active_variance = 1e-3
    """Less than that of a latent with a prior of variance 1: these vectors keep a length of about
    √d and a large common part, and what varies is small from the first step on."""

    def __init__(self, model: TJepa, objective: PointObjective) -> None:
        self.model, self.masks, self.momentum = model, objective, objective.momentum

    def losses(self, w: EncodedTable, draw: Draw, ramps: Tensor) -> StepLosses:
        masks = draw.masks
        s_w = self.model.s_w(w)[:, -self.shape.features :]  # (B, D, d)
        loss = self.model.distance(self.model(w, masks), s_w, masks)
        scale = s_w.norm(dim=-1).mean(-1)
        rows = len(s_w)  # computed together: a batch, or on a CPU a slice of it
        spread = (s_w - s_w.mean(0)).square().mean((1, 2)) * (rows / max(1, rows - 1))
        return StepLosses(loss, loss, (scale, spread))

    def after_step(self, progress: Tensor | float) -> None:
        self.model.follow(progress, self.momentum)

    def embed(self, rows: EncodedTable) -> Tensor:
        return embed_points_in_blocks(self.model, rows)
