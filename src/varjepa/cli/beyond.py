"""``varjepa reproduce labels | adapters | tries``: studies that the paper does not have."""

from __future__ import annotations

from typing import Annotated

import typer

from varjepa.cli.shell import ListCommand, positive
from varjepa.cli.study_options import (
    QUICK_DATASETS,
    Device,
    Epochs,
    Merge,
    Names,
    Out,
    Quick,
    Settings,
    gather,
    keeping,
    known_predictors,
    known_settings,
    make_scale,
    run_count,
    say,
)
from varjepa.datasets.catalogue import DATASETS
from varjepa.downstream import PREDICTORS
from varjepa.estimators.parameters import pick_device
from varjepa.experiments.adapters import DATASETS as ADAPTER_DATASETS
from varjepa.experiments.adapters import AdapterPlan, best_adapters, compare_adapters
from varjepa.experiments.few_label_fits import LABEL_PREDICTORS
from varjepa.experiments.few_labels import SIZES
from varjepa.experiments.labels import LabelsPlan, open_labels, reproduce_labels
from varjepa.experiments.names import known, known_datasets
from varjepa.experiments.tries import TriesPlan, best_tries, judge_tries, open_tries
from varjepa.report.drawing import check_can_draw
from varjepa.report.labels import write_labels_report

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


def add_commands(app: typer.Typer) -> None:
    """Make the functions of this file commands of ``varjepa reproduce``."""
    for command in (labels, adapters, tries):
        app.command(command.__name__, cls=ListCommand)(command)
