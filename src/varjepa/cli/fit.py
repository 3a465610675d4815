"""``varjepa fit``: learn from a user's own table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from numpy.typing import NDArray

from varjepa.cli.shell import console, one_of, positive, seed_number
from varjepa.cli.tables import Device, Seed
from varjepa.errors import InputError, Interrupted
from varjepa.estimators import VarTJEPA
from varjepa.estimators.fitting import table_files
from varjepa.estimators.settings import pick_device
from varjepa.files import remove_temporaries
from varjepa.tables import KINDS as COLUMN_KINDS
from varjepa.tables import Kind as ColumnKind
from varjepa.tables import read_table
from varjepa.tables.arrow_types import refuse_unsupported
from varjepa.tables.many_files import TableFiles
from varjepa.training.checkpoints import remove_checkpoints, whole_checkpoints
from varjepa.training.processes import LostProcessError, together

Labels = NDArray[Any] | None


def fit(
    table: Annotated[
        str,
        typer.Argument(help='A table, a folder of .parquet files, or a pattern: "logs/*.parquet".'),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    target: Annotated[
        str | None, typer.Option(help="Label column: left out, and used to pick the checkpoint.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Default: as many as the table needs.")] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Stop after so many steps at the latest.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Override a column's kind, e.g. zip=categorical.")
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard events.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a fit that was interrupted.")
    ] = False,
    checkpoint_every: Annotated[
        float, typer.Option(help="Seconds between checkpoints, in OUT/checkpoints.")
    ] = 30.0,
    compile_steps: Annotated[
        str, typer.Option("--compile", help="on: a GPU replays recorded steps; off: it does not.")
    ] = "on",
) -> None:
    """Learn from an unlabelled table."""
    start = time.perf_counter()
    kinds = dict(parse_kind(word) for word in kind or [])
    one_of("--compile", compile_steps, ("on", "off"))
    checkpoints = out / "checkpoints"
    model = VarTJEPA(
        epochs="auto" if epochs is None else positive("--epochs", epochs),
        max_steps=None if max_steps is None else positive("--max-steps", max_steps),
        column_kinds=kinds or None,
        device=device,
        random_state=seed_number(seed),
        log_dir=str(out),
        tensorboard=tensorboard,
        capture=compile_steps == "on",
        checkpoint_dir=str(checkpoints),
        checkpoint_every=checkpoint_every,
        resume=resume,
        verbose=1,
    )
    try:
        with together(pick_device(device)) as team:
            with team.sharing_errors():
                rows, labels = read_rows(table, target)
            model.fit(rows, labels)
        if not team.leads:
            return
        remove_temporaries(out)
        model.save(out)
    except (KeyboardInterrupt, LostProcessError) as stop:
        why = str(stop) or "interrupted"
        if whole_checkpoints(checkpoints):
            why += f"; the same command with --resume goes on from {checkpoints}"
        raise Interrupted(why) from stop
    remove_checkpoints(checkpoints)
    last = model.history_[model.best_epoch_ - 1]
    count = rows.rows if isinstance(rows, TableFiles) else rows.num_rows
    console.print(
        f"{count:,} rows, {model.n_features_in_} columns: epoch {model.best_epoch_} kept by "
        f"{model.selected_by_} {last[model.selected_by_]:.4f}, "
        f"{model.collapse_.active_units:.0f} of {model.d} units active, "
        f"{time.perf_counter() - start:.0f} s; model in {out}",
        highlight=False,
        soft_wrap=True,
    )


def read_rows(table: str, target: str | None) -> tuple[pa.Table | TableFiles, Labels]:
    """The rows to learn from, and their labels where there is a target.

    Files that are several, or too large to be read at once, are found but not read yet.
    """
    files = table_files(table)
    if files is not None:
        return files if target is None else files.labelled(target), None
    rows = read_table(table)
    if target is None:
        return rows, None
    if target not in rows.column_names:
        raise InputError(f"--target {target!r} is not a column of {table}")
    refuse_unsupported(target, rows.schema.field(target).type)
    labels = rows[target].to_numpy(zero_copy_only=False)
    rows = rows.drop_columns([target])
    if rows.num_columns == 0:
        raise InputError(f"{table} has no column besides --target {target!r}")
    return rows, labels


def parse_kind(word: str) -> tuple[str, ColumnKind]:
    """zip=categorical"""
    name, equals, kind = word.rpartition("=")
    for known in COLUMN_KINDS:
        if equals and kind == known:
            return name, known
    raise InputError(f"--kind {word!r} is not COLUMN=KIND with one of {', '.join(COLUMN_KINDS)}")
