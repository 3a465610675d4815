"""The paper's experiments as data: which settings each of its tables compares."""

from __future__ import annotations

from dataclasses import dataclass, field

from varjepa.datasets.simulation_study import ProcessSettings
from varjepa.models.simulation import SimulationModelSettings
from varjepa.training.probe import ProbeSettings
from varjepa.training.simulation import Objective, SimulationTraining
from varjepa.variational.elbo import ElboWeights
from varjepa.variational.sigreg import SigregSettings


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Everything the ten variants of the simulation study share (Appendix C.2, D.1, D.6.5)."""

    train_rows: int = 5000
    """pairs to train on; not in the paper, see docs/simulation-search.md"""
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
    objective: Objective
    """weights in front of the terms"""


_NO_LIKELIHOOD = ElboWeights(rec=0, gen=0)
_NO_KL = ElboWeights(kl_sx=0, kl_z=0, kl_sy=0)

SIMULATION_VARIANTS: dict[str, SimulationVariant] = {
    "A": SimulationVariant("ELBO (Var-JEPA)", Objective()),
    "B": SimulationVariant("ELBO + SIGReg on s_x", Objective(sigreg_s_x=10)),
    "C": SimulationVariant("ELBO + SIGReg on s_y", Objective(sigreg_s_y=10)),
    "D": SimulationVariant("ELBO + SIGReg on both", Objective(sigreg_s_x=10, sigreg_s_y=10)),
    "E": SimulationVariant("ELBO without KL of s_x", Objective(ElboWeights(kl_sx=0))),
    "F": SimulationVariant("ELBO without KL of s_y", Objective(ElboWeights(kl_sy=0))),
    "G": SimulationVariant("ELBO without rec and gen", Objective(_NO_LIKELIHOOD)),
    "H": SimulationVariant("G + SIGReg on both", Objective(_NO_LIKELIHOOD, 10, 10)),
    "I": SimulationVariant("ELBO without any KL", Objective(_NO_KL)),
    "J": SimulationVariant("I + SIGReg on both", Objective(_NO_KL, 10, 10)),
}

EPOCH_FIGURE_VARIANTS = ("A", "C", "E", "I", "J")
"""The variants whose diagnostics Figure "epoch diagnostics" follows over training."""

QUICK_SIMULATION_VARIANTS = ("A", "E", "G", "H", "I", "J")
"""Enough for the main findings: healthy, unregularised, collapsed, and repaired by SIGReg."""
