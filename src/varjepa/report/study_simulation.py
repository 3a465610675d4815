"""The simulation study on the study page: Table 1 beside the paper's, and its figure."""

from __future__ import annotations

from collections.abc import Sequence

from varjepa.experiments.paper import SIMULATION_METRICS, simulation_paper_value
from varjepa.experiments.results import Row
from varjepa.experiments.settings import SIMULATION_VARIANTS
from varjepa.experiments.simulation import LATENTS
from varjepa.experiments.simulation_findings import agrees, count_agreeing, findings, summarise
from varjepa.report.simulation import _LATENT_TITLES, _TITLES, draw_epoch_diagnostics
from varjepa.report.study_cells import (
    Cell,
    CellTable,
    Figure,
    Group,
    Line,
    Section,
    diagnostic_cell,
    spread_text,
)
from varjepa.report.svg import inline

TITLE = "Simulation study (Section 4.1, Table 1)"


def simulation_section(
    rows: Sequence[Row], epoch_rows: Sequence[Row], remarks: Sequence[str]
) -> Section:
    """Both latents of every variant, and how they evolved where they were followed."""
    known = [row for row in rows if row["variant"] in SIMULATION_VARIANTS]
    there = [v for v in SIMULATION_VARIANTS if any(row["variant"] == v for row in known)]
    agreeing, compared = count_agreeing(known, there)
    followed = [row for row in epoch_rows if row["variant"] in SIMULATION_VARIANTS]
    return Section(
        "simulation",
        TITLE,
        f"Ten objectives on simulated pairs. {agreeing} of the {compared} cells that are there "
        "agree with the paper (✓): accuracy within .01, the others within 25 %, or within 3 of the "
        "paper's standard deviations.",
        remarks,
        findings(known),
        [_figure(followed)] if followed else [],
        [_table(rows)] if rows else [],
    )


def _table(rows: Sequence[Row]) -> CellTable:
    variants = dict.fromkeys([*SIMULATION_VARIANTS, *(row["variant"] for row in rows)])
    groups = [
        Group(
            _LATENT_TITLES[latent],
            [
                Line(_name(v), [_cell(rows, v, latent, metric) for metric in SIMULATION_METRICS])
                for v in variants
            ],
        )
        for latent in LATENTS
    ]
    columns = [_TITLES[metric] for metric in SIMULATION_METRICS]
    return CellTable("Table 1", "objective", columns, groups)


def _cell(rows: Sequence[Row], variant: str, latent: str, metric: str) -> Cell:
    ours = summarise(rows, variant, latent, metric)
    ran = any(row["variant"] == variant and row["latent"] == latent for row in rows)
    if variant not in SIMULATION_VARIANTS:
        return Cell(spread_text(ours.mean, ours.std) if ours else "diverged" if ran else "")
    paper = simulation_paper_value(variant, latent, metric)
    if ours is not None:
        return diagnostic_cell(ours, paper, agrees(ours, variant, latent, metric))
    quoted = spread_text(*paper)
    return Cell("diverged", quoted, "", "differs") if ran else Cell("", quoted, "", "missing")


def _name(variant: str) -> str:
    known = SIMULATION_VARIANTS.get(variant)
    return f"{variant}: {known.title}" if known else variant


def _figure(rows: Sequence[Row]) -> Figure:
    svg = inline(
        lambda path: draw_epoch_diagnostics(rows, path),
        key="epochs",
        label="How the latent distributions evolve over training, a line per objective",
        has_formulas=True,
    )
    return Figure(
        "Latent distributions over training",
        svg,
        "Upper row: context latent s_x; lower row: target latent s_y, and the coupling of its "
        "posterior to the conditional prior. Lines are means over runs, bands reach from the "
        "lowest to the highest.",
    )
