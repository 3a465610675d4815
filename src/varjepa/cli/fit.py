"""``varjepa fit``: learn from a table without labels."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from varjepa.cli import options
from varjepa.cli.shell import console, is_main_process, one_of
from varjepa.errors import InputError, Interrupted
from varjepa.training.progress import in_words, show_lines

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from varjepa.tables import TableFiles


def fit(
    table: options.Tables,
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    target: Annotated[
        str | None,
        typer.Option(help="Label column: not learned from, used only to select the checkpoint."),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Maximum number of epochs. Default: about 1,600 steps.", min=1),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Maximum number of optimiser steps.", min=1)
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Seconds after which training ends with its best checkpoint."),
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(help="A column not to learn from, such as an id; may be repeated."),
    ] = None,
    forget_rows: Annotated[
        bool,
        typer.Option("--forget-rows", help="Keep no training rows in the model folder."),
    ] = False,
    kind: options.Kinds = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a fit that was interrupted.")
    ] = False,
    overwrite: options.Overwrite = False,
    checkpoint_every: Annotated[
        float, typer.Option(help="Seconds between checkpoints, which are in OUT/checkpoints.")
    ] = 30.0,
    capture: Annotated[
        str,
        typer.Option(
            "--capture", help="on or off: record training steps on a GPU and replay them."
        ),
    ] = "on",
) -> None:
    """Learn from a table; labels are not needed."""
    start = time.perf_counter()
    one_of("--capture", capture, ("on", "off"))
    options.check_paths(out, overwrite, table)
    has_model, checkpoints = (out / "manifest.json").exists(), out / "checkpoints"
    if has_model and not resume and not overwrite:
        raise InputError(f"{out} holds a model already; add --overwrite to replace it")
    if has_model and resume and not any(checkpoints.glob("*.manifest.json")):
        if is_main_process():
            if checkpoints.exists():  # a process was killed while it removed them
                import_module("varjepa.training.checkpoints").remove_checkpoints(checkpoints)
            console.print(f"the fit in {out} is finished: nothing to resume", soft_wrap=True)
        return

    from varjepa.estimators import VarTJEPA
    from varjepa.estimators.summary import training_words, wrapped
    from varjepa.files import remove_temporaries
    from varjepa.settings import Run, Training, pick_device
    from varjepa.tables import TableFiles
    from varjepa.training.checkpoints import complete_checkpoints, remove_checkpoints
    from varjepa.training.processes import LostProcessError, join_world

    model = VarTJEPA(
        training=Training(
            epochs="auto" if epochs is None else epochs, max_steps=max_steps, time_limit=time_limit
        ),
        column_kinds=options.parse_kinds(kind) or None,
        device=device,
        random_state=seed,
        verbose=2,
    )
    run = Run(
        checkpoint_dir=checkpoints,
        checkpoint_every=checkpoint_every,
        resume=resume,
        log_dir=out,
        tensorboard=tensorboard,
        capture=capture == "on",
    )
    try:
        with join_world(pick_device(device)) as world:
            with world.sharing_errors():
                rows, labels = read_rows(table, target, leave_out or [])
            if is_main_process():
                show_lines(describe_unread(target, leave_out or [], labels))
            model.fit(rows, labels, run=run)
        if not world.is_main:
            return
        remove_temporaries(out)
        if forget_rows:
            model.forget_rows()
        model.save(out)
    except (KeyboardInterrupt, LostProcessError) as stop:
        why = str(stop) or "interrupted"
        if complete_checkpoints(checkpoints):
            why += f"; the same command with --resume continues from {checkpoints}"
        raise Interrupted(why) from stop
    remove_checkpoints(checkpoints)
    count = rows.rows if isinstance(rows, TableFiles) else rows.num_rows
    console.print(
        f"{count:,} rows, {model.n_features_in_} columns, "
        f"{in_words(time.perf_counter() - start)}; model in {out}\n"
        f"{wrapped('fit', training_words(model))}",
        soft_wrap=True,
    )


def read_rows(
    table: str, target: str | None, leave_out: list[str]
) -> tuple[pa.Table | TableFiles, NDArray[Any] | None]:
    """The rows to learn from, and their labels; several or large files are not read yet."""
    from varjepa.estimators.fitting import table_files
    from varjepa.tables import read_table
    from varjepa.tables.values import refuse_unsupported

    files = table_files(table)
    if files is not None:
        check_unread(table, files.types.names, target, leave_out)
        files = files.without(leave_out)
        return files if target is None else files.labelled(target), None
    rows = read_table(table)
    check_unread(table, rows.column_names, target, leave_out)
    rows = rows.drop_columns(leave_out)
    if target is None:
        return rows, None
    refuse_unsupported(target, rows.schema.field(target).type)
    return rows.drop_columns([target]), rows[target].to_numpy(zero_copy_only=False)


def check_unread(table: str, names: list[str], target: str | None, leave_out: list[str]) -> None:
    """Refuse columns that are not there, and nothing left to learn from."""
    from varjepa.tables.messages import quoted, suggestion

    targets = [] if target is None else [target]
    for option, given in (("--leave-out", leave_out), ("--target", targets)):
        for name in given:
            if name not in names:
                close = suggestion(name, names)
                raise InputError(f"{option} {quoted(name)} is not a column of {table}{close}")
            if {*leave_out, *targets} >= set(names):
                raise InputError(f"{table} has no column besides {option} {quoted(name)}")
    if target in leave_out:
        raise InputError(f"--target {quoted(target)} is never learned from; drop --leave-out")


def describe_unread(
    target: str | None, leave_out: list[str], labels: NDArray[Any] | None
) -> list[str]:
    """Columns that are not learned from, and why."""
    from varjepa.metrics.target import infer_task
    from varjepa.tables.messages import listed, quoted

    lines = [f"Left out: {listed(leave_out)}."] if leave_out else []
    if target is not None:
        use = "it selects the checkpoint"
        if labels is not None and infer_task(labels) == "regression":
            use = "it holds numbers, not classes, so held-out cells select the checkpoint"
        lines.append(f"Not learned from: the target {quoted(target)}; {use}.")
    return lines
