"""``varjepa reproduce downstream | uncertainty | sensitivity``: the paper's studies on datasets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from varjepa.cli.shell import ListCommand, console, positive
from varjepa.datasets.catalogue import DATASETS
from varjepa.downstream import PREDICTORS
from varjepa.errors import Interrupted
from varjepa.estimators.parameters import pick_device
from varjepa.experiments.downstream import (
    DownstreamPlan,
    open_downstream,
    open_trainings,
    reproduce_downstream,
)
from varjepa.experiments.downstream_findings import downstream_findings
from varjepa.experiments.findings import Finding
from varjepa.experiments.merging import merge_folders
from varjepa.experiments.names import known, known_datasets
from varjepa.experiments.pretraining import FULL, QUICK, Scale
from varjepa.experiments.representations import REPRESENTATIONS
from varjepa.experiments.sensitivity import (
    ALL_COLUMNS,
    SensitivityPlan,
    open_sensitivity,
    reproduce_sensitivity,
)
from varjepa.experiments.tabular_paper import PAPER_PREDICTORS
from varjepa.experiments.tabular_settings import (
    SENSITIVITY,
    SENSITIVITY_PREDICTORS,
    SETTINGS,
    Setting,
)
from varjepa.experiments.uncertainty import (
    UncertaintyPlan,
    open_uncertainty,
    reproduce_uncertainty,
)
from varjepa.experiments.uncertainty_findings import uncertainty_findings
from varjepa.report.downstream import write_downstream_report
from varjepa.report.sensitivity import write_sensitivity_report
from varjepa.report.simulation import check_can_draw
from varjepa.report.uncertainty import write_uncertainty_report

QUICK_DATASETS = ["sim", "adult"]
QUICK_PREDICTORS = ["mlp", "resnet", "xgboost"]
QUICK_RUNS = 2

Out = Annotated[Path, typer.Option(help="Folder for the results; finished cells are kept.")]
Runs = Annotated[int | None, typer.Option(help="Seeds of a predictor; default 5, with --quick 2.")]
Epochs = Annotated[int | None, typer.Option(help="Of a representation; default: the setting's.")]
Embeddings = Annotated[int, typer.Option(help="Trainings of a representation, by seed.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Names = Annotated[
    list[str] | None, typer.Option(help="Which ones. Default: those of the paper's table.")
]
Settings = Annotated[list[str] | None, typer.Option(help="paper, ours. Default: paper.")]
Quick = Annotated[bool, typer.Option(help="A smoke form: few rows, epochs, seeds.")]
Merge = Annotated[
    list[Path] | None,
    typer.Option(help="Take finished rows of these folders and report; compute nothing."),
]


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
    if merge:
        merged = merge_folders(
            out,
            merge,
            lambda f: (open_downstream(f, plan.scale), open_trainings(f, plan.scale)),
        )
        console.print(f"{merged} rows merged into {out}", highlight=False, soft_wrap=True)
    else:
        with keeping(out):
            reproduce_downstream(out, plan, device, say)
    found = open_downstream(out, plan.scale)
    trainings = open_trainings(out, plan.scale).rows
    write_downstream_report(out, found.rows, trainings)
    for setting in plan.settings:
        show_findings(downstream_findings(found.rows, setting, trainings), setting)
    console.print(f"tables in {out}/downstream.md", highlight=False, soft_wrap=True)


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
    if merge:
        merged = merge_folders(out, merge, lambda f: open_uncertainty(f, plan.scale))
        console.print(f"{merged} rows merged into {out}", highlight=False, soft_wrap=True)
    else:
        with keeping(out):
            reproduce_uncertainty(out, plan, device, say)
    table, per_row = open_uncertainty(out, plan.scale)
    write_uncertainty_report(out, table.rows, per_row.rows)
    for setting in plan.settings:
        show_findings(uncertainty_findings(table.rows, setting), setting)
    console.print(f"tables in {out}/uncertainty.md", highlight=False, soft_wrap=True)


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
    if merge:
        merged = merge_folders(out, merge, lambda f: [open_sensitivity(f, plan.scale)])
        console.print(f"{merged} rows merged into {out}", highlight=False, soft_wrap=True)
    else:
        with keeping(out):
            reproduce_sensitivity(out, plan, device, say)
    write_sensitivity_report(out, open_sensitivity(out, plan.scale).rows)
    console.print(f"tables in {out}/sensitivity.md", highlight=False, soft_wrap=True)


def add_commands(app: typer.Typer) -> None:
    """Make the functions of this file commands of ``varjepa reproduce``."""
    for command in (downstream, uncertainty, sensitivity):
        app.command(command.__name__, cls=ListCommand)(command)


@contextmanager
def keeping(out: Path) -> Iterator[None]:
    """Ctrl-C ends with a sentence that says where to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(
            f"interrupted; finished cells are in {out}, and the same command goes on from there"
        ) from stop


def known_predictors(names: list[str] | None, default: list[str] | tuple[str, ...]) -> list[str]:
    return known("predictor", names or default, tuple(PREDICTORS))


def known_settings(names: list[str] | None) -> list[Setting]:
    asked = known("setting", names or ["paper"], SETTINGS)
    return [setting for setting in SETTINGS if setting in asked]


def run_count(runs: int | None, quick: bool) -> int:
    return positive("--runs", runs if runs is not None else QUICK_RUNS if quick else 5)


def make_scale(quick: bool, epochs: int | None) -> Scale:
    scale = QUICK if quick else FULL
    return scale if epochs is None else replace(scale, epochs=positive("--epochs", epochs))


def show_findings(findings: Sequence[Finding], setting: str = "") -> None:
    """One line each: yes, no, or open where cells are missing."""
    words = {True: "[green]yes [/]", False: "[red]no  [/]", None: "[yellow]open[/]"}
    if setting and findings:
        say(f"setting {setting}:")
    for finding in findings:
        line = f"{finding.claim}: {finding.evidence}".replace("[", r"\[")
        console.print(f"{words[finding.holds]} {line}", markup=True, soft_wrap=True)


def say(line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True, markup=False)
