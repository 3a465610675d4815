"""Claim: the fit on all rows gives the numbers that it gave before the redesign.

Weights (whatever they are called), the best epoch, the history, the embeddings and the scores of
rows, to the last bit where the arithmetic is the one recorded, else up to rounding.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paper.protocol import embed_table, score_table
from paper.settings import Model
from tests.digests.runs import arithmetic, digest, flat, one_thread
from tests.digests.test_digests import different, other_arithmetic
from tests.paper.test_transductive import fitted, small_table

FILE = Path(__file__).with_name("transductive_digests.json")


def compute(model: Model) -> dict[str, Any]:
    with one_thread():
        table, labels = small_table()
        estimator = fitted(labels, model)
        weights = [w.numpy().ravel() for w in estimator.model_.state_dict().values()]
        weights.sort(key=lambda w: hashlib.sha256(w.tobytes()).hexdigest())
        history = [{k: r[k] for k in sorted(r) if k != "seconds"} for r in estimator.history_]
        found = {
            "weights": np.concatenate(weights),
            "best epoch": np.array(estimator.best_epoch_),
            "history": flat(history),
            "embeddings": embed_table(estimator, table).numpy(),
        }
        if model == "var_t_jepa":
            found |= score_table(estimator, table)
    return {f"{model}/{name}": digest(value) for name, value in found.items()}


def write() -> None:
    """Only where numbers are meant to change."""
    found = {
        "environment": arithmetic(),
        "digests": {**compute("t_jepa"), **compute("var_t_jepa")},
    }
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


@pytest.mark.filterwarnings("ignore:the latents have collapsed")
@pytest.mark.parametrize("model", ["t_jepa", "var_t_jepa"])
def test_no_number_of_the_fit_on_all_rows_has_changed(model: Model) -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    before = {k: v for k, v in recorded["digests"].items() if k.startswith(f"{model}/")}
    assert not different(before, compute(model), others=other_arithmetic(recorded))
