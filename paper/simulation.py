"""The simulation study (Section 4.1): data, settings, runs, findings, Table 1 and its figure.

    python -m paper simulation --out DIR        3.5 minutes on two cores

Ten objectives, A to J, five simulated worlds each; everything but the objective is the same. To
expect: the ELBO alone (A) keeps q(s_x) near N(0, I) and the mixture component readable from it;
without likelihoods (G) the latent knows nothing; without KL (E, I) its distribution runs away, and
SIGReg brings it only part of the way back (J).

A run is one seed: its world (A, h_x, h_y), its rows, its initial weights and its noise. All
variants of a run share them, so differences between variants are paired. The data (Appendix C.2):

z ~ N(0, ς_z² I)    c ~ Bernoulli(1/2)    s_x | c ~ N(c δ, ς_x² I)
s_y | s_x, z ~ N(s_x + A z, ς_y² I)    x = h_x(s_x) + ε_x    y = h_y(s_y) + ε_y
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paper.compare import Block, Figure, Finding, Summary, deviation, in_deviations
from paper.figures import panels, save_svg
from paper.published import SIMULATION_METRICS, simulation_paper_value
from paper.simulation_training import (
    ProbeSettings,
    SimulationObjective,
    SimulationTraining,
    fit_probe,
    probe_accuracy,
    train,
)
from paper.store import Job, ResultStore, Row, plain, run_jobs
from varjepa.environment import describe_environment
from varjepa.files import study_folder
from varjepa.models.simulation import SimulationModelSettings, SimulationVarJEPA
from varjepa.randomness import generator_for
from varjepa.report.tables import Cell, Table
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


# --- settings


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


# --- runs

FILE, EPOCHS_FILE = "simulation.json", "epoch_diagnostics.json"
LATENTS = ("s_x", "s_y")

OnEpoch = Callable[[str, int], None]
"""Called with (variant, epoch) after every epoch of every variant, for a progress bar."""


@dataclass(frozen=True, slots=True)
class Worlds:
    """Training and evaluation rows of R runs, stacked."""

    x: Tensor  # (R, N, d_obs)
    y: Tensor  # (R, N, d_obs)
    c: Tensor  # (R, N)


def run_simulation(
    folder: Path,
    variants: Sequence[str],
    runs: int,
    settings: SimulationSettings,
    on_epoch: OnEpoch = lambda variant, epoch: None,
) -> None:
    """Compute whatever (variant, run) is not in the folder yet, saving after every variant."""
    with study_folder(folder):
        table, epochs = open_simulation(folder, settings)
        for_table, for_epochs = jobs(variants, runs)

        def compute(job: Job, seeds: list[int]) -> list[Row]:
            outcome = run_variant(job.about["variant"], seeds, settings, on_epoch)
            # the figure's rows first: a (variant, run) is finished once its table rows exist
            if outcome.epochs:
                epochs.add(outcome.epochs)
            return outcome.table

        def compute_epochs(job: Job, seeds: list[int]) -> list[Row]:
            return run_variant(job.about["variant"], seeds, settings, on_epoch).epochs

        run_jobs(table, for_table, compute)
        run_jobs(epochs, for_epochs, compute_epochs)  # where that file was lost


def jobs(variants: Sequence[str], runs: int) -> tuple[list[Job], list[Job]]:
    """What the table needs, and what the figure needs: a job per variant."""
    followed = [v for v in variants if v in EPOCH_FIGURE_VARIANTS]
    return (
        [Job({"variant": v}, range(runs), {"latent": LATENTS}, "run") for v in variants],
        [Job({"variant": v}, range(runs), seed_column="run") for v in followed],
    )


def count_waiting(folder: Path, variants: Sequence[str], runs: int, o: SimulationSettings) -> int:
    """How many variants have a run that is not in the folder."""
    wanted = zip(open_simulation(folder, o), jobs(variants, runs), strict=True)
    waiting = [job for store, some in wanted for job in some if job.missing_seeds(store)]
    return len({job.about["variant"] for job in waiting})


def open_simulation(
    folder: Path, settings: SimulationSettings | None = None
) -> tuple[ResultStore, ResultStore]:
    """The study's two files: ``simulation.json`` and ``epoch_diagnostics.json``."""
    shared = plain(settings or SimulationSettings())

    def everything(row: Row) -> dict[str, Any]:
        objective = SIMULATION_VARIANTS[row["variant"]].objective
        return {**shared, "objective": plain(objective)}

    return (
        ResultStore(folder / FILE, ("variant", "latent", "run"), everything),
        ResultStore(folder / EPOCHS_FILE, ("variant", "run"), everything),
    )


@dataclass(frozen=True, slots=True)
class VariantOutcome:
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
    """The figure's curves after one epoch: both latents' distribution and E KL(q(s_y) ‖ p(s_y))."""
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


# --- findings: what Table 1 is supposed to show, and how many of its 100 numbers agree


def summarise(rows: Sequence[Row], variant: str, latent: str, metric: str) -> Summary | None:
    """One cell of our table; None where a run diverged or there is none."""
    values = [row[metric] for row in rows if row["variant"] == variant and row["latent"] == latent]
    if not values or any(value is None for value in values):
        return None
    return Summary(statistics.fmean(values), deviation(values))


def agrees(ours: Summary | None, variant: str, latent: str, metric: str) -> bool:
    """Accuracy within .01, the others within 25 %; or within 3 of the paper's deviations."""
    if ours is None:
        return False
    paper_mean, paper_std = simulation_paper_value(variant, latent, metric)
    slack = 0.01 if metric == "accuracy" else 0.25 * paper_mean
    # 1e-12: .996 − .01 is not quite .986 in binary
    return abs(ours.mean - paper_mean) <= max(slack, 3 * paper_std) + 1e-12


def count_agreeing(rows: Sequence[Row], variants: Sequence[str]) -> tuple[int, int]:
    """(cells that agree with the paper, cells compared)."""
    cells = [
        agrees(summarise(rows, variant, latent, metric), variant, latent, metric)
        for variant in variants
        for latent in LATENTS
        for metric in SIMULATION_METRICS
    ]
    return sum(cells), len(cells)


def simulation_findings(rows: Sequence[Row]) -> list[Finding]:
    """The paper's findings, as far as the variants they need are there, with runs to compare."""
    variants = {row["variant"] for row in rows}
    if not variants:
        return []
    nothing = Summary(math.nan, math.nan)

    def cell(variant: str, latent: str, metric: str) -> tuple[float, float]:
        summary = summarise(rows, variant, latent, metric) or nothing
        return summary.mean, math.nan if summary.std is None else summary.std

    def kl(variant: str, latent: str = "s_x") -> float:
        return cell(variant, latent, "kl_aggregate")[0]

    several = min(len({r["run"] for r in rows if r["variant"] == v}) for v in variants) > 1
    findings: list[Finding] = []

    def add(claim: str, holds: bool, evidence: str) -> None:
        findings.append(Finding(claim, holds, evidence))

    if variants >= {"A"}:
        accuracy = cell("A", "s_x", "accuracy")[0]
        add(
            "A: the ELBO alone keeps s_x readable (accuracy ≥ .99) and near N(0, I) (KL ≤ .15)",
            accuracy >= 0.99 and kl("A") <= 0.15,
            f"accuracy {accuracy:.4f}, KL {kl('A'):.3f}",
        )
    if several and variants >= set("ABCD"):
        base, std = cell("A", "s_x", "kl_aggregate")
        gaps = {v: abs(kl(v) - base) for v in "BCD"}
        add(
            "B, C, D: SIGReg adds nothing on s_x (KL within two standard deviations of A)",
            all(gap <= 2 * std for gap in gaps.values()),
            ", ".join(f"{v} {gap:.3f}" for v, gap in gaps.items()) + f" against {std:.3f}",
        )
    if variants >= set("AEI"):
        ratios = {v: kl(v) / kl("A") for v in "EI"}
        add(
            "E, I: without its KL, s_x leaves N(0, I) (KL at least 30 × A's)",
            all(ratio >= 30 for ratio in ratios.values()),
            ", ".join(f"{v} {ratio:.0f} ×" for v, ratio in ratios.items()),
        )
    if several and variants >= set("GH"):
        (g, g_std), (h, h_std) = (cell(v, "s_x", "accuracy") for v in "GH")
        add(
            "G: without likelihoods the latent collapses (accuracy ≤ .62); H clearly above G",
            g <= 0.62 and h - h_std > g + g_std,
            f"G {g:.3f} ± {g_std:.3f}, H {h:.3f} ± {h_std:.3f}",
        )
    if variants >= set("AIJ"):
        a, j, i = (kl(v) for v in "AJI")
        add(
            "J: SIGReg instead of KL repairs s_x part of the way (KL between A and I)",
            a < j < i,
            f"{a:.3f} < {j:.3f} < {i:.3f}",
        )
    if variants >= set("ACD"):
        shares = {v: kl(v, "s_y") / kl("A", "s_y") for v in "CD"}
        add(
            "C, D: SIGReg on s_y brings its KL at least 30 % below A's",
            all(share <= 0.7 for share in shares.values()),
            ", ".join(f"{v} {1 - share:.0%} below" for v, share in shares.items()),
        )
    if variants >= set("ABCDEFGHIJ"):
        kls = {v: kl(v, "s_y") for v in "ABCDEFGHIJ"}
        worst = max(kls, key=kls.__getitem__)
        add(
            "I: without any KL, s_y is the worst of all",
            worst == "I",
            f"worst is {worst} with {kls[worst]:.1f}",
        )
    return findings


# --- Table 1 and its figure

_TITLES = {
    "accuracy": "accuracy",
    "kl_aggregate": "KL_agg",
    "sigreg": "SIGReg-MSE",
    "cov_deviation": "‖Cov − I‖",
    "mean_norm": "‖E[s]‖",
}
_FOLLOWED = ("kl_aggregate", "sigreg", "cov_deviation")


def simulation_blocks(rows: Sequence[Row], epoch_rows: Sequence[Row]) -> list[Block]:
    """Table 1 for both latents, the findings and the figure."""
    variants = [v for v in SIMULATION_VARIANTS if any(row["variant"] == v for row in rows)]
    agreeing, compared = count_agreeing(rows, variants)
    counts = sorted({len({r["run"] for r in rows if r["variant"] == v}) for v in variants})
    runs = "–".join(str(n) for n in dict.fromkeys((counts[0], counts[-1]))) if counts else "0"
    titles = {"s_x": "Context latent s_x", "s_y": "Target latent s_y"}
    tables = [
        Table(
            titles[latent],
            ["", "objective", *(_TITLES[metric] for metric in SIMULATION_METRICS)],
            [
                [v, SIMULATION_VARIANTS[v].title]
                + [simulation_cell(rows, v, latent, metric) for metric in SIMULATION_METRICS]
                for v in variants
            ],
            labels=2,
        )
        for latent in LATENTS
    ]
    return [
        Block(
            "simulation",
            "simulation",
            "Simulation study (Section 4.1, Table 1)",
            f"Mean ± sample standard deviation over {runs} runs; below each, *the paper's*. ✓: "
            "agrees with the paper (accuracy within .01, the others within 25 %, or within 3 of "
            "the paper's standard deviations). "
            f"**{agreeing} of {compared} cells agree with the paper.**",
            {"": simulation_findings(rows)},
            tables if rows else (),
            [epoch_figure(epoch_rows)] if epoch_rows else (),
            summary=f"{agreeing} of {compared} cells agree with the paper",
            shows_gaps=False,
            is_run=bool(rows),
        )
    ]


def simulation_cell(rows: Sequence[Row], variant: str, latent: str, metric: str) -> Cell:
    ours = summarise(rows, variant, latent, metric)
    mean, std = simulation_paper_value(variant, latent, metric)
    reference = _spread(Summary(mean, std))
    if ours is None:
        return Cell("diverged", reference, "", "differs")
    is_same = agrees(ours, variant, latent, metric)
    spread = math.hypot(ours.std or 0.0, std)
    gap = in_deviations((ours.mean - mean) / spread) if spread else ""
    return Cell(_spread(ours) + " ✓" * is_same, reference, gap, "near" if is_same else "differs")


def _spread(value: Summary) -> str:
    """A diagnostic of any magnitude; no deviation where there is a single run."""

    def one(number: float) -> str:
        far = 0 < abs(number) < 0.001 or abs(number) >= 1e5
        return f"{number:.1e}" if far else f"{number:.3f}"

    return one(value.mean) if value.std is None else f"{one(value.mean)} ± {one(value.std)}"


def epoch_figure(rows: Sequence[Row]) -> Figure:
    return Figure(
        "epoch_diagnostics.svg",
        "Latent distributions over training",
        lambda path: draw_epoch_diagnostics(rows, path),
        "How the latent distributions evolve over training, a line per objective",
        "Upper row: context latent s_x; lower row: target latent s_y, and the coupling of its "
        "posterior to the conditional prior. Lines are means over runs, bands reach from the "
        "lowest to the highest.",
        has_formulas=True,
    )


def draw_epoch_diagnostics(epoch_rows: Sequence[Row], path: Path) -> None:
    """KL_agg, SIGReg-MSE, isotropy and the coupling to the conditional prior over the epochs.

    Upper row s_x, lower row s_y. The upper right panel holds the legend.
    """
    variants = sorted({row["variant"] for row in epoch_rows})
    colours = {variant: f"C{i}" for i, variant in enumerate(variants)}
    figure, axes = panels((12, 5.2), 2, 4, sharex=True)
    curves = [
        (axes[i][j], f"{metric}_{latent}", f"{_TITLES[metric]}({latent})")
        for i, latent in enumerate(LATENTS)
        for j, metric in enumerate(_FOLLOWED)
    ]
    curves.append((axes[1][3], "coupling", "E KL(q(s_y|s_x,z,y) ‖ p(s_y|s_x,z))"))
    for axis, curve, title in curves:
        for variant in variants:
            lowest, mean, highest = _band(epoch_rows, variant, curve)
            epochs = range(len(mean))
            axis.plot(epochs, mean, color=colours[variant], label=variant, linewidth=1.5)
            axis.fill_between(
                epochs, lowest, highest, color=colours[variant], alpha=0.15, linewidth=0
            )
        axis.set_title(title, fontsize=10)
        axis.set_yscale("log")
        axis.grid(alpha=0.2)
    for axis in axes[1]:
        axis.set_xlabel("epoch")
    handles, _ = axes[0][0].get_legend_handles_labels()
    axes[0][3].axis("off")
    axes[0][3].legend(
        handles,
        [f"{v}: {SIMULATION_VARIANTS[v].title}" for v in variants],
        loc="center",
        frameon=False,
    )
    save_svg(figure, path)


def _band(
    epoch_rows: Sequence[Row], variant: str, curve: str
) -> tuple[list[float], list[float], list[float]]:
    """Lowest run, mean and highest run at each epoch; a diverged run leaves a gap."""
    series = [row[curve] for row in epoch_rows if row["variant"] == variant]
    steps = [[math.nan if v is None else v for v in at] for at in zip(*series, strict=False)]
    return (
        [min(at) for at in steps],
        [statistics.fmean(at) for at in steps],
        [max(at) for at in steps],
    )
