"""``varjepa impute | sample | score | demo``: a fitted model on a user's own table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from varjepa.cli.shell import console, positive, seed_number
from varjepa.demo import DemoSettings, run_demo
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.files import make_folder
from varjepa.tables import check_extension, read_table, write_table

Model = Annotated[Path, typer.Argument(help="A model folder that `varjepa fit` wrote.")]
Table = Annotated[Path, typer.Argument(help="A .csv, .parquet, .arrow or .feather file.")]
Out = Annotated[Path, typer.Option(help="Where to write; the ending chooses CSV, Parquet, Arrow.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
RawText = Annotated[
    bool, typer.Option("--raw-text", help="CSV: no quote before text that looks like a formula.")
]


def impute(
    model: Model,
    table: Table,
    out: Out,
    samples: Annotated[int, typer.Option(help="1: the best guess; more: that many draws.")] = 1,
    device: Device = "auto",
    seed: Seed = 0,
    raw_text: RawText = False,
) -> None:
    """Fill missing cells; with several samples the draws stand below each other."""
    estimator = opened(model, device, out)
    count = positive("--samples", samples)
    rows = rows_of(table)
    if count > 1 and "draw" in rows.column_names:
        raise InputError("the table has a column 'draw', the name that numbers the samples")
    filled = estimator.impute(rows, n_samples=count, random_state=seed_number(seed))
    if count > 1:
        parts = [
            part.append_column("draw", pa.array(np.full(part.num_rows, i)))
            for i, part in enumerate(filled)
        ]
        filled = pa.concat_tables(parts)
    written(filled, out, raw_text)


def sample(
    model: Model,
    out: Out,
    given: Annotated[
        Path | None, typer.Argument(help="A table of some columns to keep fixed.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="How many; default 100, or given's.")] = None,
    device: Device = "auto",
    seed: Seed = 0,
    raw_text: RawText = False,
) -> None:
    """Draw new rows."""
    estimator = opened(model, device, out)
    fixed = None if given is None else rows_of(given)
    count = rows if rows is not None else 100 if fixed is None else fixed.num_rows
    drawn = estimator.sample(positive("--rows", count), given=fixed, random_state=seed_number(seed))
    written(read_table(drawn), out, raw_text)


def score(
    model: Model, table: Table, out: Out, device: Device = "auto", raw_text: RawText = False
) -> None:
    """Per row: the objective, its five terms, and every kind of uncertainty."""
    estimator = opened(model, device, out)
    rows = rows_of(table)
    terms = estimator.score_samples(rows, terms=True)
    columns = {"score": estimator.score_samples(rows), **terms}
    unsure = estimator.uncertainties(rows)
    columns |= {f"uncertainty_{kind}": values for kind, values in unsure.items()}
    written(as_table(columns), out, raw_text)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo"),
    rows: Annotated[int, typer.Option(help="Rows of the SIM table, up to 10,000.")] = 10_000,
    epochs: Annotated[int, typer.Option(help="Training epochs.")] = DemoSettings().epochs,
) -> None:
    """The embedded SIM table, start to finish, with a report."""
    if not 100 <= rows <= 10_000:
        raise InputError(f"--rows must be between 100 and 10000, not {rows}")
    make_folder(out)
    settings = DemoSettings(rows=rows, epochs=positive("--epochs", epochs))
    page = run_demo(
        out, settings, lambda line: console.print(line, highlight=False, soft_wrap=True)
    )
    console.print(f"\nreport: {page}", highlight=False, soft_wrap=True)


def add_commands(app: typer.Typer) -> None:
    """Make the functions of this file commands."""
    for command in (demo, impute, sample, score):
        app.command(command.__name__)(command)


def opened(folder: Path, device: str, out: Path) -> VarTJEPA:
    """The model, once the output is known to be something we can write."""
    check_extension(out)
    make_folder(out.parent)
    estimator = VarTJEPA.load(folder)
    return estimator.set_params(device=device)


def rows_of(path: Path) -> pa.Table:
    """A table that has rows: without any, the sentence names the file."""
    table = read_table(path)
    if table.num_columns and not table.num_rows:
        raise InputError(f"{path} has no rows")
    return table


def written(table: pa.Table, out: Path, raw_text: bool) -> None:
    """Write a result and say so."""
    write_table(table, out, raw_text)
    console.print(f"{table.num_rows:,} rows in {out}", highlight=False, soft_wrap=True)


def as_table(columns: dict[str, Any]) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in columns.items()})
