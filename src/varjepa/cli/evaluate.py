"""``varjepa evaluate``: raw features compared with embeddings on a user's own table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.text import Text

from varjepa.cli.options import Device, Kinds, Seed, Table, check_source, parse_kinds, read_rows
from varjepa.cli.shell import console
from varjepa.errors import InputError

if TYPE_CHECKING:
    from varjepa.evaluate.splits import TaskChoice


def evaluate(
    table: Table,
    target: Annotated[str, typer.Option(help="Column to predict.")],
    out: Annotated[
        Path,
        typer.Option(help="Folder for report.html and evaluate.json; a second run continues."),
    ] = Path("evaluation"),
    representations: Annotated[
        list[str] | None, typer.Option(help="E.g. raw var_t_jepa. Default: all.")
    ] = None,
    predictors: Annotated[
        list[str] | None,
        typer.Option(help="E.g. forest. Default: linear, mlp, xgboost or else boosted_trees."),
    ] = None,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    runs: Annotated[int, typer.Option(help="Trainings of each predictor.", min=1)] = 3,
    epochs: Annotated[
        int | None,
        typer.Option(help="Epochs of T-JEPA and Var-T-JEPA. Default: chosen by the rows.", min=1),
    ] = None,
    transductive: Annotated[
        bool,
        typer.Option(
            "--transductive",
            help="Fit representations on all rows, without labels, as in the paper.",
        ),
    ] = False,
    labels_pick_checkpoint: Annotated[
        bool,
        typer.Option("--labels-pick-checkpoint", help="Training labels choose the checkpoint."),
    ] = False,
    kind: Kinds = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Use a random sample of this many rows. Default: all.", min=1),
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
) -> None:
    """Compare raw features with embeddings on a table, with a report."""
    check_source(table)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file, not a folder")

    from varjepa.evaluate import EvaluateSettings, run_evaluation
    from varjepa.evaluate.run import REPRESENTATIONS
    from varjepa.evaluate.tables import EvaluationTables, build_page
    from varjepa.report.charts import check_can_draw
    from varjepa.report.page import write_page
    from varjepa.report.tables import to_terminal

    settings = EvaluateSettings(
        target=target,
        task=cast("TaskChoice", task),
        representations=tuple(representations or REPRESENTATIONS),
        predictors=tuple(predictors or ()),
        runs=runs,
        epochs=epochs,
        transductive=transductive,
        labels_pick_checkpoint=labels_pick_checkpoint,
        kinds=tuple(parse_kinds(kind).items()),
        rows=rows,
        device=device,
        seed=seed,
    )
    check_can_draw()
    results = run_evaluation(read_rows(table), table.name, out, settings, say=_say, verbose=True)
    page = build_page(results)
    for result in EvaluationTables(results).build(is_brief=True):
        console.print()
        console.print(to_terminal(result))
    write_page(page, out / "report.html")
    _say(f"\nreport: {out / 'report.html'}")


def _say(line: str) -> None:
    console.print(Text(line), soft_wrap=True)
