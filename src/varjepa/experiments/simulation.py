"""The simulation study: Table 1 and the epoch-diagnostics figure (Section 4.1).

    varjepa reproduce simulation --out DIR

Ten objectives, A–J, five simulated worlds each; everything but the objective is the same. About 3.5
minutes on two cores. The result to expect: the ELBO alone (A) keeps q(s_x) near N(0, I) and the
mixture component readable from it; without likelihoods (G) the latent knows nothing; without KL (E,
I) its distribution runs away, and SIGReg brings it only part of the way back (J).

A run is one seed: its world (A, h_x, h_y), its rows, its initial weights and its noise. All
variants of a run share them, so differences between variants are paired.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from varjepa.datasets.simulation_study import draw_process
from varjepa.environment import describe_environment
from varjepa.experiments.paper import SIMULATION_METRICS
from varjepa.experiments.results import Layout, ResultFile, Row, plain
from varjepa.experiments.settings import (
    EPOCH_FIGURE_VARIANTS,
    SIMULATION_VARIANTS,
    SimulationSettings,
)
from varjepa.files import make_folder, only_writer
from varjepa.models.simulation import SimulationVarJEPA
from varjepa.randomness import generator_for
from varjepa.training.probe import fit_probe, probe_accuracy
from varjepa.training.simulation import train
from varjepa.variational.diagnostics import (
    covariance_deviation,
    kl_of_matched_gaussian,
    mean_norm,
)
from varjepa.variational.model import Inference, infer, split_noise
from varjepa.variational.sigreg import draw_directions, sigreg_mse

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
