"""What each term of a trained model's loss weighs: in the loss, and in the gradient."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from varjepa.training.losses import VarTJepaLoss, elbo_weights
from varjepa.training.step import Streams, draw_step

ROWS = 1024


def term_figures(estimator: Any, frame: Any) -> dict[str, dict[str, float]]:
    """Shares of the weighted terms, at the fit's final weights.

    ``loss``: |weight · mean of the term| over the sum of all terms; ``gradient``: norm of its
    gradient over the sum of all norms. Masks and noise are drawn as in training.
    """
    objective = estimator.settings("objective")
    loss = VarTJepaLoss(estimator.model_, objective)
    w = estimator.encode(frame.iloc[:ROWS]).to(torch.device("cpu"))
    streams = Streams.of(estimator.seed_, w.num.device)
    features = loss.shape.features
    m_ctx = max(1, features // 2)
    sizes = (m_ctx, max(1, features - m_ctx))
    draw = draw_step(loss, len(w), w.observed, sizes, objective.targets, streams.numbers)
    weights = {**asdict(elbo_weights(objective)), "prediction": objective.alpha_prediction}
    learned = [p for p in loss.model.parameters() if p.requires_grad]
    sizes_of, norms = {}, {}
    for place, name in enumerate(loss.names):
        with torch.enable_grad():
            each = loss.losses(w, draw, torch.ones(3)).recorded[place]
            value = weights[name] * each.mean()
            gradients = torch.autograd.grad(value, learned, allow_unused=True)
        sizes_of[name] = abs(float(value.detach()))
        norms[name] = float(torch.stack([g.norm() for g in gradients if g is not None]).norm())
    return {"loss": _shares(sizes_of), "gradient": _shares(norms)}


def _shares(sizes: dict[str, float]) -> dict[str, float]:
    total = sum(sizes.values()) or 1.0
    return {name: size / total for name, size in sizes.items()}
