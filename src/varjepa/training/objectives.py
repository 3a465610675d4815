"""What a training step minimises: the part of it that depends on the kind of model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor, nn

from varjepa.masking import FeatureMasks
from varjepa.models.var_t_jepa.model import Rows, VarTJepa, draw_latent_noise
from varjepa.models.var_t_jepa.settings import TableShape
from varjepa.training.schedules import annealed
from varjepa.variational.elbo import ElboTerms, ElboWeights, weighted_loss
from varjepa.variational.model import LatentNoise


@dataclass(frozen=True, slots=True)
class StepLosses:
    """One value per row for everything a step computes."""

    loss: Tensor  # (B,) the objective, as the history shows it
    descended: Tensor  # (B,) what gradients are taken of
    recorded: tuple[Tensor, ...]  # (B,) each, in the order of the objective's names


class Objective(Protocol):
    """A model together with its loss. It draws no random number but in ``draw_noise``."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def shape(self) -> TableShape: ...

    @property
    def names(self) -> tuple[str, ...]:
        """What the history records besides the loss."""

    def draw_noise(self, rows: int, m_ctx: int, generator: torch.Generator) -> LatentNoise | None:
        """Noise of a whole batch's latents, where there are any."""

    def losses(
        self, w: Rows, masks: FeatureMasks, noise: LatentNoise | None, ramps: Tensor
    ) -> StepLosses:
        """The losses of a batch; ``ramps (3,)`` anneals the KL terms."""

    def after_step(self, progress: Tensor | float) -> None:
        """What is left to do once the weights have moved; ``progress`` runs from 0 to 1."""


@dataclass(frozen=True, slots=True)
class VarTJepaObjective:
    """The weighted ELBO terms; the imputer's loss beside them touches the imputer alone."""

    model: VarTJepa
    weights: ElboWeights
    names: tuple[str, ...] = (*(field.name for field in fields(ElboTerms)), "imputation")

    @property
    def shape(self) -> TableShape:
        return self.model.shape

    def draw_noise(self, rows: int, m_ctx: int, generator: torch.Generator) -> LatentNoise:
        return draw_latent_noise(self.model, rows, m_ctx, generator)

    def losses(
        self, w: Rows, masks: FeatureMasks, noise: LatentNoise | None, ramps: Tensor
    ) -> StepLosses:
        walk = self.model(w, masks, noise)
        terms = self.model.terms(w, masks, walk)
        imputation = self.model.imputation_loss(w, masks, walk)
        loss = weighted_loss(annealed(terms, ramps), self.weights)
        each = tuple(getattr(terms, field.name) for field in fields(terms))
        return StepLosses(loss, loss + imputation, (*each, imputation))

    def after_step(self, progress: Tensor | float) -> None:
        """Nothing: no moving average, no stop-gradient to keep up."""
