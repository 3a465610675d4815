"""``varjepa embed``: the rows of any table, also one larger than memory, to embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from varjepa.cli import options
from varjepa.cli.shell import console, one_of
from varjepa.errors import InputError, Interrupted
from varjepa.files import make_folder
from varjepa.training.progress import progress

if TYPE_CHECKING:
    from varjepa.scale import RunSummary


def embed(
    model: options.Model,
    table: options.Tables,
    out: Annotated[
        Path,
        typer.Option(help="A file; or a folder for part files, which a killed run continues."),
    ],
    uncertainty: Annotated[str, typer.Option(help=f"{options.MEASURES}.")] = "doubtful",
    per_column: Annotated[
        bool, typer.Option("--per-column", help="Also one uncertainty per column.")
    ] = False,
    keep: options.Keep = None,
    device: options.Device = "auto",
    batch_rows: Annotated[
        int | None,
        typer.Option(help="Rows in memory at a time. Default: chosen by the model's size.", min=1),
    ] = None,
    part_rows: Annotated[
        int | None, typer.Option(help="Rows in a part file. Default: those of about 256 MB.", min=1)
    ] = None,
    overwrite: options.Overwrite = False,
    raw_text: options.RawText = False,
    engine: Annotated[
        str, typer.Option(help="Where it runs: local (this process) or ray (a cluster).")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="A Ray cluster. Default: the processors of this machine.")
    ] = None,
) -> None:
    """Write the embedding and the uncertainty of every row.

    Memory does not grow with the rows.
    """
    is_file = bool(out.suffix) and not out.is_dir()
    if is_file and part_rows is not None:
        raise InputError(f"--part-rows is for a folder of parts, and {out} is one file")
    if one_of("--engine", engine, ("local", "ray")) == "local" and address is not None:
        raise InputError("--address is for --engine ray")
    if engine == "ray" and is_file:
        raise InputError(f"--engine ray writes a folder of parts, and {out} is one file")
    options.check_paths(out, overwrite, table, model=model)

    from varjepa.estimators.embedder import Embedder
    from varjepa.scale import embed_to_file, embed_to_folder, this_process
    from varjepa.scale.ray_engine import ray_engine
    from varjepa.tables import check_extension
    from varjepa.tables.streaming import find_tables

    if is_file:
        check_extension(out)
    compute = this_process if engine == "local" else ray_engine(address)
    kind, aggregate = options.parse_measure(uncertainty)
    columns, asked = tuple(dict.fromkeys(keep or ())), aggregate if "-" in uncertainty else None
    embedder = Embedder(str(model), per_column, columns, device, kind, asked)
    embedder.open()
    tables = find_tables(table, apart_from=None if is_file else out)
    with progress() as show:

        def on_rows(done: int, total: int) -> None:
            show(done, total, "embedding", f"{done:,} of {total:,} rows")

        if is_file:
            make_folder(out.parent)
            run = embed_to_file(embedder, tables, out, batch_rows, raw_text, on_rows)
        else:
            try:
                run = embed_to_folder(
                    embedder, tables, out, batch_rows, part_rows, on_rows, compute
                )
            except KeyboardInterrupt as stop:
                raise Interrupted(f"interrupted; the same command continues {out}") from stop
    run.warnings.warn(stacklevel=1)
    console.print(_sentence(run, out), soft_wrap=True)


def _sentence(run: RunSummary, out: Path) -> str:
    if not run.rows:
        return f"{run.rows_before:,} rows in {out}, all of them from an earlier run"
    speed = f"{run.rows / max(run.seconds, 1e-9):,.0f} rows/s"
    before = f", {run.rows_before:,} of them from an earlier run" if run.rows_before else ""
    return f"{run.rows + run.rows_before:,} rows in {out}{before}; {speed}"
