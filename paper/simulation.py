"""The simulation study (Section 4.1): data, settings and runs.

The data generator of the simulation study (Section 4.1, Appendix C.2).

z ~ N(0, ς_z² I)    c ~ Bernoulli(1/2)    s_x | c ~ N(c δ, ς_x² I)
s_y | s_x, z ~ N(s_x + A z, ς_y² I)    x = h_x(s_x) + ε_x    y = h_y(s_y) + ε_y
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paper.published import SIMULATION_METRICS
from paper.results import Layout, ResultFile, Row, plain
from varjepa.environment import describe_environment
from varjepa.files import make_folder, only_writer
from varjepa.models.simulation import SimulationModelSettings, SimulationVarJEPA
from varjepa.randomness import generator_for
from varjepa.training.simulation import (
    ProbeSettings,
    SimulationObjective,
    SimulationTraining,
    fit_probe,
    probe_accuracy,
    train,
)
from varjepa.variational.diagnostics import covariance_deviation, kl_of_matched_gaussian, mean_norm
from varjepa.variational.elbo import ElboWeights
from varjepa.variational.model import Inference, infer, split_noise
from varjepa.variational.sigreg import SigregSettings, draw_directions, sigreg_mse


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """Appendix C.2; h's weight scale is not given there (paper/LOG.md)."""

    d_obs: int = 32
    """dimension of x and y"""
    d_s: int = 16
    """dimension of s_x and s_y"""
    d_z: int = 8
    """dimension of z"""
    std_x: float = 1.0
    """ς_x, spread of s_x around its component"""
    std_y: float = 0.5
    """ς_y, spread of s_y around s_x + A z"""
    std_z: float = 1.0
    """ς_z"""
    shift: float = 2.0
    """δ_scale: the second component's mean in every coordinate"""
    noise: float = 0.3
    """τ_x = τ_y, observation noise"""
    map_hidden: int = 64
    """hidden width of h_x and h_y"""
    map_gains: tuple[float, float] = (1.0, 1.0)
    """weights of h's two layers are N(0, gain² / fan_in)"""


@dataclass(frozen=True, slots=True)
class PairedSample:
    """Observed pairs with the truth behind them."""

    x: Tensor  # (N, d_obs)
    y: Tensor  # (N, d_obs)
    c: Tensor  # (N,) mixture component, 0 or 1
    s_x: Tensor  # (N, d_s)
    z: Tensor  # (N, d_z)
    s_y: Tensor  # (N, d_s)


@dataclass(frozen=True, slots=True)
class FrozenMap:
    """h: a two-layer tanh perceptron, drawn once per run and never trained."""

    first: Tensor  # (d_s, hidden)
    second: Tensor  # (hidden, d_obs)

    def __call__(self, s: Tensor) -> Tensor:
        return torch.tanh(s @ self.first) @ self.second


@dataclass(frozen=True, slots=True)
class Process:
    """One draw of (A, h_x, h_y): one simulated world, from which any number of rows can come."""

    settings: ProcessSettings
    A: Tensor  # (d_s, d_z)
    h_x: FrozenMap
    h_y: FrozenMap

    def sample(self, rows: int, generator: torch.Generator) -> PairedSample:
        """Draw rows of this world."""
        o = self.settings

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        c = (torch.rand(rows, generator=generator) < 0.5).long()
        s_x = c.unsqueeze(-1) * o.shift + o.std_x * normal(rows, o.d_s)
        z = o.std_z * normal(rows, o.d_z)
        s_y = s_x + z @ self.A.T + o.std_y * normal(rows, o.d_s)
        x = self.h_x(s_x) + o.noise * normal(rows, o.d_obs)
        y = self.h_y(s_y) + o.noise * normal(rows, o.d_obs)
        return PairedSample(x, y, c, s_x, z, s_y)


def draw_process(settings: ProcessSettings, generator: torch.Generator) -> Process:
    """Draw A with entries N(0, 1/d_z) and the two frozen maps."""

    def weights(gain: float, rows: int, columns: int) -> Tensor:
        return gain / math.sqrt(rows) * torch.randn(rows, columns, generator=generator)

    def frozen_map() -> FrozenMap:
        first, second = settings.map_gains
        return FrozenMap(
            weights(first, settings.d_s, settings.map_hidden),
            weights(second, settings.map_hidden, settings.d_obs),
        )

    a = torch.randn(settings.d_s, settings.d_z, generator=generator) / math.sqrt(settings.d_z)
    return Process(settings, a, frozen_map(), frozen_map())


# --- The paper's experiments as data: which settings each of its tables compares.


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Everything the ten variants of the simulation study share (Appendix C.2, D.1, D.6.5)."""

    train_rows: int = 5000
    """pairs to train on; not in the paper, see paper/LOG.md"""
    evaluation_rows: int = 5000
    """fresh pairs for every diagnostic; the paper's row G pins this number"""
    process: ProcessSettings = field(default_factory=ProcessSettings)
    """the data generator"""
    model: SimulationModelSettings = field(default_factory=SimulationModelSettings)
    """the MLP Var-JEPA"""
    training: SimulationTraining = field(default_factory=SimulationTraining)
    """optimisation"""
    sigreg: SigregSettings = field(default_factory=SigregSettings)
    """both the regulariser and the diagnostic"""
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    """the classifier that reads the mixture component off the posterior means"""


@dataclass(frozen=True, slots=True)
class SimulationVariant:
    """One row of Table 1."""

    title: str
    """as the paper's table has it"""
    objective: SimulationObjective
    """weights in front of the terms"""


_NO_LIKELIHOOD = ElboWeights(rec=0, gen=0)
_NO_KL = ElboWeights(kl_sx=0, kl_z=0, kl_sy=0)

SIMULATION_VARIANTS: dict[str, SimulationVariant] = {
    "A": SimulationVariant("ELBO (Var-JEPA)", SimulationObjective()),
    "B": SimulationVariant("ELBO + SIGReg on s_x", SimulationObjective(sigreg_s_x=10)),
    "C": SimulationVariant("ELBO + SIGReg on s_y", SimulationObjective(sigreg_s_y=10)),
    "D": SimulationVariant(
        "ELBO + SIGReg on both", SimulationObjective(sigreg_s_x=10, sigreg_s_y=10)
    ),
    "E": SimulationVariant("ELBO without KL of s_x", SimulationObjective(ElboWeights(kl_sx=0))),
    "F": SimulationVariant("ELBO without KL of s_y", SimulationObjective(ElboWeights(kl_sy=0))),
    "G": SimulationVariant("ELBO without rec and gen", SimulationObjective(_NO_LIKELIHOOD)),
    "H": SimulationVariant("G + SIGReg on both", SimulationObjective(_NO_LIKELIHOOD, 10, 10)),
    "I": SimulationVariant("ELBO without any KL", SimulationObjective(_NO_KL)),
    "J": SimulationVariant("I + SIGReg on both", SimulationObjective(_NO_KL, 10, 10)),
}

EPOCH_FIGURE_VARIANTS = ("A", "C", "E", "I", "J")
"""The variants whose diagnostics Figure "epoch diagnostics" follows over training."""

QUICK_SIMULATION_VARIANTS = ("A", "E", "G", "H", "I", "J")
"""Enough for the main findings: healthy, unregularised, collapsed, and repaired by SIGReg."""


# --- The simulation study: Table 1 and the epoch-diagnostics figure (Section 4.1).
#
# python -m paper simulation --out DIR
#
# Ten objectives, A–J, five simulated worlds each; everything but the objective is the same.
# About 3.5
# minutes on two cores. The result to expect: the ELBO alone (A) keeps q(s_x) near N(0, I) and
# the
# mixture component readable from it; without likelihoods (G) the latent knows nothing;
# without KL (E,
# I) its distribution runs away, and SIGReg brings it only part of the way back (J).
#
# A run is one seed: its world (A, h_x, h_y), its rows, its initial weights and its noise. All
# variants of a run share them, so differences between variants are paired.

LATENTS = ("s_x", "s_y")

OnEpoch = Callable[[str, int], None]
"""Called with (variant, epoch) after every epoch of every variant, for a progress bar."""


@dataclass(frozen=True, slots=True)
class Worlds:
    """Training and evaluation rows of R runs, stacked."""

    x: Tensor  # (R, N, d_obs)
    y: Tensor  # (R, N, d_obs)
    c: Tensor  # (R, N)


def reproduce_simulation(
    folder: Path,
    variants: Sequence[str],
    runs: int,
    settings: SimulationSettings,
    on_epoch: OnEpoch = lambda variant, epoch: None,
) -> tuple[ResultFile, ResultFile]:
    """Compute whatever (variant, run) is not in the folder yet, saving after every variant."""
    make_folder(folder)
    with only_writer(folder):
        table, epochs = open_results(folder, settings)
        for variant in variants:
            missing = missing_runs(table, epochs, variant, runs)
            if missing:
                outcome = run_variant(variant, missing, settings, on_epoch)
                # the figure's rows first: a (variant, run) is finished once its table rows exist
                if outcome.epochs:
                    epochs.add(outcome.epochs)
                table.add(outcome.table)
    return table, epochs


def open_results(folder: Path, settings: SimulationSettings) -> tuple[ResultFile, ResultFile]:
    """The study's two files: ``simulation.json`` and ``epoch_diagnostics.json``."""
    shared = plain(settings)

    def everything(row: Row) -> dict[str, Any]:
        objective = SIMULATION_VARIANTS[row["variant"]].objective
        return {**shared, "objective": plain(objective)}

    table = Layout(("variant", "latent", "run"), SIMULATION_METRICS, everything)
    epochs = Layout(("variant", "run"), ("epochs", "coupling"), everything)
    return (
        ResultFile(folder / "simulation.json", table),
        ResultFile(folder / "epoch_diagnostics.json", epochs),
    )


def missing_runs(table: ResultFile, epochs: ResultFile, variant: str, runs: int) -> list[int]:
    """The runs of a variant that still have to be computed."""
    return [
        run
        for run in range(runs)
        if not table.has(variant=variant, run=run)
        or (variant in EPOCH_FIGURE_VARIANTS and not epochs.has(variant=variant, run=run))
    ]


@dataclass(frozen=True, slots=True)
class VariantOutcome:
    """Rows for both files."""

    table: list[Row]
    epochs: list[Row]


def run_variant(
    variant: str,
    seeds: Sequence[int],
    settings: SimulationSettings,
    on_epoch: OnEpoch = lambda variant, epoch: None,
) -> VariantOutcome:
    """Train and evaluate the given runs of one variant as one stacked model."""
    start = time.perf_counter()
    training, evaluation = draw_worlds(seeds, settings)
    model = SimulationVarJEPA(settings.model, [generator_for(s, "weights") for s in seeds])
    follow = variant in EPOCH_FIGURE_VARIANTS
    series: list[dict[str, Tensor]] = []

    def after_epoch(epoch: int) -> None:
        if follow:
            series.append(_epoch_diagnostics(model, evaluation, seeds, settings))
        if epoch:
            on_epoch(variant, epoch)

    after_epoch(0)
    train(
        model,
        training.x,
        training.y,
        SIMULATION_VARIANTS[variant].objective,
        settings.training,
        settings.sigreg,
        [generator_for(s, "training") for s in seeds],
        after_epoch,
    )
    metrics = evaluate(model, training, evaluation, seeds, settings)
    origin = {
        "seconds": round((time.perf_counter() - start) / len(seeds), 3),
        "environment": describe_environment(),
    }
    table = [
        {
            "variant": variant,
            "latent": latent,
            "run": seed,
            "seed": seed,
            **{name: _number(values[i]) for name, values in metrics[latent].items()},
            **origin,
        }
        for latent in LATENTS
        for i, seed in enumerate(seeds)
    ]
    epochs = [
        {
            "variant": variant,
            "run": seed,
            "seed": seed,
            "epochs": list(range(len(series))),
            **{name: [_number(at[name][i]) for at in series] for name in series[0]},
            **origin,
        }
        for i, seed in enumerate(seeds)
        if follow
    ]
    return VariantOutcome(table, epochs)


def draw_worlds(seeds: Sequence[int], settings: SimulationSettings) -> tuple[Worlds, Worlds]:
    """Fresh worlds, one per seed, with rows to train on and rows to evaluate on."""
    processes = [draw_process(settings.process, generator_for(s, "process")) for s in seeds]

    def rows(count: int, purpose: str) -> Worlds:
        samples = [
            process.sample(count, generator_for(seed, purpose))
            for process, seed in zip(processes, seeds, strict=True)
        ]
        return Worlds(
            x=torch.stack([sample.x for sample in samples]),
            y=torch.stack([sample.y for sample in samples]),
            c=torch.stack([sample.c for sample in samples]),
        )

    return rows(settings.train_rows, "training rows"), rows(
        settings.evaluation_rows, "evaluation rows"
    )


@torch.no_grad()
def evaluate(
    model: SimulationVarJEPA,
    training: Worlds,
    evaluation: Worlds,
    seeds: Sequence[int],
    settings: SimulationSettings,
) -> dict[str, dict[str, Tensor]]:
    """Table 1's five columns for both latents, per run.

    The probe reads posterior *means* (what a user would embed with); the four diagnostics look at
    *sampled* latents, since it is q(s) that is compared with N(0, I).
    """
    seen = _infer(model, training, seeds, "probe noise")
    fresh = _infer(model, evaluation, seeds, "evaluation noise")
    result = {}
    for latent in LATENTS:
        posterior = f"q_{latent}"
        with torch.enable_grad():
            probe = fit_probe(
                getattr(seen, posterior).mean,
                training.c,
                classes=2,
                settings=settings.probe,
                generators=[generator_for(s, f"probe {latent}") for s in seeds],
            )
        result[latent] = {
            "accuracy": probe_accuracy(probe, getattr(fresh, posterior).mean, evaluation.c),
            **_distribution(getattr(fresh, latent), seeds, settings),
        }
    return result


@torch.no_grad()
def _epoch_diagnostics(
    model: SimulationVarJEPA, evaluation: Worlds, seeds: Sequence[int], settings: SimulationSettings
) -> dict[str, Tensor]:
    """The figure's curves at one moment: both latents' distribution and E KL(q(s_y) ‖ p(s_y))."""
    walk = _infer(model, evaluation, seeds, "evaluation noise")
    curves = {
        f"{name}_{latent}": values
        for latent in LATENTS
        for name, values in _distribution(getattr(walk, latent), seeds, settings).items()
    }
    return {**curves, "coupling": walk.q_s_y.kl_to(walk.p_s_y).mean(-1)}


def _distribution(
    s: Tensor, seeds: Sequence[int], settings: SimulationSettings
) -> dict[str, Tensor]:
    directions = torch.stack(
        [
            draw_directions(s.shape[-1], settings.sigreg, generator_for(seed, "directions"), s)
            for seed in seeds
        ]
    )
    return {
        "kl_aggregate": kl_of_matched_gaussian(s),
        "sigreg": sigreg_mse(s, directions, settings.sigreg),
        "cov_deviation": covariance_deviation(s),
        "mean_norm": mean_norm(s),
    }


def _infer(
    model: SimulationVarJEPA, worlds: Worlds, seeds: Sequence[int], purpose: str
) -> Inference:
    rows, width = worlds.x.shape[1], 2 * model.d + model.d_z
    noise = torch.stack(
        [torch.randn(rows, width, generator=generator_for(s, purpose)) for s in seeds]
    )
    return infer(model, worlds.x, worlds.y, split_noise(model, noise))


def _number(value: Tensor) -> float | None:
    """A JSON number with the digits float32 has; None where a run diverged."""
    number = float(value)
    return float(f"{number:.7g}") if math.isfinite(number) else None
