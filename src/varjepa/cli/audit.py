"""``varjepa audit``: which cells of a table look wrong, and what they should be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from varjepa.cli import options
from varjepa.cli.shell import console
from varjepa.errors import InputError, Interrupted
from varjepa.files import make_folder, only_writer, remove_temporaries

if TYPE_CHECKING:
    import pyarrow as pa

FILES = (
    "report.html",
    *(f"{name}.{end}" for name in ("cells", "rows", "columns") for end in ("parquet", "csv")),
)


def audit(
    table: options.Tables,
    out: Annotated[Path, typer.Option(help="Folder for report.html, cells, rows and columns.")],
    model: Annotated[
        Path | None,
        typer.Option(help="A model folder. Default: a model is fitted to the table itself."),
    ] = None,
    fdr: Annotated[
        float,
        typer.Option(help="False discovery rate: share of the flagged cells that may be right."),
    ] = 0.05,
    top: Annotated[int, typer.Option(help="Minimum number of cells to list.", min=1)] = 1000,
    repaired: Annotated[
        Path | None, typer.Option(help="Also write the table with its repairs to this file.")
    ] = None,
    min_confidence: Annotated[
        float,
        typer.Option(
            help="For --repaired: minimum probability that cell is wrong and repair right.",
            min=0.0,
            max=1.0,
        ),
    ] = 0.5,
    leave_out: Annotated[
        list[str] | None, typer.Option(help="A column not to audit; may be repeated.")
    ] = None,
    kind: options.Kinds = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for fit and scoring; the fit ends early.")
    ] = None,
    device: options.Device = "auto",
    seed: Annotated[
        int | None, typer.Option(help="Random seed of the fit. Default: 0.", min=0, max=2**32 - 1)
    ] = None,
    overwrite: options.Overwrite = False,
    raw_text: options.RawText = False,
) -> None:
    """List cells that do not fit the rest of their row, and repairs.

    Missing cells, identifiers, free text and constant columns are not audited. The same command
    continues the fit of an interrupted audit, with --overwrite too; scoring begins again.
    """
    options.check_paths(out, overwrite, table, model=model)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file, not a folder")
    if (out / "manifest.json").exists():
        raise InputError(f"--out {out} is a model folder; name another")
    if not overwrite and any((out / name).exists() for name in FILES):
        raise InputError(f"{out} holds an audit already; add --overwrite to replace it")
    for option, given in (("--kind", kind or None), ("--seed", seed)):
        if model is not None and given is not None:
            raise InputError(
                f"{option} is for a new fit, and the model of --model is fitted already"
            )
    if repaired is not None:
        check_repaired(repaired, out, table, overwrite)

    import shutil

    from varjepa.audit import audit as find
    from varjepa.cli.fit import check_unread
    from varjepa.estimators import VarTJEPA
    from varjepa.estimators.fitting import table_files
    from varjepa.tables import TableFiles, check_extension, read_table, write_table
    from varjepa.tables.messages import quoted

    if repaired is not None:
        check_extension(repaired)
    source = table_files(table) or options.read_rows(Path(table))
    left_out = leave_out or []
    check_unread(table, list(source.schema.names), None, left_out)
    if isinstance(source, TableFiles):
        if repaired is not None:
            raise InputError("--repaired needs a table that is read at once, not files")
        rows = source.without(left_out)
    else:
        rows = source.drop_columns(left_out)
    fitted = None if model is None else VarTJEPA.load(model)
    for column in [] if fitted is None else fitted.codec_.schema.modelled:
        if column.name in left_out:
            raise InputError(
                f"--leave-out {quoted(column.name)} is for a new fit: the model of --model needs "
                "this column"
            )
    unfinished = out / "fit"
    with (
        new_folder(out),
        new_folder(out if repaired is None else repaired.parent),
        only_writer(out),
    ):
        remove_temporaries(out)
        try:
            found = find(
                rows,
                fitted,
                fdr=fdr,
                top=top,
                column_kinds=options.parse_kinds(kind) or None,
                time_limit=time_limit,
                device=device,
                random_state=seed,
                verbose=1,
                folder=unfinished,
                overwrite=overwrite,
            )
        except KeyboardInterrupt as stop:
            goes_on = "; the same command continues the fit" if fitted is None else ""
            raise Interrupted(f"interrupted{goes_on}") from stop
        except InputError:
            if not any((unfinished / name).exists() for name in ("checkpoints", "model")):
                shutil.rmtree(unfinished, ignore_errors=True)  # nothing to continue from
            raise
        found.name = Path(table).name
        found.save(out, raw_text)
        if repaired is not None:
            new = read_table(found.repaired(min_confidence))
            write_table(_joined(source, new), repaired, raw_text)
            done = len(read_table(found.changes(min_confidence)))
            left = found.flagged - done
            said = (
                f"repaired table: {repaired}; {done:,} of {found.flagged:,} flagged cells repaired"
            )
            why = f", {left:,} left: no repair is sure enough" if left else ""
            console.print(said + why, soft_wrap=True)
        shutil.rmtree(unfinished, ignore_errors=True)
    console.print(f"{found}\nreport: {out / 'report.html'}", soft_wrap=True)


def check_repaired(path: Path, out: Path, table: str, overwrite: bool) -> None:
    """Refuse a file for the repaired table that is something else already."""
    if path.is_dir():
        raise InputError(f"--repaired {path} is a folder, not a file")
    full, folder = path.resolve(), out.resolve()
    if full in [folder / name for name in FILES] or folder / "fit" in full.parents:
        raise InputError(f"--repaired {path} is a file of the audit itself; give another name")
    source = Path(table)
    if not overwrite and source.is_file() and path.exists() and path.samefile(source):
        raise InputError(f"--repaired {path} is an input; add --overwrite to replace it")


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """The folder and its parents; what was not there before is removed again if it stays empty."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    try:
        yield
    finally:
        for path in made:
            with suppress(OSError):
                path.rmdir()


def _joined(source: Any, new: pa.Table) -> pa.Table:
    """All columns of the source, those that were audited as they are after repairs."""
    for place, name in enumerate(source.column_names):
        if name in new.column_names:
            source = source.set_column(place, name, new[name])
    return source
