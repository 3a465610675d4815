"""Which moment of a training to keep: a score on validation rows, higher is better.

With labels, the paper's: accuracy of an online linear probe, for Var-T-JEPA after discarding the
most uncertain 20 % of the validation rows. Without, the held-out objective with masks and noise
fixed once, so that two moments are compared on the same questions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from varjepa.masking import MaskSettings, draw_mask_sizes
from varjepa.models.rows import Rows, split_rows
from varjepa.randomness import generator_for
from varjepa.training.draws import Streams, draw_step
from varjepa.training.objectives import Objective
from varjepa.training.probe import ProbeSettings, fit_probe


class Selection(Protocol):
    """A way to score a model; it has a name for the history."""

    @property
    def name(self) -> str: ...

    def score(self, objective: Objective) -> float: ...


@dataclass(frozen=True, slots=True)
class HeldOutObjective:
    """Minus the training objective on validation rows, KL terms at their final weight.

    For a T-JEPA this is a weak criterion: its targets move with the training, so two moments are
    asked about different answers, and the closer those are to each other, the better the score.
    """

    rows: Rows
    masks: MaskSettings
    seed: int
    batch: int = 1024
    name: str = "held-out objective"

    @torch.no_grad()
    def score(self, objective: Objective) -> float:
        streams = Streams.of(self.seed, self.rows.num.device)
        total = 0.0
        for part in split_rows(self.rows, self.batch):
            sizes = draw_mask_sizes(objective.shape.features, self.masks, streams.sizes)
            draw = draw_step(
                objective, len(part), part.observed, sizes, self.masks.targets, streams.numbers
            )
            final = torch.ones(3, device=part.num.device)
            total += float(objective.losses(part, draw.masks, draw.noise, final).loss.sum())
        return -total / len(self.rows)


@dataclass(frozen=True, slots=True)
class FilteredProbe:
    """Accuracy of a linear probe on the validation rows whose latents are most certain.

    With ``discard`` 0 on all of them, which needs no uncertainty.
    """

    train: Rows
    train_labels: Tensor  # (N,) class numbers
    validation: Rows
    validation_labels: Tensor  # (M,)
    classes: int
    probe: ProbeSettings
    seed: int
    discard: float = 0.2
    """share of the most uncertain validation rows that does not count"""

    @property
    def name(self) -> str:
        return "filtered accuracy" if self.discard else "accuracy"

    def score(self, objective: Objective) -> float:
        features = objective.embed(self.train).mean.flatten(1)
        held_out = objective.embed(self.validation)
        probe = fit_probe(
            features.unsqueeze(0),
            self.train_labels.unsqueeze(0),
            self.classes,
            self.probe,
            [generator_for(self.seed, "probe")],
        )
        with torch.no_grad():
            guess = probe(held_out.mean.flatten(1).unsqueeze(0))[0].argmax(-1)
        right = (guess == self.validation_labels).float()
        if self.discard:
            if held_out.std is None:
                raise ValueError("a model without uncertainty cannot be filtered by it")
            kept = max(1, round(len(right) * (1 - self.discard)))
            right = right[held_out.std.mean((1, 2)).argsort(stable=True)[:kept]]
        return float(right.mean())
