"""Claims about the step bench.

1. A row has every figure the results file promises, all of them finite and positive.
2. The trainer's step, in slices on threads, takes the gradient of the reference's loss.
3. Adult's masks of middle size are (2, 4); drawn ones are the shape's.
4. Every shape builds, with the paper's number of features; an unknown one is refused.
"""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks import steps as training_step
from benchmarks.measures import peak_mb
from benchmarks.reference import ReferenceStep
from benchmarks.steps import SHAPES, bench_steps, make_workload, plain_objective, trainer_step
from paper.settings import first_version
from varjepa.errors import InputError
from varjepa.models.masking import draw_mask_sizes
from varjepa.settings import Training
from varjepa.training.losses import VarTJepaLoss
from varjepa.training.step import StepInputs, Stepper, draw_step
from varjepa.variational.elbo import ElboWeights, weighted_loss
from varjepa.variational.model import LatentNoise

FIGURES = (
    "reference_ms", "ours_ms", "ratio", "rows_per_s", "peak_mb", "reference_peak_mb", "kernels",
    "limit_ms", "embed_rows_per_s", "reference_embed_rows_per_s",
)  # fmt: skip


def test_a_row_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_step, "peak_mb", lambda *_: 1.0)  # a fresh process each: slow
    row = bench_steps("electricity", repeats=1, batch=64, mask_sizes="drawn")
    assert (row["shape"], row["device"], row["batch"]) == ("electricity", "cpu", 64)
    assert all(math.isfinite(row[name]) and row[name] > 0 for name in FIGURES)
    assert row["environment"]["torch"] == torch.__version__


def test_peak_memory_is_measured() -> None:
    arguments = (trainer_step, "electricity", "cpu", "middle", 0, 256)
    assert peak_mb(training_step._step_growth, arguments, "cpu") > 1.0


@pytest.mark.parametrize("cores", [1, 2])
def test_our_step_descends_the_references_loss(cores: int) -> None:
    workload = make_workload("electricity", batch=600)  # slices of 300 rows
    rows, model = workload.rows, workload.model
    objective = VarTJepaLoss(model, plain_objective(workload.masks))
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        settings = first_version(Training, epochs=40, batch_size=600)
        with Stepper(objective, rows, settings, seed=0) as stepper:
            stepper.begin_epoch()
            inputs = StepInputs(
                torch.arange(600), None, stepper.sizes[0], None, 0.0, torch.ones(3), 0.0
            )
            state = stepper.streams.numbers.get_state()
            stepper.descend(inputs)  # at a rate of 0: weights stay, gradients are there
            found = {n: p.grad for n, p in model.named_parameters() if _in_loss(n)}
    finally:
        torch.set_num_threads(before)

    numbers = torch.Generator()
    numbers.set_state(state)
    views = workload.masks.targets
    draw = draw_step(objective, 600, None, stepper.sizes[0], views, numbers)
    noise = draw.noise
    assert noise is not None
    tied = LatentNoise(noise.s_x, noise.z, noise.s_y.unsqueeze(1).expand(-1, views, -1, -1))
    loss = weighted_loss(ReferenceStep(model)(rows, draw.masks, tied), ElboWeights()).mean()
    learned = [p for n, p in model.named_parameters() if _in_loss(n)]
    expected = torch.autograd.grad(loss, learned)
    for ours, gradient in zip(found.values(), expected, strict=True):
        assert ours is not None
        assert (ours - gradient).norm() <= 1e-5 * gradient.norm() + 1e-9


def _in_loss(name: str) -> bool:
    """The imputer has a loss of its own; a complete, numeric table has no other kind of token."""
    unused = ("imputer.", "tokenizer.missing", "tokenizer.embedding")
    return not any(part in name for part in unused)


def test_mask_sizes() -> None:
    generator = torch.Generator().manual_seed(0)
    middle = make_workload("adult", batch=2).masks
    assert {draw_mask_sizes(14, middle, generator) for _ in range(50)} == {(2, 4)}
    assert make_workload("adult", mask_sizes="drawn", batch=2).masks == SHAPES["adult"].masks


def test_the_papers_feature_counts() -> None:
    counts = {name: shape.table.features for name, shape in SHAPES.items()}
    assert counts == {
        "adult": 14, "covertype": 54, "electricity": 8, "credit": 23, "bank": 16, "mnist": 784,
        "sim": 32,
    }  # fmt: skip


def test_unknown_shapes_are_refused() -> None:
    with pytest.raises(InputError, match="'iris' is not one of adult"):
        bench_steps("iris")
