"""``varjepa embed``: the rows of any table, also one larger than memory, to embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from varjepa.cli.options import (
    MEASURES,
    Device,
    Keep,
    Model,
    Overwrite,
    RawText,
    Tables,
    check_model,
    check_out,
    check_source,
    parse_measure,
)
from varjepa.cli.shell import console, one_of, positive
from varjepa.errors import InputError, Interrupted
from varjepa.files import make_folder
from varjepa.training.progress import passing_bar

if TYPE_CHECKING:
    from varjepa.scale import Engine, Run


def embed(
    model: Model,
    table: Tables,
    out: Annotated[
        Path,
        typer.Option(help="A file; or a folder for part files, which a killed run continues."),
    ],
    uncertainty: Annotated[str, typer.Option(help=f"{MEASURES}.")] = "predictive",
    per_column: Annotated[bool, typer.Option(help="Also one uncertainty per column.")] = False,
    keep: Keep = None,
    device: Device = "auto",
    batch_rows: Annotated[
        int | None, typer.Option(help="Rows in memory at a time. Default: as fits the model.")
    ] = None,
    part_rows: Annotated[
        int | None, typer.Option(help="Rows of a part file. Default: about 256 MB.")
    ] = None,
    overwrite: Overwrite = False,
    raw_text: RawText = False,
    engine: Annotated[
        str, typer.Option(help="Who computes: local, this process; or ray, a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster. Default: the processors of this machine.")
    ] = None,
) -> None:
    """Posterior means of every row, with its uncertainty; memory does not grow with the rows."""
    for option, number in (("--batch-rows", batch_rows), ("--part-rows", part_rows)):
        if number is not None:
            positive(option, number)
    is_file = bool(out.suffix) and not out.is_dir()
    if is_file and part_rows is not None:
        raise InputError(f"--part-rows is for a folder of parts, and {out} is one file")
    if one_of("--engine", engine, ("local", "ray")) == "local" and address is not None:
        raise InputError("--address is for --engine ray")
    if engine == "ray" and is_file:
        raise InputError(f"--engine ray writes a folder of parts, and {out} is one file")
    check_model(model)
    check_source(table)
    check_out(out, [table], overwrite)

    from varjepa.estimators.embedder import Embedder
    from varjepa.scale import embed_to_file, embed_to_folder
    from varjepa.tables import check_extension
    from varjepa.tables.streaming import find_tables

    if is_file:
        check_extension(out)
    compute = _engine(engine, address)
    kind, aggregate = parse_measure(uncertainty)
    embedder = Embedder(
        str(model),
        per_column,
        tuple(dict.fromkeys(keep or ())),
        device,
        kind,
        aggregate if "-" in uncertainty else None,
    )
    embedder.open()
    tables = find_tables(table, apart_from=None if is_file else out)
    with _row_bar() as on_rows:
        if is_file:
            make_folder(out.parent)
            run = embed_to_file(embedder, tables, out, batch_rows, raw_text, on_rows)
        else:
            try:
                run = embed_to_folder(
                    embedder, tables, out, batch_rows, part_rows, on_rows, compute
                )
            except KeyboardInterrupt as stop:
                raise Interrupted(f"interrupted; the same command goes on with {out}") from stop
    run.remarks.warn(stacklevel=1)
    console.print(_sentence(run, out), soft_wrap=True)


def _engine(name: str, address: str | None) -> Engine:
    if name == "local":
        from varjepa.scale import this_process

        return this_process
    from varjepa.scale.ray_engine import ray_engine

    return ray_engine(address)


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
    with passing_bar(*columns) as bar:
        task = bar.add_task("", total=0, speed="…")

        def advance(done: int, total: int) -> None:
            speed = bar.tasks[0].speed
            shown = "…" if speed is None else f"{speed:,.0f}"
            bar.update(task, completed=done, total=total, speed=shown)

        yield advance
