"""What ``VarTJEPA.embed`` gives back: a posterior per row and feature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from varjepa.estimators.parameters import one_of
from varjepa.models.var_t_jepa.scoring import AGGREGATES, Aggregate


@dataclass(frozen=True, slots=True)
class Embedding:
    """Posterior of every feature's token: where a row lies, and how sure the model is of it."""

    mean: NDArray[np.float32]  # (n, features, d)
    std: NDArray[np.float32]  # (n, features, d)
    features: tuple[str, ...]
    """names along the second axis"""

    def uncertainty(self, aggregate: Aggregate = "mean") -> NDArray[np.float32]:
        """The paper's score: how spread out a row's latents are given the whole row.  # (n,)

        ``VarTJEPA.uncertainty`` has others, and by default one that ranks rows more reliably.
        """
        one_of("aggregate", aggregate, AGGREGATES["posterior"])
        flat = self.std.reshape(len(self.std), -1)  # numpy: torch's quantile has a largest size
        if aggregate == "q90":
            return np.quantile(flat, 0.9, axis=1).astype(np.float32)
        return np.exp(np.log(flat).mean(1)) if aggregate == "geometric" else flat.mean(1)

    def per_column(self) -> NDArray[np.float32]:
        """One number per row and feature.  # (n, features)"""
        return self.std.mean(2)
