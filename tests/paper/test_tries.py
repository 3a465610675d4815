"""Claims about how "ours" was found.

1. What "ours" is for a dataset is the try that won on validation rows in the committed study.
2. Predictors and coverages count the same; of equals the first that was tried stays.
3. The study judges on validation rows and goes on where it stopped; labels of test rows change
   nothing.
4. The try that is "ours" is the training of the downstream study.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paper import representations
from paper import tries as study
from paper.datasets.catalogue import DATASETS
from paper.datasets.loading import Dataset, load_dataset
from paper.results import plain
from paper.settings import FULL, OURS, SPLIT_SEED, pretraining, tries
from paper.tries import TriesPlan, best_tries, judge_tries, open_tries, try_spec
from tests.paper.tiny import TINY
from varjepa.errors import InputError

RESULTS = Path(__file__).parents[2] / "paper" / "results"


def test_ours_is_what_the_committed_study_found() -> None:
    rows = open_tries(RESULTS, FULL).rows
    assert best_tries(rows) == dict(OURS)
    assert {row["dataset"] for row in rows} == set(DATASETS)


def row(name: str, predictor: str, coverage: float, accuracy: float, seed: int = 0) -> Any:
    return {
        "dataset": "sim", "try": name, "predictor": predictor, "coverage": coverage,
        "accuracy": accuracy, "seed": seed,
    }  # fmt: skip


def test_cells_count_the_same_and_the_first_of_equals_stays() -> None:
    first, second = list(tries("sim"))[:2]
    equal = [row(name, "mlp", c, 0.9) for name in (second, first) for c in (1.0, 0.5)]
    assert best_tries(equal) == {"sim": first}
    # many seeds of one cell outweigh nothing
    many = [row(first, "mlp", 1.0, 0.99, seed) for seed in range(1, 9)]
    worse = [row(first, "resnet", 1.0, 0.5), row(second, "resnet", 1.0, 0.9)]
    assert best_tries([*equal, *many, *worse]) == {"sim": second}


@pytest.mark.parametrize("dataset", list(DATASETS))
def test_every_try_is_another_training_and_one_is_ours(dataset: str) -> None:
    ours = pretraining(dataset, "var_t_jepa", "ours", FULL)
    assert plain(ours) == plain(try_spec(dataset, OURS[dataset], FULL))
    specs = [str(plain(try_spec(dataset, name, FULL))) for name in tries(dataset)]
    assert len(set(specs)) == len(specs)  # no try twice


def test_an_unknown_try_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no try 'lucky'"):
        judge_tries(tmp_path, TriesPlan(datasets=("sim",), names=("lucky",), scale=TINY), "cpu")


@pytest.mark.filterwarnings("ignore:the latents have collapsed")
def test_labels_of_test_rows_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = TriesPlan(datasets=("sim",), names=(OURS["sim"],), runs=1, scale=TINY)
    as_it_is = judge_tries(tmp_path / "a", plan, "cpu").rows
    model = tmp_path / "a" / "models" / "sim-var_t_jepa-ours-0"
    assert model.exists()  # the downstream study finds it there

    def shuffled(name: str) -> Dataset:
        data = representations.first_rows(load_dataset(name), TINY.rows)
        label = data.label.copy()
        test = data.split(SPLIT_SEED).test
        label[test] = (label[test] + 1) % len(data.class_names)
        return replace(data, label=label)

    monkeypatch.setattr(representations, "load_dataset", shuffled)
    other = judge_tries(tmp_path / "b", plan, "cpu").rows
    assert [row["accuracy"] for row in other] == [row["accuracy"] for row in as_it_is]
    assert [row["uncertainty"] for row in other] == [row["uncertainty"] for row in as_it_is]


@pytest.mark.filterwarnings("ignore:the latents have collapsed")
def test_the_study_judges_on_validation_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[np.ndarray] = []
    fit = study.fit_seeds

    def spy(kind: Any, inputs: Any, label: Any, parts: Any, *rest: Any) -> Any:
        seen.append(np.concatenate([parts.train, parts.validation, parts.test]))
        return fit(kind, inputs, label, parts, *rest)

    monkeypatch.setattr(study, "fit_seeds", spy)
    plan = TriesPlan(datasets=("sim",), names=("base", "small"), runs=1, scale=TINY)
    found = judge_tries(tmp_path, plan, "cpu")
    assert {r["try"] for r in found.rows} == {"base", "small"}
    assert all(0 <= r["accuracy"] <= 1 and -1 <= r["spearman"] <= 1 for r in found.rows)
    bench = study.Workbench(tmp_path, "sim", TINY, "cpu")
    assert all(not set(rows) & set(bench.split.test) for rows in seen)
    assert len(seen) == 2 * len(study.JUDGES)
    judge_tries(tmp_path, plan, "cpu")
    assert len(seen) == 2 * len(study.JUDGES)  # nothing is computed twice
    judge_tries(tmp_path, replace(plan, names=("base",), runs=2), "cpu")
    assert len(seen) == 3 * len(study.JUDGES)  # but what is missing
