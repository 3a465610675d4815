"""A claim about bfloat16 on a GPU.

1. Trainings in bfloat16 have the loss curves of trainings in float32: over seeds, the means of
   every epoch differ by no more than their standard errors explain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.small import small
from varjepa.demo.sim import draw_sim
from varjepa.estimators import VarTJEPA
from varjepa.settings import Precision

SEEDS = 6
EPOCHS = 12


def curves(precision: Precision) -> np.ndarray:
    """The training loss of every epoch.  # (seeds, epochs)"""
    table = draw_sim().to_arrow()
    return np.array(
        [
            [
                record["loss"]
                for record in small(
                    VarTJEPA, random_state=seed, epochs=EPOCHS, device="cuda", precision=precision
                )
                .fit(table)
                .history_
            ]
            for seed in range(SEEDS)
        ]
    )


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:the latents have collapsed")  # a few epochs
@pytest.mark.skipif(not torch.cuda.is_available(), reason="bfloat16 is for GPUs")
def test_curves_in_bfloat16_are_those_in_float32(
    record_soak: Callable[[str, dict[str, Any]], None],
) -> None:
    exact, fast = curves("float32"), curves("bfloat16")
    apart = fast.mean(0) - exact.mean(0)
    error = np.sqrt((exact.var(0, ddof=1) + fast.var(0, ddof=1)) / SEEDS)
    figures = {
        "seeds": SEEDS,
        "float32, mean of an epoch": exact.mean(0).round(5).tolist(),
        "bfloat16, mean of an epoch": fast.mean(0).round(5).tolist(),
        "standard errors apart": (apart / error).round(2).tolist(),
        "same seed, relative difference at the end": round(
            float(np.abs(fast[:, -1] / exact[:, -1] - 1).max()), 5
        ),
    }
    record_soak("bfloat16-curves", figures)
    assert (np.abs(apart) < 3 * error).all(), figures
    learned = exact[:, 0].mean() - exact[:, -1].mean()
    assert learned > 10 * math.sqrt(exact[:, -1].var(ddof=1)), "the curves do not even fall"
