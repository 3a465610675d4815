"""python -m paper: the commands.

Options of ``python -m paper``'s studies, what they mean, and how a study is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from paper.adapters import DATASETS as ADAPTER_DATASETS
from paper.adapters import AdapterPlan, best_adapters, compare_adapters
from paper.datasets.catalogue import DATASETS, dataset_info
from paper.datasets.loading import FOLDER_VARIABLE, locate_dataset
from paper.defaults import DefaultsSettings, reproduce_defaults
from paper.downstream import DownstreamPlan, open_downstream, open_trainings, reproduce_downstream
from paper.findings import downstream_findings, uncertainty_findings
from paper.labels import LABEL_PREDICTORS, LabelsPlan, open_labels, reproduce_labels
from paper.plan import DEFAULTS_DATASETS
from paper.predictors import PREDICTORS
from paper.published import PAPER_PREDICTORS
from paper.report.documents import write_document
from paper.report.downstream import write_downstream_report, write_sensitivity_report
from paper.report.labels import write_labels_report
from paper.report.page import check_can_report, write_study_page
from paper.report.simulation import write_simulation_report
from paper.report.tries import defaults_table
from paper.report.uncertainty import write_uncertainty_report
from paper.representations import REPRESENTATIONS
from paper.results import Finding, Open, known, known_datasets, merge_folders
from paper.sensitivity import ALL_COLUMNS, SensitivityPlan, open_sensitivity, reproduce_sensitivity
from paper.settings import (
    FULL,
    QUICK,
    SENSITIVITY,
    SENSITIVITY_PREDICTORS,
    SETTINGS,
    Scale,
    Setting,
)
from paper.simulation import (
    QUICK_SIMULATION_VARIANTS,
    SIMULATION_VARIANTS,
    SimulationSettings,
    missing_runs,
    open_results,
    reproduce_simulation,
)
from paper.simulation_findings import count_agreeing, findings
from paper.tries import TriesPlan, best_tries, judge_tries, open_tries
from paper.uncertainty import UncertaintyPlan, open_uncertainty, reproduce_uncertainty
from varjepa.cli.shell import ListCommand, console, positive, progress_bar
from varjepa.environment import pick_device
from varjepa.errors import InputError, Interrupted
from varjepa.evaluate.few_labels import SIZES
from varjepa.files import make_folder, write_text
from varjepa.report.charts import check_can_draw

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


def gather(
    out: Path, merge: Sequence[Path] | None, open_files: Open, compute: Callable[[], object]
) -> None:
    """Compute what a study lacks, or take the finished rows of other folders instead."""
    if merge:
        say(f"{merge_folders(out, merge, open_files)} rows merged into {out}")
        return
    with keeping(out):
        compute()


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


# --- ``python -m paper``.

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


# --- ``python -m paper downstream | uncertainty | sensitivity``: the paper's studies on
# datasets.


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


def add_tabular(app: typer.Typer) -> None:
    """Make the functions of this file commands of ``python -m paper``."""
    for command in (downstream, uncertainty, sensitivity):
        app.command(command.__name__, cls=ListCommand)(command)


# --- ``python -m paper labels | adapters | tries``: studies that the paper does not have.

QUICK_SIZES = (50, 200)


def labels(
    out: Out,
    datasets: Names = None,
    predictors: Annotated[
        list[str] | None, typer.Option(help="logistic, mlp, xgboost. Default: all.")
    ] = None,
    settings: Settings = None,
    runs: Annotated[
        int | None, typer.Option(help="Draws of the labelled rows; default 5, with --quick 2.")
    ] = None,
    epochs: Epochs = None,
    device: Device = "auto",
    quick: Quick = False,
    merge: Merge = None,
) -> None:
    """Raw features and embeddings when only 50 to 1,000 rows have a label."""
    plan = LabelsPlan(
        datasets=known_datasets(datasets or (QUICK_DATASETS if quick else list(DATASETS))),
        predictors=known("predictor", predictors or LABEL_PREDICTORS, LABEL_PREDICTORS),
        settings=known_settings(settings),
        sizes=QUICK_SIZES if quick else SIZES,
        runs=run_count(runs, quick),
        scale=make_scale(quick, epochs),
    )
    pick_device(device)
    check_can_draw()
    gather(
        out,
        merge,
        lambda f: [open_labels(f, plan.scale)],
        lambda: reproduce_labels(out, plan, device, say),
    )
    write_labels_report(out, open_labels(out, plan.scale).rows)
    say(f"tables in {out}/low_labels.md")


def adapters(
    out: Out,
    datasets: Names = None,
    predictors: Names = None,
    runs: Annotated[int, typer.Option(help="Seeds of a predictor.")] = 3,
    epochs: Epochs = None,
    device: Device = "auto",
    quick: Quick = False,
) -> None:
    """Which way embeddings should enter each predictor, judged on validation rows."""
    plan = AdapterPlan(
        datasets=known_datasets(datasets or ADAPTER_DATASETS),
        predictors=known_predictors(predictors, tuple(PREDICTORS)),
        runs=positive("--runs", runs),
        scale=make_scale(quick, epochs),
    )
    pick_device(device)
    with keeping(out):
        found = compare_adapters(out, plan, device, say)
    for predictor, adapter in best_adapters(found.rows).items():
        say(f"{predictor}: {adapter}")


def tries(
    out: Out,
    datasets: Names = None,
    runs: Annotated[int, typer.Option(help="Seeds of a predictor.")] = 2,
    epochs: Epochs = None,
    device: Device = "auto",
    quick: Quick = False,
    merge: Merge = None,
) -> None:
    """What was tried for the setting "ours", judged on validation rows."""
    plan = TriesPlan(
        datasets=known_datasets(datasets or (QUICK_DATASETS if quick else list(DATASETS))),
        runs=positive("--runs", runs),
        scale=make_scale(quick, epochs),
    )
    pick_device(device)
    gather(
        out,
        merge,
        lambda f: [open_tries(f, plan.scale)],
        lambda: judge_tries(out, plan, device, say),
    )
    for dataset, name in best_tries(open_tries(out, plan.scale).rows).items():
        say(f"{dataset}: {name}")


def add_beyond(app: typer.Typer) -> None:
    """Make the functions of this file commands of ``python -m paper``."""
    for command in (labels, adapters, tries):
        app.command(command.__name__, cls=ListCommand)(command)


# --- ``varjepa datasets``: what there is, and whether it is here.


def datasets(
    data: Annotated[
        Path | None, typer.Option(help=f"Folder of Parquet files; default: {FOLDER_VARIABLE}.")
    ] = None,
) -> None:
    """List the paper's seven datasets, and where each would be loaded from."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "rows", "numeric", "categorical", "classes", "available", "source"):
        is_number = heading in ("rows", "numeric", "categorical", "classes")
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
    places = {name: locate_dataset(name, data) for name in DATASETS}
    for name, info in DATASETS.items():
        counts = (info.rows, info.numeric, info.categorical, len(info.classes))
        table.add_row(name, *(f"{n:,}" for n in counts), places[name].where, info.source)
    console.print(table, highlight=False)
    if any(place.where == "not here" for place in places.values()):
        console.print(
            "\nWhat is not here is fetched from OpenML when first used; without internet, set "
            f"{FOLDER_VARIABLE} to a folder of Parquet files (docs/datasets.md).",
            highlight=False,
            soft_wrap=True,
        )


# --- ``python -m paper report``: what a results folder holds, as one page or in Markdown files.


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Results folder of python -m paper.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page to write. Default: report.html in the folder.")
    ] = None,
    markdown: Annotated[
        list[Path] | None,
        typer.Option(
            help="Fill the generated blocks of these Markdown files, or write a new one; no page "
            "then, unless --out names it."
        ),
    ] = None,
) -> None:
    """Every table and figure there are results for, beside the paper's, as one HTML file."""
    for document in markdown or ():
        write_document(folder, document)
        console.print(Text(f"tables: {document}"), soft_wrap=True)
    if out is None and markdown:
        return
    check_can_report()
    path = folder / "report.html" if out is None else out
    write_study_page(folder, path)
    console.print(Text(f"report: {path}"), soft_wrap=True)
