"""``varjepa embed``: the rows of any table, also one larger than memory, to embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from varjepa.cli.shell import console, one_of, positive
from varjepa.cli.tables import Device, Model, RawText
from varjepa.errors import InputError, Interrupted
from varjepa.estimators.embedder import Embedder
from varjepa.files import make_folder
from varjepa.models.inference import KINDS
from varjepa.scale import Engine, Run, embed_to_file, embed_to_folder, this_process
from varjepa.scale.ray_engine import ray_engine
from varjepa.tables import check_extension
from varjepa.tables.streaming import StreamedTable, find_tables


def embed(
    model: Model,
    table: Annotated[
        str,
        typer.Argument(help='A table, a folder of .parquet files, or a pattern: "logs/*.parquet".'),
    ],
    out: Annotated[
        Path,
        typer.Option(help="A file; or a folder for part files, which a killed run continues."),
    ],
    uncertainty: Annotated[
        str, typer.Option(help="predictive, surprise, nll; or posterior, the paper's and fastest.")
    ] = "predictive",
    per_column: Annotated[bool, typer.Option(help="Also one uncertainty per column.")] = False,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column to copy into the output, such as an id.")
    ] = None,
    device: Device = "auto",
    batch_rows: Annotated[
        int | None, typer.Option(help="Rows in memory at a time. Default: as fits the model.")
    ] = None,
    part_rows: Annotated[
        int | None, typer.Option(help="Rows of a part file. Default: about 256 MB.")
    ] = None,
    raw_text: RawText = False,
    engine: Annotated[
        str, typer.Option(help="Who computes: local, this process; or ray, a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster. Default: the processors of this machine.")
    ] = None,
) -> None:
    """Posterior means of every row, with its uncertainty; memory does not grow with the rows."""
    batch = None if batch_rows is None else positive("--batch-rows", batch_rows)
    part = None if part_rows is None else positive("--part-rows", part_rows)
    is_file = bool(out.suffix) and not out.is_dir()
    if is_file:
        check_extension(out)
    if is_file and part is not None:
        raise InputError(f"--part-rows is for a folder of parts, and {out} is one file")
    compute = _engine(engine, address, out if is_file else None)
    kind = one_of("--uncertainty", uncertainty, KINDS)
    embedder = Embedder(str(model), per_column, tuple(dict.fromkeys(keep or ())), device, kind)
    embedder.open()
    tables = find_tables(table, apart_from=None if is_file else out)
    with _row_bar() as on_rows:
        if is_file:
            make_folder(out.parent)
            run = embed_to_file(embedder, tables, out, batch, raw_text, on_rows)
        else:
            run = _into_folder(embedder, tables, out, batch, part, on_rows, compute)
    run.remarks.warn(stacklevel=1)
    console.print(_sentence(run, out), soft_wrap=True)


def _engine(name: str, address: str | None, file: Path | None) -> Engine:
    if one_of("--engine", name, ("local", "ray")) == "local":
        if address is not None:
            raise InputError("--address is for --engine ray")
        return this_process
    if file is not None:
        raise InputError(f"--engine ray writes a folder of parts, and {file} is one file")
    return ray_engine(address)


def _into_folder(
    embedder: Embedder,
    tables: Sequence[StreamedTable],
    out: Path,
    batch: int | None,
    part: int | None,
    on_rows: Callable[[int, int], None],
    compute: Engine,
) -> Run:
    try:
        return embed_to_folder(embedder, tables, out, batch, part, on_rows, compute)
    except KeyboardInterrupt as stop:
        raise Interrupted(f"interrupted; the same command goes on with {out}") from stop


def _sentence(run: Run, out: Path) -> str:
    if not run.rows:
        return f"{run.rows_before:,} rows in {out}, all of them from before"
    speed = f"{run.rows / max(run.seconds, 1e-9):,.0f} rows/s"
    before = f", {run.rows_before:,} of them from before" if run.rows_before else ""
    return f"{run.rows + run.rows_before:,} rows in {out}{before}; {speed}"


@contextmanager
def _row_bar() -> Iterator[Callable[[int, int], None]]:
    """A bar over rows; yields a function to call with (rows done, all rows)."""
    columns = (
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,} rows, {task.fields[speed]} rows/s"),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=0, speed="…")

        def advance(done: int, total: int) -> None:
            speed = bar.tasks[0].speed
            shown = "…" if speed is None else f"{speed:,.0f}"
            bar.update(task, completed=done, total=total, speed=shown)

        yield advance
