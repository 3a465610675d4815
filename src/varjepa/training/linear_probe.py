"""The online probe: a linear classifier on frozen embeddings, fitted to the end at every look.

Its loss is convex, so a few dozen L-BFGS iterations on all rows at once reach what thousands of
small AdamW steps would, at a fraction of their time, and nothing about it is random.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class LinearProbeSettings:
    """How the online probe is fitted."""

    rows: int = 8192
    """most training rows to learn from: a look must cost little beside the epochs between two"""
    iterations: int = 40
    """most L-BFGS iterations"""
    weight_decay: float = 1e-4
    """on the squared weights of standardised features, per row"""


@dataclass(frozen=True, slots=True)
class LinearProbe:
    """Logits that are linear in the features."""

    centre: Tensor  # (F,)
    scale: Tensor  # (F,)
    weight: Tensor  # (F, classes)
    bias: Tensor  # (classes,)

    def __call__(self, features: Tensor) -> Tensor:
        """Shape: ``(N, F)`` → ``(N, classes)``."""
        return torch.addmm(self.bias, (features - self.centre) / self.scale, self.weight)


def fit_linear_probe(
    features: Tensor, labels: Tensor, classes: int, settings: LinearProbeSettings
) -> LinearProbe:
    """Multinomial logistic regression.

    Shape: ``features (N, F)``, ``labels (N,)`` class numbers.
    """
    centre = features.mean(0)
    scale = features.std(0, unbiased=False)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))  # a constant feature says nothing
    standard = (features - centre) / scale
    weight = standard.new_zeros(standard.shape[1], classes, requires_grad=True)
    bias = standard.new_zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weight, bias], max_iter=settings.iterations, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        logits = torch.addmm(bias, standard, weight)
        value = nn.functional.cross_entropy(logits, labels)
        value = value + settings.weight_decay * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    return LinearProbe(centre, scale, weight.detach(), bias.detach())
