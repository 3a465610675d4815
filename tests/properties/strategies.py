"""Random Gaussians for the property tests: any mean, log-variances up to the clamp."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from varjepa.variational.gaussian import LOG_VAR_BOUND, DiagonalGaussian

log_variances = st.floats(-LOG_VAR_BOUND, LOG_VAR_BOUND)
means = st.floats(-5, 5)


@st.composite
def gaussians(
    draw: st.DrawFn, dimension: int = 3, bound: float = LOG_VAR_BOUND
) -> DiagonalGaussian:
    """One Gaussian in float64, with gradients wanted."""

    def vector(values: st.SearchStrategy[float]) -> Tensor:
        drawn = draw(st.lists(values, min_size=dimension, max_size=dimension))
        return torch.tensor(drawn, dtype=torch.float64, requires_grad=True)

    return DiagonalGaussian(vector(means), vector(st.floats(-bound, bound)))
