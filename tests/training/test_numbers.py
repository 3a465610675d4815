"""Claims about numbers that must not break a training.

1. With 1 % of the batches poisoned with NaN, inf or values times a million, the loss ends within
   5 % of a clean training's, and every poisoned step is skipped and counted. In bins, NaN is; inf
   and a million are numbers far out, whose steps may count: the loss is within 5 % all the same.
2. After adversarial steps of every kind, in the rows or in the gradients, every weight and every
   moment of the optimiser is finite.
3. A gradient out of all proportion is refused, one that stays so is not refused for ever, and
   ordinary trainings are not touched.
4. The same seed and threads give the same SHA-256 of the weights twice.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from paper.settings import first_version
from tests.training.test_checkpoints import t_jepa, var_t_jepa
from tests.training.test_loop import SETTINGS, SHAPE, SMALL, run, table
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.randomness import seeded_weights
from varjepa.settings import Architecture, EncoderSettings, Objective, field_names
from varjepa.tables.codec import EncodedTable
from varjepa.training.cuda_graphs import PaddedStepper
from varjepa.training.loop import HeldOutLoss, TrainingResult, train
from varjepa.training.losses import Draw, Loss, StepLosses, VarTJepaLoss
from varjepa.training.step import LARGEST, StepGuard, Stepper

Poison = Callable[[Tensor], Tensor]
KINDS: dict[str, Poison] = {
    "nan": lambda x: torch.full_like(x, math.nan),
    "inf": lambda x: torch.full_like(x, math.inf),
    "million": lambda x: x * 1e6,
}


class Poisoned:
    """An objective some of whose training batches hold something else."""

    def __init__(self, inner: Any, poisons: Sequence[Poison], share: float, seed: int) -> None:
        self.inner, self.poisons, self.share = inner, poisons, share
        self.chance = random.Random(seed)
        self.poisoned = 0

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # of a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def model(self) -> Any:
        return self.inner.model

    @model.setter
    def model(self, model: Any) -> None:
        self.inner = copy(self.inner)
        self.inner.model = model

    def losses(self, w: EncodedTable, draw: Draw, ramps: Tensor) -> StepLosses:
        if self.model.training and self.chance.random() < self.share:
            self.poisoned += 1
            w = EncodedTable(self.chance.choice(self.poisons)(w.num), w.cat, w.observed)
        losses: StepLosses = self.inner.losses(w, draw, ramps)
        return losses


def learn(objective: Loss, epochs: int, seed: int) -> TrainingResult:
    """So long that the loss is far from its first value, and from 0, which means nothing here."""
    rows = table(256, seed)
    settings = replace(SETTINGS, epochs=epochs, validate_every=epochs // 4, learning_rate=6e-3)
    return train(objective, rows, settings, HeldOutLoss(rows, seed), seed)


def gaussian() -> VarTJepaLoss:
    """The first version's model and loss."""
    sizes = {name: getattr(SMALL, name) for name in field_names(EncoderSettings)}
    with seeded_weights(0):
        model = VarTJepa(SHAPE, first_version(Architecture, **sizes, imputer_depth=1))
    return VarTJepaLoss(model, first_version(Objective, targets=4, alpha_kl_sy=1e-5))


@cache
def clean_result(make: Callable[[], Loss], epochs: int, seed: int) -> TrainingResult:
    return learn(make(), epochs, seed)


def compare(
    make: Callable[[], Loss], poisons: Sequence[Poison], epochs: int, seed: int
) -> dict[str, float]:
    """A clean training and a poisoned one."""
    clean = clean_result(make, epochs, seed)
    poisoned = Poisoned(make(), poisons, 0.01, seed)
    result = learn(poisoned, epochs, seed)
    return {
        "first loss": clean.history[0]["loss"],
        "clean loss": -clean.best_score,
        "poisoned loss": -result.best_score,
        "difference": abs(result.best_score / clean.best_score - 1),
        "poisoned steps": poisoned.poisoned,
        "skipped steps": result.skipped_steps,
    }


def test_a_little_poison_does_little() -> None:
    found = compare(gaussian, [*KINDS.values()], 60, 0)
    assert found["poisoned steps"] == found["skipped steps"] >= 3
    assert found["clean loss"] < found["first loss"] / 2
    assert found["difference"] < 0.05, found


def test_a_little_poison_does_little_to_bins() -> None:
    found = compare(var_t_jepa, [KINDS["nan"]], 100, 0)
    assert found["poisoned steps"] == found["skipped steps"] >= 3
    assert found["clean loss"] < found["first loss"] / 2
    assert found["difference"] < 0.05, found
    found = compare(var_t_jepa, [KINDS["inf"], KINDS["million"]], 100, 0)
    assert found["poisoned steps"] >= 3
    assert found["difference"] < 0.05, found


@pytest.mark.soak
def test_a_little_poison_does_little_to_any_seed(
    record_soak: Callable[[str, dict[str, Any]], None],
) -> None:
    found = {
        f"{name}, seed {seed}": compare(gaussian, [poison], 100, seed)
        for name, poison in KINDS.items()
        for seed in range(3)
    }
    worst = max(one["difference"] for one in found.values())
    record_soak("poisoned-batches", {"largest difference": worst, "trainings": found})
    assert all(one["poisoned steps"] == one["skipped steps"] > 0 for one in found.values())
    assert worst < 0.05, found


# --- adversaries

EXTREMES = (math.nan, math.inf, -math.inf, 3e38, -3e38, 1e20, 1e-45, 1e6, 0.0)


def adversary(chance: random.Random) -> Poison:
    """Extreme numbers in all cells, or in one."""

    def poison(x: Tensor) -> Tensor:
        bad = chance.choice(EXTREMES)
        if chance.random() < 0.5:
            return torch.full_like(x, bad)
        one = x.clone()
        one[chance.randrange(len(x)), chance.randrange(x.shape[1])] = bad
        return one

    return poison


def growing(chance: random.Random) -> Poison:
    """Every batch a thousand times larger than the last, up to the largest number."""
    scale = [1.0]

    def poison(x: Tensor) -> Tensor:
        scale[0] = 1.0 if scale[0] > 1e38 else scale[0] * chance.choice([2.0, 30.0, 900.0])
        return (x * scale[0]).clamp(max=3e38)

    return poison


def attack(make: Callable[[], Loss], kind: type[Stepper], steps: int) -> dict[str, float]:
    """Take adversarial steps, and count what is not finite afterwards."""
    rows = table(256)
    settings = replace(SETTINGS, epochs=steps // 4, learning_rate=0.1)
    chance = random.Random(0)
    plans = [adversary(chance), growing(chance), lambda x: x, KINDS["nan"]]
    objective = Poisoned(make(), plans, 1.0, 0)
    objective.model.train()
    with kind(objective, rows, settings, 0) as stepper:
        for _ in range(settings.epochs):
            stepper.begin_epoch()
            for _ in range(stepper.steps_per_epoch):
                stepper.step()
        saved = stepper.tensors()
    numbers = {k: v for k, v in saved.items() if k.startswith(("model.", "moment."))}
    assert any(name.endswith("exp_avg_sq") for name in numbers)
    return {
        "steps": stepper.done,
        "skipped": int(saved["tally.skipped"]),
        "not finite": sum(int((~v.isfinite()).sum()) for v in numbers.values()),
        "largest moment": max(float(v.abs().max()) for k, v in numbers.items() if "exp_avg" in k),
    }


@pytest.mark.parametrize("make", [var_t_jepa, t_jepa])
@pytest.mark.parametrize("kind", [Stepper, PaddedStepper])
def test_adversarial_steps_leave_everything_finite(
    make: Callable[[], Loss], kind: type[Stepper]
) -> None:
    found = attack(make, kind, 100)
    assert found["steps"] == 100
    assert 0 < found["skipped"] < 100
    assert found["not finite"] == 0


@pytest.mark.soak
def test_a_thousand_adversarial_steps_leave_everything_finite(
    record_soak: Callable[[str, dict[str, Any]], None],
) -> None:
    found = {
        f"{make.__name__}, {kind.__name__}": attack(make, kind, 1000)
        for make in (var_t_jepa, t_jepa)
        for kind in (Stepper, PaddedStepper)
    }
    record_soak("adversarial-steps", found)
    assert all(one["not finite"] == 0 and one["skipped"] > 0 for one in found.values()), found


# --- the guard itself


def norms(guard: StepGuard, *values: float) -> list[bool]:
    zero = torch.tensor(0.0)
    return [bool(guard.refuses(zero, torch.tensor(value))) for value in values]


def test_the_guard_refuses_what_is_out_of_proportion() -> None:
    guard = StepGuard(torch.device("cpu"))
    assert not any(norms(guard, 5.0, 2.0, 200.0, *[3.0] * 100))
    assert norms(guard, 60.0, 9e3, 3.0, math.nan, math.inf, 3.0) == [0, 1, 0, 1, 1, 0]
    assert bool(guard.refuses(torch.tensor(math.nan), torch.tensor(1.0)))
    assert not any(norms(guard, *[0.0] * 10, 3.0))


def test_gradients_that_have_grown_for_good_are_let_in() -> None:
    guard = StepGuard(torch.device("cpu"))
    norms(guard, *[1.0] * 200)
    refused = norms(guard, *[1e6] * 20)
    assert refused == sorted(refused, reverse=True)
    assert 5 < sum(refused) < 15


def test_no_norm_is_let_in_whose_square_overflows() -> None:
    guard = StepGuard(torch.device("cpu"))
    values = [10.0**k for k in range(38)]
    for value, refused in zip(values, norms(guard, *values), strict=True):
        assert refused or value <= LARGEST
    assert guard.usual <= LARGEST


def test_an_ordinary_training_is_not_touched() -> None:
    assert run(table(), replace(SETTINGS, epochs=10))[1].skipped_steps == 0


# --- determinism


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_and_threads_give_the_same_sha256(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        sums = [
            hashlib.sha256(save(run(table(), replace(SETTINGS, epochs=4), seed)[0].state_dict()))
            for seed in (3, 3, 4)
        ]
    finally:
        torch.set_num_threads(before)
    assert sums[0].digest() == sums[1].digest() != sums[2].digest()
