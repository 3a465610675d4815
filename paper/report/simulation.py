"""The simulation study's tables and figure.

The simulation study on paper: Table 1 with the paper's numbers beside ours, and its figure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from paper.published import SIMULATION_METRICS, simulation_paper_value
from paper.report.cells import (
    Cell,
    CellTable,
    Figure,
    Group,
    Line,
    Section,
    diagnostic_cell,
    finding_lines,
    spread_text,
)
from paper.results import Row
from paper.simulation import LATENTS, SIMULATION_VARIANTS
from paper.simulation_findings import Summary, agrees, count_agreeing, findings, summarise
from varjepa.files import write_text
from varjepa.report.charts import check_can_draw, inline, save_svg

_TITLES = {
    "accuracy": "accuracy",
    "kl_aggregate": "KL_agg",
    "sigreg": "SIGReg-MSE",
    "cov_deviation": "‖Cov − I‖",
    "mean_norm": "‖E[s]‖",
}

_LATENT_TITLES = {"s_x": "Context latent s_x", "s_y": "Target latent s_y"}


def write_simulation_report(folder: Path, rows: Sequence[Row], epoch_rows: Sequence[Row]) -> None:
    """Write ``simulation.md`` and, where some variant was followed, ``epoch_diagnostics.svg``."""
    write_text(folder / "simulation.md", simulation_table(rows))
    if epoch_rows:
        draw_epoch_diagnostics(epoch_rows, folder / "epoch_diagnostics.svg")


def simulation_table(rows: Sequence[Row]) -> str:
    """Markdown: one table per latent, each cell ours / paper; below, the count and the findings."""
    variants = [v for v in SIMULATION_VARIANTS if any(row["variant"] == v for row in rows)]
    counts = sorted({len({r["run"] for r in rows if r["variant"] == v}) for v in variants})
    runs = "–".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    lines = [
        "# Simulation study (Table 1)",
        "",
        f"Mean ± sample standard deviation over {runs} runs; below each, "
        "the paper's value. ✓: agrees with the paper (accuracy within .01, the others within "
        "25 %, or within 3 of the paper's standard deviations).",
    ]
    for latent in LATENTS:
        lines += ["", f"## {_LATENT_TITLES[latent]}", "", _header(), _rule()]
        lines += [_line(rows, variant, latent) for variant in variants]
    agreeing, compared = count_agreeing(rows, variants)
    lines += [
        "",
        f"**{agreeing} of {compared} cells agree with the paper.**",
        "",
        "## Findings",
        "",
    ]
    lines += finding_lines(findings(rows))
    return "\n".join(lines) + "\n"


def _header() -> str:
    return "| | objective | " + " | ".join(_TITLES[m] for m in SIMULATION_METRICS) + " |"


def _rule() -> str:
    return "| --- " * (2 + len(SIMULATION_METRICS)) + "|"


def _line(rows: Sequence[Row], variant: str, latent: str) -> str:
    cells = []
    for metric in SIMULATION_METRICS:
        ours = summarise(rows, variant, latent, metric)
        paper = Summary(*simulation_paper_value(variant, latent, metric))
        mark = " ✓" if agrees(ours, variant, latent, metric) else ""
        cells.append(f"{_plus_minus(ours)}{mark}<br>{_plus_minus(paper)}")
    return f"| {variant} | {SIMULATION_VARIANTS[variant].title} | " + " | ".join(cells) + " |"


def _plus_minus(value: Summary | None) -> str:
    if value is None:
        return "diverged"
    return f"{_short(value.mean)} ± {_short(value.std)}"


def _short(value: float) -> str:
    return f"{value:.1e}" if 0 < abs(value) < 0.001 else f"{value:.3f}"


def draw_epoch_diagnostics(epoch_rows: Sequence[Row], path: Path) -> None:
    """Figure: how KL_agg, SIGReg-MSE, isotropy and the conditional-prior coupling evolve.

    Upper row s_x, lower row s_y; lines are means over runs, bands reach from the lowest run to the
    highest. The upper right panel holds the legend.
    """
    check_can_draw()
    from matplotlib.figure import Figure

    variants = sorted({row["variant"] for row in epoch_rows})
    colours = {variant: f"C{i}" for i, variant in enumerate(variants)}
    figure = Figure(figsize=(12, 5.2), layout="constrained")
    axes = figure.subplots(2, 4, sharex=True)
    panels = [
        (axes[i][j], f"{metric}_{latent}", f"{_TITLES[metric]}({latent})")
        for i, latent in enumerate(LATENTS)
        for j, metric in enumerate(("kl_aggregate", "sigreg", "cov_deviation"))
    ]
    panels.append((axes[1][3], "coupling", "E KL(q(s_y|s_x,z,y) ‖ p(s_y|s_x,z))"))
    for axis, curve, title in panels:
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
    steps = [[float("nan") if v is None else v for v in at] for at in zip(*series, strict=True)]
    return (
        [min(at) for at in steps],
        [statistics.fmean(at) for at in steps],
        [max(at) for at in steps],
    )


# --- The simulation study on the study page: Table 1 beside the paper's, and its figure.

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
