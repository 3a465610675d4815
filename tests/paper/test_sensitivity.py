"""Claims about the sensitivity study.

1. A column is a training of its own with exactly its changes; the first is the downstream table's.
2. Rows are one per table, column, predictor, seed and coverage; finished ones are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paper import sensitivity as study
from paper.sensitivity import SensitivityPlan
from paper.settings import FULL, pretraining
from tests.paper.tiny import TINY, sim_under_any_name

# trained for an epoch or two
pytestmark = pytest.mark.filterwarnings("ignore:the latents have collapsed")

PLAN = SensitivityPlan(
    columns={"weights": ["Base", "High KL"], "architecture": ["Narrow"]},
    predictors=("mlp",),
    runs=2,
    scale=TINY,
)


def test_columns_change_what_they_say() -> None:
    base = study.column_spec("weights", "Base", FULL)
    assert base == pretraining("adult", "var_t_jepa", "paper", FULL)
    narrow = study.column_spec("architecture", "Narrow", FULL).hyperparameters
    changed = {k: v for k, v in narrow.items() if v != base.hyperparameters[k]}
    assert changed == {"d": 32, "predictor_ff": 128}


def test_rows_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sim_under_any_name(monkeypatch)
    study.run_sensitivity(tmp_path, PLAN, "cpu")
    rows = study.open_sensitivity(tmp_path, TINY).rows
    assert len(rows) == 3 * 2 * 4
    assert {row["column"] for row in rows} == {"Base", "High KL", "Narrow"}
    assert all(0 <= row["accuracy"] <= 1 for row in rows)
    made = sorted(path.stem for path in (tmp_path / "embeddings").iterdir())
    assert made == [
        "adult-var_t_jepa-architecture-narrow-0",
        "adult-var_t_jepa-paper-0",
        "adult-var_t_jepa-weights-high-kl-0",
    ]

    def never(*_: Any) -> Any:
        raise AssertionError("computed again")

    monkeypatch.setattr(study, "run_cell", never)
    study.run_sensitivity(tmp_path, PLAN, "cpu")
