"""Predicted and drawn cells as tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from varjepa.masking import masks_from_cells
from varjepa.models.rows import Rows, split_rows
from varjepa.models.var_t_jepa.model import VarTJepa
from varjepa.models.var_t_jepa.prediction import Cells, draw_cells, likely_cells, predict_latents
from varjepa.tables import TableCodec

_BATCH = 1024


def predicted_table(
    model: VarTJepa,
    codec: TableCodec,
    rows: Rows,
    generator: torch.Generator,
    draw: bool,
    z_from_prior: bool,
) -> pa.Table:
    """A table with every unobserved cell predicted from the observed ones of its row.

    Cells are drawn, or are the model's best guess.
    """
    parts = []
    for part in split_rows(rows, _BATCH):
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
