"""Claims about the choice of adapters.

1. The default adapter of every predictor of the paper is the one that won on validation rows.
2. A missing cell favours nobody, and every dataset counts the same.
3. The study judges every adapter on validation rows, goes on where it stopped, and leaves the test
   rows alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paper import adapters
from paper.adapters import AdapterPlan, best_adapters, compare_adapters
from paper.predictors import ADAPTERS, DEFAULT_ADAPTER
from paper.published import PAPER_PREDICTORS
from tests.paper.tiny import TINY
from varjepa.files import read_json

RESULTS = Path(__file__).parents[2] / "paper" / "results"


def test_defaults_are_what_the_committed_study_found() -> None:
    best = best_adapters(read_json(RESULTS / adapters.FILE))
    for predictor in PAPER_PREDICTORS:
        assert best[predictor] == DEFAULT_ADAPTER[predictor], predictor


def row(dataset: str, adapter: str, accuracy: float, seed: int = 0) -> dict[str, Any]:
    return {
        "dataset": dataset, "predictor": "mlp", "adapter": adapter, "seed": seed,
        "accuracy": accuracy,
    }  # fmt: skip


def test_missing_cells_favour_nobody() -> None:
    rows = [row("easy", "mean", 0.95), row("easy", "flat", 0.97), row("hard", "flat", 0.6)]
    assert best_adapters(rows) == {"mlp": "flat"}  # though mean's only accuracy is high
    many = [row("easy", "mean", 0.99, seed) for seed in range(9)]
    hard = [row("hard", "mean", 0.5)]
    assert best_adapters([*rows, *many, *hard]) == {"mlp": "flat"}  # 9 seeds are one dataset


@pytest.mark.filterwarnings("ignore:the latents have collapsed")
def test_the_study_never_sees_test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    fit = adapters.fit_seeds

    def spy(kind: Any, inputs: Any, label: Any, parts: Any, *rest: Any) -> Any:
        seen.append(np.concatenate([parts.train, parts.validation, parts.test]))
        return fit(kind, inputs, label, parts, *rest)

    monkeypatch.setattr(adapters, "fit_seeds", spy)
    plan = AdapterPlan(datasets=("sim",), predictors=("mlp",), runs=1, scale=TINY)
    found = compare_adapters(tmp_path, plan, "cpu")
    assert {r["adapter"] for r in found.rows} == set(ADAPTERS["mlp"])
    assert all(0 < r["accuracy"] <= 1 for r in found.rows)
    bench = adapters.Workbench(tmp_path, "sim", TINY, "cpu")
    assert all(not set(rows) & set(bench.split.test) for rows in seen)
    count = len(seen)
    compare_adapters(tmp_path, plan, "cpu")
    assert len(seen) == count  # nothing is computed twice
