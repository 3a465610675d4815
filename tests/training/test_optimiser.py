"""Claims about Muon, AdamW beside it, and averaged weights.

1. Orthogonalised, a matrix keeps its singular vectors, and singular values of at least .003 of its
   norm are within [.79, 1.21]; smaller ones have grown.
2. Muon steps the matrices of linear maps and nothing else; AdamW steps the rest.
3. A step that is bad changes no weight and no momentum of Muon's.
4. Restored from what was saved, an optimiser goes on as if it had not stopped, to the last bit;
   other shapes are refused.
5. The averaged model is the weighted mean of all steps' weights; step t counts t (t + 1) … (t + 7),
   about t^8. It is what validations score and what a training ends with.
6. With "average" the rate rises, then falls as the inverse root of the steps, whatever the length;
   with "cosine" it falls to 0, and there is no average.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.training.test_loop import SETTINGS, WEIGHTS, build, padded_stepper, table
from varjepa.training.loop import Selection, train
from varjepa.training.losses import Loss, VarTJepaLoss
from varjepa.training.optimiser import AveragedModel, Optimiser, muon_matrices, orthogonalise
from varjepa.training.step import FALL_FROM, Stepper

CPU = torch.device("cpu")
GOOD, BAD = torch.tensor(False), torch.tensor(True)
MUON = replace(SETTINGS, epochs=4)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def with_gradients(model: nn.Module, seed: int) -> None:
    g = seeded(seed)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=g)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


# --- 1


@pytest.mark.parametrize("shape", [(8, 8), (6, 24), (24, 6), (1, 5)])
def test_singular_values_become_about_one(shape: tuple[int, int]) -> None:
    several = torch.randn(5, *shape, generator=seeded(0)) * torch.logspace(-3, 3, 5).view(5, 1, 1)
    found = orthogonalise(several)
    assert found.shape == several.shape
    values = torch.linalg.svdvals(found)
    before = torch.linalg.svdvals(several)
    lost = before < 0.003 * before.norm(dim=-1, keepdim=True)
    assert ((values > 0.79) | lost).all()
    assert (values < 1.21).all()
    u, _, vh = torch.linalg.svd(several, full_matrices=False)
    inside = u.mT @ found @ vh.mT
    off = inside - torch.diag_embed(inside.diagonal(dim1=-2, dim2=-1))
    assert off.abs().max() < 1e-3


def test_small_singular_values_grow() -> None:
    u, v = (torch.linalg.qr(torch.randn(12, 12, generator=seeded(i)))[0] for i in (1, 2))
    before = torch.logspace(0, -5, 12)
    found = (u.mT @ orthogonalise((u @ before.diag() @ v).unsqueeze(0))[0] @ v.mT).diagonal()
    known = before / before.norm() >= 0.003
    assert known.sum() == 6
    assert ((found[known] > 0.79) & (found[known] < 1.21)).all()
    assert (found[~known] > 100 * before[~known]).all()


def test_nothing_comes_of_nothing() -> None:
    assert torch.equal(orthogonalise(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


# --- 2 and 3


def test_muon_steps_the_matrices_of_linear_maps() -> None:
    model = build()
    learned = dict(model.named_parameters())
    found = muon_matrices(model, learned)
    linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert len(found) == len(linear)
    assert {id(weight) for weight in found.values()} == {id(m.weight) for m in linear}
    assert not any("tokenizer" in name or "decoder" in name for name in found)
    optimiser = Optimiser(model, MUON, CPU)
    with_gradients(model, 0)
    before = weights_of(model)
    optimiser.step(0.01, GOOD)
    after = weights_of(model)
    assert all(not torch.equal(before[n], after[n]) for n in before if before[n].numel())
    kinds = optimiser.tensors()
    for name in learned:
        has = {kind for kind in ("momentum", "exp_avg") if f"{name}.{kind}" in kinds}
        assert has == {"momentum" if name in found else "exp_avg"}
    plain = Optimiser(build(), replace(MUON, optimiser="adamw"), CPU)
    assert plain.muon is None


def test_a_step_of_muon_is_as_large_as_one_of_adamws() -> None:
    sizes = []
    for kind in ("muon", "adamw"):
        model = build()
        optimiser = Optimiser(model, replace(MUON, optimiser=kind, weight_decay=0.0), CPU)
        before = weights_of(model)
        with_gradients(model, 0)
        optimiser.step(0.01, GOOD)
        after = weights_of(model)
        name = next(n for n in muon_matrices(model, dict(model.named_parameters())))
        sizes.append(float((after[name] - before[name]).square().mean().sqrt()))
    assert 0.1 < sizes[0] / sizes[1] < 2.0


def test_a_bad_step_changes_nothing() -> None:
    model = build()
    optimiser = Optimiser(model, MUON, CPU)
    with_gradients(model, 0)
    optimiser.step(0.01, GOOD)
    before = weights_of(model), {n: t.clone() for n, t in optimiser.tensors().items()}
    with_gradients(model, 1)
    for weight in model.parameters():
        assert weight.grad is not None
        weight.grad.fill_(math.nan)
    optimiser.step(0.01, BAD)
    assert same(before[0], weights_of(model))
    assert same(before[1], optimiser.tensors())


# --- 4


def test_a_restored_optimiser_goes_on() -> None:
    models = [build(), build()]
    optimisers = [Optimiser(model, MUON, CPU) for model in models]
    for seed in range(3):
        with_gradients(models[0], seed)
        optimisers[0].step(0.01, GOOD)
    models[1].load_state_dict(models[0].state_dict())
    optimisers[1].restore({n: t.clone() for n, t in optimisers[0].tensors().items()})
    for model, optimiser in zip(models, optimisers, strict=True):
        for seed in range(3, 6):
            with_gradients(model, seed)
            optimiser.step(0.01, GOOD)
    assert same(weights_of(models[0]), weights_of(models[1]))
    saved = {n: t.clone() for n, t in optimisers[0].tensors().items()}
    assert same(saved, optimisers[1].tensors())
    name = next(n for n in saved if n.endswith(".momentum"))
    with pytest.raises(ValueError, match="has another shape"):
        optimisers[1].restore({**saved, name: torch.zeros(2, 2)})


@pytest.mark.parametrize("padded", [False, True])
def test_a_restored_stepper_has_momentum_and_averages(padded: bool) -> None:
    kind = padded_stepper if padded else Stepper

    def stepper() -> Stepper:
        arguments = VarTJepaLoss(build(), WEIGHTS), table(200), MUON, 0
        return kind(*arguments, None) if padded else kind(*arguments)

    with stepper() as one, stepper() as other:
        one.begin_epoch()
        for _ in range(3):
            one.step()
        saved = {n: t.clone() for n, t in one.tensors().items()}
        assert any(n.endswith(".momentum") and t.abs().sum() > 0 for n, t in saved.items())
        assert saved["average.steps"] == 3
        other.restore(saved)
        for each in (one, other):
            each.step()
        assert same(
            {n: t.clone() for n, t in one.tensors().items()},
            {n: t.clone() for n, t in other.tensors().items()},
        )


# --- 5


def test_the_average_is_the_weighted_mean_of_all_steps() -> None:
    model = build()
    average = AveragedModel(model)
    g = seeded(0)
    seen: list[dict[str, Tensor]] = []
    for _ in range(30):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn(weight.shape, generator=g))
        average.add()
        seen.append(weights_of(model))
    counts = torch.tensor([math.prod(range(t, t + 8)) for t in range(1, 31)], dtype=torch.float64)
    shares = counts / counts.sum()
    powers = torch.arange(1, 31, dtype=torch.float64) ** 8
    assert (shares - powers / powers.sum()).abs().max() < 0.04  # t^8 but for its first steps
    assert shares[-10:].sum() > 0.9
    for name, weight in average.model.named_parameters():
        each = torch.stack([weights[name].double() for weights in seen])
        expected = torch.tensordot(shares, each, 1)
        torch.testing.assert_close(weight.double(), expected, rtol=1e-4, atol=1e-5)
        assert not weight.requires_grad
    assert average.tensors()["steps"] == 30


def test_averages_are_scored_and_kept() -> None:
    scored: list[dict[str, Tensor]] = []

    class Watching(Selection):
        name = "watching"

        def score(self, loss: Loss) -> float:
            scored.append(weights_of(loss.model))
            return float(len(scored))

    ends: dict[str, dict[str, Tensor]] = {}
    for schedule in ("average", "cosine"):
        scored.clear()
        loss = VarTJepaLoss(build(), WEIGHTS)
        settings = replace(MUON, schedule=schedule, validate_every=2)
        train(loss, table(200), settings, Watching(), seed=0)
        assert len(scored) == 2
        ends[schedule] = weights_of(loss.model)
        assert same(ends[schedule], scored[-1])
    assert not same(ends["average"], ends["cosine"])


# --- 6


def test_the_rate_rises_and_falls() -> None:
    settings = replace(SETTINGS, epochs=10, warm_up_share=0.2, learning_rate=1e-3)
    rates: dict[str, list[float]] = {}
    for schedule in ("average", "cosine"):
        now = replace(settings, schedule=schedule)
        with Stepper(VarTJepaLoss(build(), WEIGHTS), table(200), now, 0) as stepper:
            rates[schedule] = [stepper.rates_at(step)[0] for step in range(stepper.total)]
            later = [stepper.rates_at(step)[0] for step in (FALL_FROM - 1, 4 * FALL_FROM - 1)]
            assert (stepper.average is None) == (schedule == "cosine")
            if schedule == "average":
                assert later == pytest.approx([1e-3, 5e-4])
    rising = rates["average"][:8]
    assert rising == sorted(rising)
    assert rising == rates["cosine"][:8]
    assert set(rates["average"][8:]) == {1e-3}
    assert rates["cosine"][8:] == sorted(rates["cosine"][8:], reverse=True)
    assert rates["cosine"][-1] < 1e-5
