"""The loss of a training step, for Var-T-JEPA and for T-JEPA."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from varjepa.models.inference import embed_in_blocks
from varjepa.models.masking import FeatureMasks
from varjepa.models.t_jepa import TJepa, embed_points_in_blocks
from varjepa.models.var_t_jepa import VarTJepa, draw_latent_noise
from varjepa.nn.layers import TableShape
from varjepa.settings import MaskSettings, Objective, PointObjective
from varjepa.tables.codec import EncodedTable
from varjepa.variational.diagnostics import ACTIVE_VARIANCE
from varjepa.variational.elbo import ElboTerms, ElboWeights, weighted_loss
from varjepa.variational.model import LatentNoise


@dataclass(frozen=True, slots=True)
class StepLosses:
    """One value per row for everything a step computes."""

    loss: Tensor  # (B,) the objective, as the history shows it
    descended: Tensor  # (B,) what gradients are taken of
    recorded: tuple[Tensor, ...]  # (B,) each, in the order of the loss's names


class Loss(ABC):
    """A model together with its loss. It draws no random number but in ``draw_noise``."""

    model: VarTJepa | TJepa
    names: tuple[str, ...]
    """what the history records besides the loss"""
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
    def losses(
        self, w: EncodedTable, masks: FeatureMasks, noise: LatentNoise | None, ramps: Tensor
    ) -> StepLosses:
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
        prediction = ("prediction",) if self.alpha_prediction else ()
        imputation = () if model.imputer is None else ("imputation",)
        self.names = (*(field.name for field in fields(ElboTerms)), *prediction, *imputation)

    def draw_noise(self, rows: int, m_ctx: int, generator: torch.Generator) -> LatentNoise:
        return draw_latent_noise(self.model, rows, m_ctx, generator)

    def losses(
        self, w: EncodedTable, masks: FeatureMasks, noise: LatentNoise | None, ramps: Tensor
    ) -> StepLosses:
        path = self.model(w, masks, noise)
        terms = self.model.terms(w, masks, path)
        loss = weighted_loss(annealed(terms, ramps), self.weights)
        each = tuple(getattr(terms, field.name) for field in fields(terms))
        if self.alpha_prediction:
            prediction = self.model.prediction_loss(w, masks, path.p_s_y)
            loss, each = loss + self.alpha_prediction * prediction, (*each, prediction)
        if self.model.imputer is None:
            return StepLosses(loss, loss, each)
        imputation = self.model.imputation_loss(w, masks, path, self.imputer_kl)
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

    def losses(
        self, w: EncodedTable, masks: FeatureMasks, noise: LatentNoise | None, ramps: Tensor
    ) -> StepLosses:
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
