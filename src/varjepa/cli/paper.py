"""``varjepa reproduce downstream | uncertainty | sensitivity``: the paper's studies on datasets."""

from __future__ import annotations

from typing import Annotated

import typer

from varjepa.cli.shell import ListCommand, positive
from varjepa.cli.study_options import (
    QUICK_DATASETS,
    QUICK_PREDICTORS,
    Device,
    Embeddings,
    Epochs,
    Merge,
    Names,
    Out,
    Quick,
    Runs,
    Settings,
    gather,
    known_predictors,
    known_settings,
    make_scale,
    run_count,
    say,
    show_findings,
)
from varjepa.datasets.catalogue import DATASETS
from varjepa.estimators.parameters import pick_device
from varjepa.experiments.downstream import (
    DownstreamPlan,
    open_downstream,
    open_trainings,
    reproduce_downstream,
)
from varjepa.experiments.downstream_findings import downstream_findings
from varjepa.experiments.names import known, known_datasets
from varjepa.experiments.representations import REPRESENTATIONS
from varjepa.experiments.sensitivity import (
    ALL_COLUMNS,
    SensitivityPlan,
    open_sensitivity,
    reproduce_sensitivity,
)
from varjepa.experiments.tabular_paper import PAPER_PREDICTORS
from varjepa.experiments.tabular_settings import SENSITIVITY, SENSITIVITY_PREDICTORS
from varjepa.experiments.uncertainty import (
    UncertaintyPlan,
    open_uncertainty,
    reproduce_uncertainty,
)
from varjepa.experiments.uncertainty_findings import uncertainty_findings
from varjepa.report.downstream import write_downstream_report
from varjepa.report.drawing import check_can_draw
from varjepa.report.sensitivity import write_sensitivity_report
from varjepa.report.uncertainty import write_uncertainty_report


def downstream(
    out: Out,
    datasets: Names = None,
    representations: Names = None,
    predictors: Names = None,
    settings: Settings = None,
    runs: Runs = None,
    embeddings: Embeddings = 1,
    epochs: Epochs = None,
    device: Device = "auto",
    quick: Quick = False,
    merge: Merge = None,
) -> None:
    """Six predictors on raw features and embeddings of seven datasets."""
    plan = DownstreamPlan(
        datasets=known_datasets(datasets or (QUICK_DATASETS if quick else list(DATASETS))),
        representations=known(
            "representation", representations or REPRESENTATIONS, REPRESENTATIONS
        ),
        predictors=known_predictors(predictors, QUICK_PREDICTORS if quick else PAPER_PREDICTORS),
        settings=known_settings(settings),
        runs=run_count(runs, quick),
        embeddings=positive("--embeddings", embeddings),
        scale=make_scale(quick, epochs),
    )
    pick_device(device)
    gather(
        out,
        merge,
        lambda f: (open_downstream(f, plan.scale), open_trainings(f, plan.scale)),
        lambda: reproduce_downstream(out, plan, device, say),
    )
    found = open_downstream(out, plan.scale)
    trainings = open_trainings(out, plan.scale).rows
    write_downstream_report(out, found.rows, trainings)
    for setting in plan.settings:
        show_findings(downstream_findings(found.rows, setting, trainings), setting)
    say(f"tables in {out}/downstream.md")


def uncertainty(
    out: Out,
    datasets: Annotated[list[str] | None, typer.Option(help="Default: sim mnist.")] = None,
    settings: Settings = None,
    runs: Runs = None,
    embeddings: Embeddings = 1,
    epochs: Epochs = None,
    device: Device = "auto",
    quick: Quick = False,
    merge: Merge = None,
) -> None:
    """Latent uncertainty beside post-hoc baselines, on one classifier and as in the paper."""
    plan = UncertaintyPlan(
        datasets=known_datasets(datasets or (QUICK_DATASETS if quick else ["sim", "mnist"])),
        settings=known_settings(settings),
        runs=run_count(runs, quick),
        embeddings=positive("--embeddings", embeddings),
        scale=make_scale(quick, epochs),
    )
    pick_device(device)
    check_can_draw()
    gather(
        out,
        merge,
        lambda f: open_uncertainty(f, plan.scale),
        lambda: reproduce_uncertainty(out, plan, device, say),
    )
    table, per_row = open_uncertainty(out, plan.scale)
    write_uncertainty_report(out, table.rows, per_row.rows)
    for setting in plan.settings:
        show_findings(uncertainty_findings(table.rows, setting), setting)
    say(f"tables in {out}/uncertainty.md")


def sensitivity(
    out: Out,
    columns: Annotated[
        list[str] | None, typer.Option(help="Columns of the tables, e.g. 'Low KL'. Default: all.")
    ] = None,
    predictors: Names = None,
    runs: Runs = None,
    epochs: Epochs = None,
    device: Device = "auto",
    quick: Quick = False,
    merge: Merge = None,
) -> None:
    """Adult with seven settings of the weights and seven of architecture and optimisation."""
    every = tuple(name for table in SENSITIVITY.values() for name in table)
    default = ("Base", "Narrow") if quick else every  # a quick run is shallow anyway
    asked = known("column", columns or default, every)
    plan = SensitivityPlan(
        columns={table: [c for c in names if c in asked] for table, names in ALL_COLUMNS.items()},
        predictors=known_predictors(predictors, SENSITIVITY_PREDICTORS),
        runs=run_count(runs, quick),
        scale=make_scale(quick, epochs),
    )
    pick_device(device)
    gather(
        out,
        merge,
        lambda f: [open_sensitivity(f, plan.scale)],
        lambda: reproduce_sensitivity(out, plan, device, say),
    )
    write_sensitivity_report(out, open_sensitivity(out, plan.scale).rows)
    say(f"tables in {out}/sensitivity.md")


def add_commands(app: typer.Typer) -> None:
    """Make the functions of this file commands of ``varjepa reproduce``."""
    for command in (downstream, uncertainty, sensitivity):
        app.command(command.__name__, cls=ListCommand)(command)
