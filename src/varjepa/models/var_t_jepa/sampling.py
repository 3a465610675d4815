"""New rows, column by column in random order, each given those already drawn.

Any order is as good as any other to this model: masks are random, so it has learned to predict each
column from any others. The first column of a row, which nothing is known about, comes from the
training marginals.
"""

from __future__ import annotations

import torch
from torch import Tensor

from varjepa.masking import masks_from_cells
from varjepa.models.rows import Rows, take_rows
from varjepa.models.var_t_jepa.model import VarTJepa
from varjepa.models.var_t_jepa.prediction import Cells, draw_cells, predict_latents

BATCH = 1024
"""Rows that are drawn together: what memory is needed does not grow with the number of rows."""


def complete_rows(
    model: VarTJepa,
    given: Rows,
    marginal: Cells,
    limits: tuple[Tensor, Tensor],
    generator: torch.Generator,
    z_from_prior: bool = False,
) -> Rows:
    """Fill every unobserved cell of the given rows; observed cells stay as they are.

    ``marginal`` holds independent draws of every feature from the training marginals; ``limits``
    are the numeric features' smallest and largest training value, which no draw leaves.
    """
    parts = [
        _complete(
            model,
            take_rows(given, here),
            Cells(marginal.num[here], marginal.cat[here]),
            limits,
            generator,
            z_from_prior,
        )
        for here in (slice(start, start + BATCH) for start in range(0, len(given), BATCH))
    ]
    return Rows(
        torch.cat([part.num for part in parts]), torch.cat([part.cat for part in parts]), None
    )


@torch.no_grad()
def _complete(
    model: VarTJepa,
    given: Rows,
    marginal: Cells,
    limits: tuple[Tensor, Tensor],
    generator: torch.Generator,
    z_from_prior: bool,
) -> Rows:
    features = model.shape.features
    num, cat = given.num.clone(), given.cat.clone()
    known = _known(given, features)
    order = torch.rand(known.shape, generator=generator, device=generator.device)
    order = order.masked_fill(known, torch.inf).argsort(-1)  # cells to draw first, in their order
    for step in range(int((~known).sum(-1).max())):
        column = order[:, step]
        active = ~known.gather(1, column.unsqueeze(1)).squeeze(1)  # (B,) rows not yet complete
        target = torch.zeros_like(known)
        target[active, column[active]] = True
        latents = predict_latents(
            model,
            Rows(num, cat, known),
            masks_from_cells(known, target),
            generator if z_from_prior else None,
        )
        drawn = draw_cells(model, latents, generator)
        blank = target & (~known.any(-1, keepdim=True))  # nothing known: take the marginal
        cells = Cells(
            torch.where(blank[:, : num.shape[1]], marginal.num, drawn.num).clamp(*limits),
            torch.where(blank[:, num.shape[1] :], marginal.cat, drawn.cat),
        )
        num = torch.where(target[:, : num.shape[1]], cells.num, num)
        cat = torch.where(target[:, num.shape[1] :], cells.cat, cat)
        known = known | target
    return Rows(num, cat, None)


def _known(rows: Rows, features: int) -> Tensor:
    if rows.observed is not None:
        return rows.observed.clone()
    return torch.ones(len(rows), features, dtype=torch.bool, device=rows.num.device)
