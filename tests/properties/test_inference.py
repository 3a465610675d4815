"""Claims about who sees what in the simulation model, and about its two walks.

1. z and the predictor do not depend on y: their gradient with respect to y is exactly zero.
2. L_gen and KL_sy do reach q(z | s_x), and L_gen reaches the context encoder.
3. rec does not reach the target side at all.
4. Generation sees no target, takes z from its prior, and differs from draw to draw.
5. R stacked runs equal the same runs alone, to rounding in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from varjepa.models.simulation import SimulationModelSettings, SimulationVarJEPA
from varjepa.randomness import generator_for
from varjepa.variational.model import draw_noise, generate, infer, terms_of

SETTINGS = SimulationModelSettings(hidden=16)


def small_model(*seeds: int) -> SimulationVarJEPA:
    return SimulationVarJEPA(SETTINGS, [generator_for(s, "weights") for s in seeds]).double()


def pair(runs: int, rows: int = 20) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(runs, rows, SETTINGS.d_obs, generator=g, dtype=torch.float64)
    y = torch.randn(runs, rows, SETTINGS.d_obs, generator=g, dtype=torch.float64)
    return x, y.requires_grad_()


def test_nothing_of_the_target_leaks_into_context() -> None:
    model, (x, y) = small_model(1), pair(1)
    walk = infer(model, x, y, draw_noise(model, x, torch.Generator()))
    for blind in (walk.s_x, walk.z, walk.p_s_y.mean, walk.p_s_y.log_var):
        assert torch.autograd.grad(blind.sum(), y, retain_graph=True, allow_unused=True)[0] is None
    assert torch.autograd.grad(walk.s_y.sum(), y)[0].abs().sum() > 0


def test_target_terms_train_the_auxiliary_encoder() -> None:
    model, (x, y) = small_model(1), pair(1)
    terms = terms_of(model, x, y, infer(model, x, y, draw_noise(model, x, torch.Generator())))
    auxiliary = list(model.auxiliary_encoder.parameters())
    context = list(model.context_encoder.parameters())
    for term in (terms.gen, terms.kl_sy):
        for weights in (auxiliary, context):
            grads = torch.autograd.grad(term.sum(), weights, retain_graph=True)
            assert all(g.abs().sum() > 0 for g in grads)
    unused = torch.autograd.grad(
        terms.rec.sum(), [*auxiliary, *model.target_posterior.parameters()], allow_unused=True
    )
    assert all(g is None for g in unused)


def test_generation_needs_no_target() -> None:
    model, (x, _) = small_model(1), pair(1)
    first = generate(model, x, torch.Generator().manual_seed(1))
    second = generate(model, x, torch.Generator().manual_seed(2))
    assert first.y.shape == x.shape
    assert (first.y - second.y).abs().min() > 0
    again = generate(model, x, torch.Generator().manual_seed(1))
    assert torch.equal(first.y, again.y)


def test_generation_takes_z_from_the_prior() -> None:
    model = small_model(1)
    x = torch.full((1, 20_000, SETTINGS.d_obs), 3.0, dtype=torch.float64)
    with torch.no_grad():
        z = generate(model, x, torch.Generator().manual_seed(3)).z[0]
        posterior = model.q_z(model.q_s_x(x).mean)
    assert posterior.kl_to_standard().mean() > 0.01  # so prior and posterior can be told apart
    torch.testing.assert_close(z.mean(0), torch.zeros_like(z[0]), atol=0.04, rtol=0)
    torch.testing.assert_close(z.std(0), torch.ones_like(z[0]), atol=0.03, rtol=0)


def test_stacked_runs_do_not_mix() -> None:
    together, (x, y) = small_model(1, 2, 3), pair(3)
    noise = draw_noise(together, x, torch.Generator())
    stacked = terms_of(together, x, y, infer(together, x, y, noise))
    for r, seed in enumerate((1, 2, 3)):
        alone = small_model(seed)
        part = type(noise)(noise.s_x[r : r + 1], noise.z[r : r + 1], noise.s_y[r : r + 1])
        x_r, y_r = x[r : r + 1], y[r : r + 1]
        single = terms_of(alone, x_r, y_r, infer(alone, x_r, y_r, part))
        for name in ("rec", "gen", "kl_sx", "kl_z", "kl_sy"):
            torch.testing.assert_close(getattr(stacked, name)[r : r + 1], getattr(single, name))
