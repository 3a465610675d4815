"""Claims about the step bench.

1. A row has every figure the results file promises, all of them finite and positive.
2. Our step, in slices on threads, takes the gradient of the reference's loss.
3. Both draw the same mask sizes, step after step; Adult's middle is (2, 4).
4. Every shape builds, with the paper's number of features; an unknown one is refused.
"""

from __future__ import annotations

import math

import pytest
import torch

from varjepa.bench import training_step
from varjepa.bench.reference import ReferenceStep
from varjepa.bench.shapes import SHAPES
from varjepa.bench.training_step import bench_steps, make_task, sliced_step
from varjepa.errors import InputError
from varjepa.masking import draw_masks
from varjepa.models.var_t_jepa.model import draw_latent_noise
from varjepa.variational.elbo import ElboWeights, weighted_loss
from varjepa.variational.model import LatentNoise

FIGURES = (
    "reference_ms", "ours_ms", "ratio", "rows_per_s", "peak_mb", "reference_peak_mb", "kernels",
    "limit_ms", "embed_rows_per_s", "reference_embed_rows_per_s",
)  # fmt: skip


def test_a_row_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_step, "_peak_mb", lambda *_: 1.0)  # a fresh process each: slow
    (row,) = bench_steps(["electricity"], repeats=1, batch=8, mask_sizes="drawn")
    assert (row["shape"], row["device"], row["batch"]) == ("electricity", "cpu", 8)
    assert all(math.isfinite(row[name]) and row[name] > 0 for name in FIGURES)
    assert row["environment"]["torch"] == torch.__version__


def test_peak_memory_is_measured() -> None:
    arguments = ("electricity", "cpu", "middle", 0, 256)
    assert training_step._peak_mb(sliced_step, arguments) > 1.0


@pytest.mark.parametrize("cores", [1, 2])
def test_our_step_descends_the_references_loss(cores: int) -> None:
    task = make_task("electricity", batch=600)  # three slices
    rows, model, g = task.rows, task.model, torch.Generator().manual_seed(task.seed)
    masks = draw_masks(600, 8, None, task.sizes[0], 4, g)
    noise = draw_latent_noise(model, 600, task.sizes[0][0], g)
    tied = LatentNoise(noise.s_x, noise.z, noise.s_y.unsqueeze(1).expand(-1, 4, -1, -1))
    loss = weighted_loss(ReferenceStep(model)(rows, masks, tied), ElboWeights()).mean()
    learned = [p for n, p in model.named_parameters() if _in_loss(n)]
    expected = torch.autograd.grad(loss, learned)

    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        with sliced_step(task) as step:
            step()
    finally:
        torch.set_num_threads(before)
    for parameter, gradient in zip(learned, expected, strict=True):
        assert parameter.grad is not None
        assert (parameter.grad - gradient).norm() <= 1e-5 * gradient.norm() + 1e-9


def _in_loss(name: str) -> bool:
    """The imputer has a loss of its own; a complete, numeric table has no other kind of token."""
    unused = ("imputer.", "tokenizer.missing", "tokenizer.embedding")
    return not any(part in name for part in unused)


def test_mask_sizes() -> None:
    assert make_task("adult", batch=2).sizes == ((2, 4),)
    drawn = make_task("adult", mask_sizes="drawn", batch=2).sizes
    assert len(set(drawn)) > 5
    assert drawn == make_task("adult", mask_sizes="drawn", batch=2).sizes


def test_the_papers_feature_counts() -> None:
    counts = {name: shape.table.features for name, shape in SHAPES.items()}
    assert counts == {
        "adult": 14, "covertype": 54, "electricity": 8, "credit": 23, "bank": 16, "mnist": 784,
        "sim": 32,
    }  # fmt: skip


def test_unknown_shapes_are_refused() -> None:
    with pytest.raises(InputError, match="'iris' is not one of adult"):
        bench_steps(["iris"])
