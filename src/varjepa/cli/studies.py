"""``varjepa reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from varjepa.cli.shell import ListCommand, console, positive, progress_bar
from varjepa.cli.study_options import keeping, show_findings
from varjepa.datasets.catalogue import dataset_info
from varjepa.errors import InputError
from varjepa.experiments.defaults import DefaultsSettings, reproduce_defaults
from varjepa.experiments.everything import DEFAULTS_DATASETS
from varjepa.experiments.settings import (
    QUICK_SIMULATION_VARIANTS,
    SIMULATION_VARIANTS,
    SimulationSettings,
)
from varjepa.experiments.simulation import missing_runs, open_results, reproduce_simulation
from varjepa.experiments.simulation_findings import count_agreeing, findings
from varjepa.files import make_folder, write_text
from varjepa.report.defaults import defaults_table
from varjepa.report.drawing import check_can_draw
from varjepa.report.simulation import write_simulation_report

QUICK_DEFAULTS = DefaultsSettings(epochs=2, predictor_seeds=1, table_rows=1500)
"""shows that everything runs, not what comes out"""

reproduce = typer.Typer(help="Run an experiment of the paper.", no_args_is_help=True)


@reproduce.command("simulation", cls=ListCommand)
def reproduce_simulation_command(
    out: Annotated[Path, typer.Option(help="Folder for the results; finished runs are kept.")],
    variants: Annotated[
        list[str] | None, typer.Option(help="Which objectives, A to J. Default: all.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Simulated worlds per variant; default 5.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Training epochs; default 40.")] = None,
    quick: Annotated[
        bool, typer.Option(help="2 runs of A, E, G, H, I and J: about a minute.")
    ] = False,
) -> None:
    """Table 1 and the epoch-diagnostics figure: ten objectives on simulated pairs."""
    settings = SimulationSettings()
    if epochs is not None:
        settings = replace(
            settings, training=replace(settings.training, epochs=positive("--epochs", epochs))
        )
    chosen = known_variants("--variants", variants or (QUICK_SIMULATION_VARIANTS if quick else ()))
    count = positive("--runs", runs if runs is not None else 2 if quick else 5)

    check_can_draw()
    make_folder(out)
    table, epoch_file = open_results(out, settings)
    waiting = sum(bool(missing_runs(table, epoch_file, v, count)) for v in chosen)
    with keeping(out), progress_bar(waiting * settings.training.epochs) as advance:
        table, epoch_file = reproduce_simulation(out, chosen, count, settings, advance)
    write_simulation_report(out, table.rows, epoch_file.rows)

    show_findings(findings(table.rows))
    agreeing, compared = count_agreeing(table.rows, sorted({r["variant"] for r in table.rows}))
    console.print(
        f"{agreeing} of {compared} cells agree with the paper; see {out}/simulation.md",
        soft_wrap=True,
    )


@reproduce.command("defaults", cls=ListCommand)
def reproduce_defaults_command(
    out: Annotated[Path, typer.Option(help="Folder for the results; finished rows are kept.")],
    datasets: Annotated[
        list[str] | None, typer.Option(help="Which datasets. Default: adult sim.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Splits and trainings per dataset; default 3.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Default: the estimator's.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    quick: Annotated[
        bool, typer.Option(help="A smoke form: few rows, 2 epochs, one seed.")
    ] = False,
) -> None:
    """What a user who passes nothing gets, with the checkpoint chosen in both ways."""
    settings = defaults_settings(epochs, quick)
    count = positive("--seeds", seeds if seeds is not None else 1 if quick else 3)
    default = ["sim"] if quick else DEFAULTS_DATASETS
    names = [dataset_info(name).name for name in datasets or default]

    def say(row: dict[str, Any]) -> None:
        console.print(
            f"{row['dataset']}, {row['selected_by']}, seed {row['seed']}: {row['fit_seconds']} s",
            highlight=False,
        )

    with keeping(out):
        found = reproduce_defaults(out, names, count, settings, device, say)
    table = defaults_table(found.rows)
    write_text(out / "defaults.md", table)
    console.print(table, highlight=False, soft_wrap=True)


def defaults_settings(epochs: int | None, quick: bool) -> DefaultsSettings:
    settings = QUICK_DEFAULTS if quick else DefaultsSettings()
    if epochs is None:
        return settings
    return replace(settings, epochs=positive("--epochs", epochs))


def known_variants(option: str, names: Sequence[str]) -> list[str]:
    """The variants asked for, all of them by default, in the table's order."""
    for name in names:
        if name not in SIMULATION_VARIANTS:
            raise InputError(f"{option} {name!r} is not one of {', '.join(SIMULATION_VARIANTS)}")
    return [v for v in SIMULATION_VARIANTS if v in names or not names]
