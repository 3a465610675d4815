"""The loss of a training step, for Var-T-JEPA and for T-JEPA."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Protocol

import torch
from torch import Tensor, nn

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
    recorded: tuple[Tensor, ...]  # (B,) each, in the order of the objective's names


class Embedded(Protocol):
    """Embeddings of rows, and how uncertain they are where the model says."""

    @property
    def mean(self) -> Tensor: ...  # (N, D, d)

    @property
    def std(self) -> Tensor | None: ...  # (N, D, d)


class Loss(Protocol):
    """A model together with its loss. It draws no random number but in ``draw_noise``."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def shape(self) -> TableShape: ...

    @property
    def masks(self) -> MaskSettings:
        """Sizes and number of contexts and targets."""

    @property
    def names(self) -> tuple[str, ...]:
        """What the history records besides the loss."""

    @property
    def active_variance(self) -> float:
        """Variance across rows above which a dimension of an embedding is active."""

    def draw_noise(self, rows: int, m_ctx: int, generator: torch.Generator) -> LatentNoise | None:
        """Noise of a whole batch's latents, where there are any."""

    def losses(
        self, w: EncodedTable, masks: FeatureMasks, noise: LatentNoise | None, ramps: Tensor
    ) -> StepLosses:
        """The losses of a batch; ``ramps (3,)`` anneals the KL terms."""

    def after_step(self, progress: Tensor | float) -> None:
        """Called after the weights have changed; ``progress`` runs from 0 to 1."""

    def embed(self, rows: EncodedTable) -> Embedded:
        """The current model's embeddings of any number of rows."""


def elbo_weights(objective: Objective) -> ElboWeights:
    """Final weights of the five terms."""
    o = objective
    return ElboWeights(o.alpha_rec, o.alpha_gen, o.alpha_kl_sx, o.alpha_kl_z, o.alpha_kl_sy)


def annealed(terms: ElboTerms, factors: Tensor) -> ElboTerms:
    """The KL terms times their factors (3,); the likelihoods as they are."""
    sx, z, sy = factors
    return replace(terms, kl_sx=sx * terms.kl_sx, kl_z=z * terms.kl_z, kl_sy=sy * terms.kl_sy)


@dataclass(frozen=True, slots=True)
class VarTJepaLoss:
    """The weighted ELBO terms, and the imputer's own loss, which trains the imputer alone."""

    model: VarTJepa
    settings: Objective
    active_variance: float = ACTIVE_VARIANCE

    @property
    def masks(self) -> MaskSettings:
        return self.settings

    @property
    def weights(self) -> ElboWeights:
        """Final weights of the five terms."""
        return elbo_weights(self.settings)

    @property
    def shape(self) -> TableShape:
        return self.model.shape

    @property
    def names(self) -> tuple[str, ...]:
        imputation = () if self.model.imputer is None else ("imputation",)
        return (*(field.name for field in fields(ElboTerms)), *imputation)

    def draw_noise(self, rows: int, m_ctx: int, generator: torch.Generator) -> LatentNoise:
        return draw_latent_noise(self.model, rows, m_ctx, generator)

    def losses(
        self, w: EncodedTable, masks: FeatureMasks, noise: LatentNoise | None, ramps: Tensor
    ) -> StepLosses:
        path = self.model(w, masks, noise)
        terms = self.model.terms(w, masks, path)
        loss = weighted_loss(annealed(terms, ramps), self.weights)
        each = tuple(getattr(terms, field.name) for field in fields(terms))
        if self.model.imputer is None:
            return StepLosses(loss, loss, each)
        imputation = self.model.imputation_loss(w, masks, path, self.settings.imputer_kl)
        return StepLosses(loss, loss + imputation, (*each, imputation))

    def after_step(self, progress: Tensor | float) -> None:
        """Nothing: there is no moving average."""

    def embed(self, rows: EncodedTable) -> Embedded:
        return embed_in_blocks(self.model, rows)


@dataclass(frozen=True, slots=True)
class Points:
    """Embeddings without uncertainty."""

    mean: Tensor  # (N, D, d)
    std: None = None


@dataclass(frozen=True, slots=True)
class TJepaLoss:
    """The distance to the target encoder's tokens, which follow the context encoder's.

    The history also records ``scale``, the mean norm of the target
    tokens, and ``spread``, their mean variance across the rows computed together. A loss that falls
    only because one of these does is a collapse.
    """

    model: TJepa
    settings: PointObjective
    names: tuple[str, ...] = ("scale", "spread")
    active_variance: float = 1e-3
    """Less than a latent's with a prior of variance 1: these vectors keep a length of about √d and
    a large common part, and what varies beside it is small from the first step on."""

    @property
    def masks(self) -> MaskSettings:
        return self.settings

    @property
    def shape(self) -> TableShape:
        return self.model.shape

    def draw_noise(self, rows: int, m_ctx: int, generator: torch.Generator) -> None:
        return None

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
        self.model.follow(progress, self.settings.momentum)

    def embed(self, rows: EncodedTable) -> Embedded:
        return Points(embed_points_in_blocks(self.model, rows))
