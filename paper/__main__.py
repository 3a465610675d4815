"""python -m paper: every study of the paper as one command. Heavy imports are in the functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from varjepa.cli import shell
from varjepa.cli.shell import ListCommand, console, positive
from varjepa.errors import InputError
from varjepa.training.progress import progress

if TYPE_CHECKING:
    from paper.settings import Scale, Setting

app = typer.Typer(
    help="Reproduce the paper, table by table.", no_args_is_help=True, add_completion=False
)

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
QUICK_DATASETS = ["sim", "adult"]
QUICK_PREDICTORS = ["mlp", "resnet", "xgboost"]
QUICK_RUNS = 2
QUICK_SIZES = (50, 200)

REPEATED_DATASETS = ("adult", "credit_default", "sim")
"""whose embeddings ``all`` trains from three seeds, so that a reader sees how much they vary"""
REPEATS = 3


# --- the studies


@app.command(cls=ListCommand)
def simulation(
    out: Out,
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
    from paper import simulation as study
    from varjepa.report.charts import check_can_draw

    settings = study.SimulationSettings()
    if epochs is not None:
        training = replace(settings.training, epochs=positive("--epochs", epochs))
        settings = replace(settings, training=training)
    default = study.QUICK_SIMULATION_VARIANTS if quick else tuple(study.SIMULATION_VARIANTS)
    chosen = known("variant", variants or default, tuple(study.SIMULATION_VARIANTS))
    count = positive("--runs", runs if runs is not None else 2 if quick else 5)
    check_can_draw()
    waiting = study.count_waiting(out, chosen, count, settings)
    total, done = waiting * settings.training.epochs, itertools.count(1)
    with progress() as show:

        def advance(variant: str, epoch: int) -> None:
            show(next(done), total, f"variant {variant}", "")

        study.run_simulation(out, chosen, count, settings, advance)
    finish(out, "simulation")


@app.command(cls=ListCommand)
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
) -> None:
    """Six predictors on raw features and embeddings of seven datasets."""
    from paper import downstream as study
    from paper.published import PAPER_PREDICTORS
    from paper.representations import REPRESENTATIONS

    plan = study.DownstreamPlan(
        datasets=known_datasets(datasets, quick),
        representations=known(
            "representation", representations or REPRESENTATIONS, REPRESENTATIONS
        ),
        predictors=known_predictors(predictors, QUICK_PREDICTORS if quick else PAPER_PREDICTORS),
        settings=known_settings(settings),
        runs=run_count(runs, quick),
        embeddings=positive("--embeddings", embeddings),
        scale=make_scale(quick, epochs),
    )
    run_study("downstream", study.run_downstream, out, plan, device)


@app.command(cls=ListCommand)
def uncertainty(
    out: Out,
    datasets: Annotated[list[str] | None, typer.Option(help="Default: sim mnist.")] = None,
    settings: Settings = None,
    runs: Runs = None,
    embeddings: Embeddings = 1,
    epochs: Epochs = None,
    device: Device = "auto",
    quick: Quick = False,
) -> None:
    """Latent uncertainty and post-hoc baselines, on one classifier and as in the paper."""
    from paper import uncertainty as study

    plan = study.UncertaintyPlan(
        datasets=known_datasets(datasets, quick, study.WITH_TRUTH),
        settings=known_settings(settings),
        runs=run_count(runs, quick),
        embeddings=positive("--embeddings", embeddings),
        scale=make_scale(quick, epochs),
    )
    run_study("uncertainty", study.run_uncertainty, out, plan, device)


@app.command(cls=ListCommand)
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
) -> None:
    """Adult with seven settings of the weights and seven of architecture and optimisation."""
    from paper import sensitivity as study
    from paper.settings import SENSITIVITY_PREDICTORS

    every = tuple(name for table in study.ALL_COLUMNS.values() for name in table)
    default = ("Base", "Narrow") if quick else every  # a quick run is shallow anyway
    asked = known("column", columns or default, every)
    plan = study.SensitivityPlan(
        columns={t: [c for c in names if c in asked] for t, names in study.ALL_COLUMNS.items()},
        predictors=known_predictors(predictors, SENSITIVITY_PREDICTORS),
        runs=run_count(runs, quick),
        scale=make_scale(quick, epochs),
    )
    run_study("sensitivity", study.run_sensitivity, out, plan, device)


@app.command(cls=ListCommand)
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
) -> None:
    """Raw features and embeddings when only 50 to 1,000 rows have a label (not in the paper)."""
    from paper import labels as study
    from varjepa.evaluate.predictors import SIZES

    plan = study.LabelsPlan(
        datasets=known_datasets(datasets, quick),
        predictors=known("predictor", predictors or study.LABEL_PREDICTORS, study.LABEL_PREDICTORS),
        settings=known_settings(settings),
        sizes=QUICK_SIZES if quick else SIZES,
        runs=run_count(runs, quick),
        scale=make_scale(quick, epochs),
    )
    run_study("labels", study.run_labels, out, plan, device)


# --- all of them, the report, the datasets


@app.command("all", cls=ListCommand)
def everything(
    out: Out,
    datasets: Annotated[
        list[str] | None, typer.Option(help="Restrict every study to these. Default: all.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option(help="Default: paper and ours; with --quick paper.")
    ] = None,
    device: Device = "auto",
    quick: Quick = False,
) -> None:
    """Run every study, sharing what is trained, and write all tables and report.html."""
    from paper.report import check_can_report
    from paper.settings import SETTINGS
    from varjepa.files import study_folder
    from varjepa.settings import pick_device

    names = known_datasets(datasets, quick)
    chosen: list[str] = [*known_settings(settings or (["paper"] if quick else list(SETTINGS)))]
    pick_device(device)
    check_can_report()
    check_everything(out, names, make_scale(quick, None))
    steps = plan_steps(out, names, chosen, device, quick)
    for number, (title, run) in enumerate(steps, start=1):
        log(f"{number} of {len(steps)}: {title}")
        run()
    with study_folder(out):
        report(out, out / "report.html", [out / "tables.md"])


def plan_steps(
    out: Path, datasets: list[str], settings: list[str], device: str, quick: bool
) -> list[tuple[str, Callable[[], None]]]:
    """The studies in the order in which later ones find the embeddings of earlier ones.

    The downstream study trains every embedding that the studies of few labels and of uncertainty
    evaluate, and the first column of the sensitivity tables is its Adult. A study that has no part
    of the datasets is left out.
    """
    from paper.settings import SENSITIVITY_DATASET
    from paper.uncertainty import WITH_TRUTH

    ranked = [name for name in WITH_TRUTH if name in datasets]
    repeated = [] if quick else [name for name in REPEATED_DATASETS if name in datasets]
    several = [name for name in ranked if name in repeated]
    again = f"{REPEATS} pre-training seeds"
    about: dict[str, Any] = {"settings": settings, "device": device, "quick": quick}
    of_ours: dict[str, Any] = {"embeddings": REPEATS, **about}
    steps: list[tuple[str, Callable[[], None], bool]] = [
        ("simulation", partial(simulation, out, quick=quick), True),
        ("downstream", partial(downstream, out, datasets=datasets, **about), True),
        (
            f"downstream, {again}",
            partial(downstream, out, datasets=repeated, representations=["var_t_jepa"], **of_ours),
            bool(repeated),
        ),
        ("labels", partial(labels, out, datasets=datasets, **about), True),
        ("uncertainty", partial(uncertainty, out, datasets=ranked, **about), bool(ranked)),
        (
            f"uncertainty, {again}",
            partial(uncertainty, out, datasets=several, **of_ours),
            bool(several),
        ),
        (
            "sensitivity",
            partial(sensitivity, out, device=device, quick=quick),
            SENSITIVITY_DATASET in datasets,
        ),
    ]
    return [(title, run) for title, run, is_wanted in steps if is_wanted]


def check_everything(folder: Path, datasets: Sequence[str], scale: Scale) -> None:
    """Refuse now what the last study would refuse: rows of other settings, packages, no data.

    A dataset that is nowhere on this machine is fetched now, unless it has rows already: a finished
    study needs no data.
    """
    from paper.datasets import loading
    from paper.downstream import open_downstream
    from paper.labels import open_labels
    from paper.predictors.networks import require
    from paper.representations import open_trainings
    from paper.sensitivity import open_sensitivity
    from paper.simulation import open_simulation
    from paper.uncertainty import open_uncertainty

    open_simulation(folder)
    for open_store in (open_trainings, open_uncertainty, open_sensitivity, open_labels):
        open_store(folder, scale)
    store = open_downstream(folder, scale)
    require("xgboost", "xgboost")
    require("rtdl_revisiting_models", "resnet")
    for name in datasets:
        if loading.locate_dataset(name).where == "not here" and not store.has(dataset=name):
            loading.load_dataset(name)


@app.command(cls=ListCommand)
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
    """Every table and figure there are results for, compared with the paper's, as one HTML file."""
    from paper.report import check_can_report, write_document, write_page

    for document in markdown or ():
        write_document(folder, document)
        log(f"tables: {document}")
    if out is None and markdown:
        return
    check_can_report()
    path = folder / "report.html" if out is None else out
    write_page(folder, path)
    log(f"report: {path}")


@app.command("datasets")
def list_datasets(
    data: Annotated[
        Path | None, typer.Option(help="Folder of Parquet files; default: VARJEPA_DATA.")
    ] = None,
) -> None:
    """List the paper's seven datasets, and where each would be loaded from."""
    from paper.datasets.catalogue import DATASETS
    from paper.datasets.loading import FOLDER_VARIABLE, locate_dataset
    from varjepa.report.tables import Table, to_terminal

    columns = ["name", "rows", "numeric", "categorical", "classes", "available", "source"]
    places = {name: locate_dataset(name, data).where for name in DATASETS}
    rows = []
    for name, info in DATASETS.items():
        counts = (info.rows, info.numeric, info.categorical, len(info.classes))
        rows.append([name, *(f"{n:,}" for n in counts), places[name], info.source])
    console.print(to_terminal(Table("", columns, rows)))
    if "not here" in places.values():
        log(
            "\nWhat is not here is fetched from OpenML when first used; without internet, set "
            f"{FOLDER_VARIABLE} to a folder of Parquet files (paper/README.md)."
        )


@app.command(cls=ListCommand)
def merge(
    sources: Annotated[list[Path], typer.Argument(help="Folders with rows of the same studies.")],
    out: Out,
) -> None:
    """Take the rows of other folders, for example of other machines, into one."""
    from paper.report import merge_results

    log(f"{merge_results(out, sources)} rows merged into {out}")


# --- what the commands share


def run_study(
    name: str,
    run: Callable[[Path, Any, str, Callable[[str], None]], None],
    out: Path,
    plan: Any,
    device: str,
) -> None:
    """Run a study; refuse before hours of work a device or a package that is not there."""
    from varjepa.report.charts import check_can_draw
    from varjepa.settings import pick_device

    pick_device(device)
    check_can_draw()
    run(out, plan, device, log)
    finish(out, name)


def finish(out: Path, study: str) -> None:
    """Print the findings of a study, and write its tables and figures."""
    from paper.report import build_blocks, read_results, write_study

    blocks = [block for block in build_blocks(read_results(out)) if block.study == study]
    words = {True: "[green]yes [/]", False: "[red]no  [/]", None: "[yellow]open[/]"}
    for block in blocks:
        for setting, findings in block.findings.items():
            if setting and findings:
                log(f"setting {setting}:")
            for finding in findings:
                line = f"{finding.claim}: {finding.evidence}".replace("[", r"\[")
                console.print(f"{words[finding.holds]} {line}", markup=True, soft_wrap=True)
        if block.summary:
            log(block.summary)
    log(f"tables in {write_study(out, blocks)}")


def log(line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True, markup=False)


def known(what: str, names: Sequence[str], every: Sequence[str]) -> list[str]:
    """The names asked for, in the table's order; one sentence for a name there is not."""
    for name in names:
        if name not in every:
            raise InputError(f"there is no {what} {name!r}; known are {', '.join(every)}")
    return [name for name in every if name in names]


def known_datasets(
    names: Sequence[str] | None, quick: bool, default: Sequence[str] | None = None
) -> list[str]:
    """Datasets by name or by the paper's abbreviation, in the paper's order."""
    from paper.datasets.catalogue import DATASETS, dataset_info

    wanted = names or (QUICK_DATASETS if quick else default or list(DATASETS))
    asked = {dataset_info(name).name for name in wanted}
    return [name for name in DATASETS if name in asked]


def known_predictors(names: Sequence[str] | None, default: Sequence[str]) -> list[str]:
    from paper.predictors.training import PREDICTORS

    return known("predictor", names or default, tuple(PREDICTORS))


def known_settings(names: Sequence[str] | None) -> list[Setting]:
    from paper.settings import SETTINGS

    asked = known("setting", names or ["paper"], SETTINGS)
    return [setting for setting in SETTINGS if setting in asked]


def run_count(runs: int | None, quick: bool) -> int:
    return positive("--runs", runs if runs is not None else QUICK_RUNS if quick else 5)


def make_scale(quick: bool, epochs: int | None) -> Scale:
    from paper import settings

    scale = settings.QUICK if quick else settings.FULL
    return scale if epochs is None else replace(scale, epochs=positive("--epochs", epochs))


def main(arguments: list[str] | None = None) -> None:
    shell.run(app, arguments)


if __name__ == "__main__":
    main()
