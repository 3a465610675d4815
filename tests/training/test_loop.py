"""Claims about Algorithm 1's loop.

1. Training lowers the objective; the best epoch is returned, and patience ends training.
2. Steps with a loss that is not finite are skipped and counted; 20 in a row end in one sentence
   that names the rows.
3. KL weights ramp linearly per latent; the learning rate warms up, then stays or falls along a
   cosine.
4. The collapse alarm rings on a planted collapse (no likelihood terms) and is silent on a healthy
   run, ten seeds each; a constant column is no collapse.
5. The same seed trains the same weights.
6. Without labels, held-out cells give the score: the same ones every time; it rises on a table
   that is easy. Rows without any known cell are no obstacle.
7. A time limit ends a training early, in the middle of an epoch, with a model that is validated and
   used; resumed, a training that ended so stays as it is.
8. A training that will take over 20 minutes says so once, and what to set; one that has a time
   limit, or is short, says nothing. Of a wide table it says so before the first step, which changes
   nothing of the training.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from varjepa.errors import InputError
from varjepa.models.inference import Measure, embed_and_measure
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.nn.layers import TableShape
from varjepa.randomness import seeded_weights
from varjepa.settings import Architecture, Objective, Training
from varjepa.tables.codec import EncodedTable
from varjepa.tables.scaling import Bins
from varjepa.training import loop
from varjepa.training.checkpoints import checkpointing
from varjepa.training.cuda_graphs import PaddedStepper
from varjepa.training.loop import (
    FilteredProbe,
    Forecast,
    HeldOutCells,
    HeldOutLoss,
    LinearProbeSettings,
    Selection,
    TrainingResult,
    TrainingState,
    inspect_latents,
    snapshot,
    train,
)
from varjepa.training.losses import Loss, VarTJepaLoss, annealed
from varjepa.training.step import RowSource, kl_factors, warm_up_cosine
from varjepa.variational.elbo import ElboTerms, ElboWeights, weighted_loss

SHAPE = TableShape(3, (4, 3), (Bins.fit(np.linspace(0, 1, 99), most=8),) * 3)
SMALL = Architecture(
    d=8, depth=1, heads=2, ff=16, predictor_width=8, predictor_depth=1, predictor_heads=2,
    predictor_ff=16,
)  # fmt: skip
WEIGHTS = Objective(targets=4, alpha_kl_sy=1e-5)
SETTINGS = Training(
    epochs=30,
    batch_size=64,
    learning_rate=1e-2,
    warm_up_share=1 / 30,
    anneal_share=(1 / 6, 1 / 6, 1 / 6),
    validate_every=5,
)


def table(n: int = 256, seed: int = 0) -> EncodedTable:
    g = torch.Generator().manual_seed(seed)
    num = torch.rand(n, 3, generator=g)
    first = 1 + (num[:, 0] * 3).long().clamp_max(2)
    second = 1 + torch.randint(0, 2, (n,), generator=g)
    return EncodedTable(num, torch.stack([first, second], 1), None)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build(seed: int = 0) -> VarTJepa:
    with seeded_weights(seed):
        return VarTJepa(SHAPE, SMALL)


def padded_stepper(*arguments: Any) -> PaddedStepper:
    """In place of ``make_stepper``, without its last argument."""
    return PaddedStepper(*arguments[:-1])


def run(
    rows: EncodedTable,
    settings: Training = SETTINGS,
    seed: int = 0,
    weights: Objective = WEIGHTS,
) -> tuple[VarTJepa, TrainingResult]:
    objective = VarTJepaLoss(build(seed), weights)
    selection = HeldOutLoss(rows, seed)
    return objective.model, train(objective, rows, settings, selection, seed)


Trained = tuple[VarTJepa, TrainingResult]


@pytest.fixture(scope="module")
def trained() -> Trained:
    """A training of the table; no test changes its weights."""
    return run(table())


def test_training_learns_and_keeps_the_best_look(trained: Trained) -> None:
    rows = table()
    model, result = trained
    losses = [record["loss"] for record in result.history]
    assert losses[-1] < losses[0] - 0.5
    scores = {r["epoch"]: r["held-out objective"] for r in result.history if "active_units" in r}
    assert result.best_score == max(scores.values()) == scores[result.best_epoch]
    objective = VarTJepaLoss(model, WEIGHTS)
    again = HeldOutLoss(rows, 0).score(objective)
    assert again == pytest.approx(result.best_score, rel=1e-6)


def test_patience_ends_training() -> None:
    class Falling(Selection):
        name = "falling"
        validations = 0

        def score(self, loss: Loss) -> float:
            self.validations += 1
            return -self.validations

    settings = replace(SETTINGS, validate_every=1, patience=3)
    objective = VarTJepaLoss(build(), WEIGHTS)
    result = train(objective, table(), settings, Falling(), seed=0)
    assert result.best_epoch == 1
    assert len(result.history) == 4


def test_a_training_without_a_finite_look_says_so() -> None:
    class Blind(Selection):
        name = "blind"

        def score(self, loss: Loss) -> float:
            return math.nan

    objective = VarTJepaLoss(build(), WEIGHTS)
    with pytest.raises(InputError, match="finite score"):
        train(objective, table(), replace(SETTINGS, epochs=1), Blind(), seed=0)


@pytest.mark.parametrize(
    "name", ["epochs", "batch_size", "max_steps", "validate_every", "patience"]
)
def test_settings_that_make_no_sense_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        replace(SETTINGS, **{name: 0})


def test_any_number_of_cores_trains_the_same_weights() -> None:
    rows = table(1200)  # slices of 300 rows
    ends = []
    before = torch.get_num_threads()
    for cores in (1, 2):
        torch.set_num_threads(cores)
        try:
            model, _ = run(rows, replace(SETTINGS, epochs=4, batch_size=1200))
        finally:
            torch.set_num_threads(before)
        assert all(isinstance(p, torch.nn.Parameter) for p in model.parameters())
        assert all(p.grad is None for p in model.parameters())
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_bad_steps_are_skipped_and_counted() -> None:
    rows = table(256)
    rows.num[7, 1] = math.nan
    objective, settings = VarTJepaLoss(build(), WEIGHTS), replace(SETTINGS, epochs=3)
    selection = HeldOutLoss(table(64), 0)
    model, result = objective.model, train(objective, rows, settings, selection, seed=0)
    assert result.skipped_steps == 3  # one batch of each epoch holds the row
    assert all(p.isfinite().all() for p in model.parameters())


def test_only_bad_steps_end_in_a_sentence_with_row_numbers() -> None:
    rows = table(64)
    rows.num[5, 0] = math.nan
    rows.num[9, 2] = math.nan
    with pytest.raises(InputError, match=r"20 steps in a row.*rows (5, 9|9, 5)$"):
        run(rows, replace(SETTINGS, epochs=25))


def test_row_numbers_are_the_users() -> None:
    rows = table(64)
    rows.num[5, 0] = math.nan
    objective = VarTJepaLoss(build(), WEIGHTS)
    selection = HeldOutLoss(rows, 0)
    with pytest.raises(InputError, match=r"rows 1005$"):
        source = RowSource(rows, torch.arange(1000, 1064))
        train(objective, source, replace(SETTINGS, epochs=25), selection, 0)


def test_annealing_is_linear_per_latent() -> None:
    durations = (10, 0, 20)
    assert kl_factors(0, durations) == (0.1, 1.0, 0.05)
    assert kl_factors(4, durations) == (0.5, 1.0, 0.25)
    assert kl_factors(100, durations) == (1.0, 1.0, 1.0)
    terms = annealed(ElboTerms(*torch.ones(5, 2)), torch.tensor(kl_factors(4, durations)))
    loss = weighted_loss(terms, ElboWeights(0.5, 2.0, 1.0, 3.0, 1.0))
    assert loss.tolist() == [0.5 + 2.0 + 0.5 + 3.0 + 0.25] * 2


def test_learning_rate_warms_up_and_falls() -> None:
    rates = [warm_up_cosine(step, 10, 100) for step in range(100)]
    assert rates[:10] == sorted(rates[:10])
    assert rates[10] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 0.001
    assert all(0 < rate <= 1 for rate in rates)


def test_the_same_seed_trains_the_same_weights() -> None:
    settings = replace(SETTINGS, epochs=3)
    one, other = (run(table(), settings)[0].state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_filtered_probe_discards_the_uncertain(trained: Trained) -> None:
    rows = table()
    labels = rows.cat[:, 0] - 1
    objective = VarTJepaLoss(trained[0], WEIGHTS)
    probe = LinearProbeSettings()

    def accuracy(discard: float, truth: Tensor) -> float:
        return FilteredProbe(rows, labels, rows, truth, 3, probe, 0, discard).score(objective)

    assert accuracy(0.2, labels) > 0.9
    assert accuracy(0.2, (labels + 1) % 3) < 0.1
    assert accuracy(0.999, labels) in (0.0, 1.0)  # a single row is left


def test_the_measure_decides_which_rows_are_discarded(trained: Trained) -> None:
    rows = table()
    labels = rows.cat[:, 0] - 1
    model = trained[0]
    measures: list[Measure] = [("posterior", "q90"), ("predictive", "geometric")]
    for measure in measures:
        _, unsure = embed_and_measure(model, rows, measure, 0)
        truth = torch.where(unsure > unsure.quantile(0.5), (labels + 1) % 3, labels)
        probe = FilteredProbe(
            rows, labels, rows, truth, 3, LinearProbeSettings(), 0, 0.5, ranked_by=measure
        )
        assert probe.score(VarTJepaLoss(model, WEIGHTS)) > 0.9, measure
        other = replace(probe, ranked_by=("nll", "mean")).score(VarTJepaLoss(model, WEIGHTS))
        assert other < 0.9, measure


COLLAPSED = Objective(
    targets=4,
    alpha_rec=0,
    alpha_gen=0,
    alpha_kl_sx=1,
    alpha_kl_z=1,
    alpha_kl_sy=1,
    alpha_prediction=0,
)


@pytest.mark.parametrize("seed", range(10))
def test_the_alarm_rings_on_a_planted_collapse_only(seed: int) -> None:
    settings = replace(SETTINGS, epochs=7)
    _, healthy = run(table(seed=seed), settings, seed)
    assert not healthy.collapse.collapsed, healthy.collapse
    _, collapsed = run(table(seed=seed), settings, seed, COLLAPSED)
    assert collapsed.collapse.collapsed, collapsed.collapse


def test_a_constant_column_is_no_collapse() -> None:
    means = torch.randn(50, 3, 4, generator=torch.Generator().manual_seed(0))
    means[:, 1] = 0.7
    varies = torch.tensor([True, False, True])
    assert not inspect_latents(means, varies).collapsed
    assert inspect_latents(means, torch.ones(3, dtype=torch.bool)).silent_features == (1,)
    assert inspect_latents(torch.zeros(50, 3, 4), varies).collapsed
    assert not inspect_latents(torch.zeros(50, 3, 4), torch.zeros(3, dtype=torch.bool)).collapsed


def test_a_later_look_wins_unless_it_is_worse_than_chance_explains() -> None:
    model = build()
    plain, patient = (TrainingState(best=snapshot(model)) for _ in range(2))
    for score in (0.80, 0.90, 0.895, 0.70):
        plain.compare(score, model)
        patient.compare(score, model, noise=0.01)
        for state in (plain, patient):
            state.history.append({})
    assert (plain.best_epoch, plain.best_score, plain.validations_without_gain) == (2, 0.9, 2)
    assert (patient.best_epoch, patient.best_score, patient.validations_without_gain) == (3, 0.9, 1)


def test_the_noise_of_an_accuracy_is_its_standard_error() -> None:
    labels = torch.zeros(100, dtype=torch.long)
    probe = FilteredProbe(
        table(100), labels, table(100), labels, 2, LinearProbeSettings(), 0, standard_errors=2.0
    )
    assert probe.noise(0.9) == pytest.approx(2 * (0.9 * 0.1 / 80) ** 0.5)  # a fifth is discarded
    assert replace(probe, standard_errors=0.0).noise(0.9) == 0


# --- 6


def test_held_out_cells_are_the_same_every_time() -> None:
    rows, loss = table(300, seed=1), VarTJepaLoss(build(), WEIGHTS)
    one = HeldOutCells(rows, 0)
    score = one.score(loss)
    assert one.score(loss) == score
    torch.rand(5)  # the global generator is another now
    assert HeldOutCells(rows, 0).score(loss) == score
    assert HeldOutCells(rows, 1).score(loss) != score
    holed = EncodedTable(rows.num, rows.cat, torch.rand(300, 5, generator=seeded(0)) > 0.3)
    assert math.isfinite(HeldOutCells(holed, 0).score(loss))
    empty = EncodedTable(rows.num, rows.cat, torch.zeros(300, 5, dtype=torch.bool))
    assert HeldOutCells(empty, 0).score(loss) == 0.0


def test_held_out_cells_see_what_was_learned() -> None:
    rows, others = table(400), table(200, seed=1)
    others.cat[:, 1], rows.cat[:, 1] = others.cat[:, 0], rows.cat[:, 0]  # easy: one is the other
    shape = replace(SHAPE, levels=(4, 4))
    with seeded_weights(0):
        loss = VarTJepaLoss(VarTJepa(shape, SMALL), WEIGHTS)
    selection = HeldOutCells(others, 0)
    before = selection.score(loss)
    result = train(loss, rows, SETTINGS, selection, seed=0)
    assert result.best_score > before + 0.3
    assert selection.score(loss) == pytest.approx(result.best_score, rel=1e-5)
    names = [name for record in result.history for name in record]
    assert "held-out cells" in names


# --- 7


class Clock:
    """A clock that goes on by a second whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize("padded", [False, True])
def test_a_time_limit_ends_training_with_a_model(
    padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop.time, "perf_counter", Clock().perf_counter)
    if padded:
        monkeypatch.setattr(loop, "make_stepper", padded_stepper)
    rows = table(640)  # ten steps an epoch
    settings = replace(SETTINGS, epochs=1000, time_limit=25.0, validate_every=1000)
    model, result = run(rows, settings)
    assert 1 < len(result.history) < 4
    assert result.best_epoch == len(result.history)
    assert math.isfinite(result.best_score)
    assert "active_units" in result.history[-1]
    assert all(weight.isfinite().all() for weight in model.parameters())
    _, short = run(rows, replace(settings, time_limit=1e-9))  # one step is taken all the same
    assert len(short.history) == short.best_epoch == 1


def test_progress_counts_the_time_where_that_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop.time, "perf_counter", Clock().perf_counter)
    settings = replace(SETTINGS, epochs=1000, time_limit=25.0, validate_every=1000)
    shares: list[float] = []
    rows, objective = table(640), VarTJepaLoss(build(), WEIGHTS)
    train(
        objective,
        rows,
        settings,
        HeldOutLoss(rows, 0),
        0,
        on_step=lambda done, total: shares.append(done / total),
    )
    assert shares == sorted(shares)
    assert 0.8 <= shares[-1] <= 1.0


def test_a_training_that_ran_out_of_time_stays_ended(tmp_path: Path) -> None:
    rows = table()
    settings = replace(SETTINGS, epochs=1000, time_limit=1e-9)
    ends = []
    for resume in (False, True):
        loss = VarTJepaLoss(build(), WEIGHTS)
        with checkpointing(tmp_path, 0.0, resume) as checkpoints:
            past = checkpoints.latest() if resume else None
            assert (past is not None) == resume
            result = train(
                loss, rows, settings, HeldOutLoss(rows, 0), 0, checkpoints=checkpoints, past=past
            )
        ends.append((loss.model.state_dict(), result.history))
    assert ends[0][1] == ends[1][1]
    assert all(torch.equal(ends[0][0][name], ends[1][0][name]) for name in ends[0][0])


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("learning_rate", -1.0, "learning_rate must be above 0, not -1.0"),
        ("max_norm", 0.0, "max_norm must be above 0, not 0.0"),
        ("weight_decay", -0.1, "weight_decay must not be negative, as -0.1 is"),
        ("standard_errors", -1.0, "standard_errors must not be negative"),
        ("anneal_share", (0.1, -0.1, 2.0), r"anneal_share must be three shares in \[0, 1\], not"),
    ],
)
def test_impossible_settings_are_refused(name: str, wrong: Any, message: str) -> None:
    changes: dict[str, Any] = {name: wrong}
    with pytest.raises(InputError, match=message):
        replace(SETTINGS, **changes)


@pytest.mark.parametrize("name", ["alpha_rec", "alpha_prediction", "imputer_kl"])
def test_weights_are_not_negative(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} must not be negative, as -1.0 is"):
        Objective(**{name: -1.0})  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0.0, -1.0])
def test_a_time_limit_is_above_zero(wrong: float) -> None:
    with pytest.raises(InputError, match="time_limit must be above 0 seconds"):
        replace(SETTINGS, time_limit=wrong)


@pytest.mark.parametrize(
    ("step", "total", "limit", "warnings"),
    [(40.0, 100, None, 1), (40.0, 100, 60.0, 0), (40.0, 20, None, 0), (0.4, 1000, None, 0)],
)
def test_a_long_training_is_announced_once(
    step: float,
    total: int,
    limit: float | None,
    warnings: int,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    now = [0.0]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    forecast = Forecast(0, is_wanted=limit is None)
    for done in range(1, total + 1):
        now[0] += step
        forecast.check(done, total)
    said = [str(one.message) for one in recwarn]
    assert len(said) == warnings
    if said:
        assert said[0].startswith("training may take another 1 h 6 min")
        assert "set time_limit, in seconds" in said[0]


def test_a_wide_table_is_announced_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def weights_and_warnings(wide: int) -> tuple[dict[str, Tensor], int]:
        monkeypatch.setattr(loop, "WIDE", wide)
        loss, early = VarTJepaLoss(build(), WEIGHTS), []
        settings = replace(SETTINGS, epochs=1, validate_every=1)
        train(
            loss, table(), settings, HeldOutLoss(table(), 0), 0,
            on_step=lambda done, total: early.append(len(recwarn)),
        )  # fmt: skip
        return loss.model.state_dict(), early[0]

    monkeypatch.setattr(loop, "LONG_TRAINING", 0.0)
    plain, before = weights_and_warnings(SHAPE.features + 1)
    assert before == 0
    announced, before = weights_and_warnings(SHAPE.features)
    assert before == 1
    assert "leave columns out" in str(recwarn[0].message)
    assert all(torch.equal(plain[name], announced[name]) for name in plain)
