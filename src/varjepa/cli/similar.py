"""``varjepa similar``: the rows of a table that are most similar to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from varjepa.cli import options
from varjepa.errors import InputError


def similar(
    model: options.Model,
    table: options.Table,
    out: options.Out,
    query: Annotated[
        Path | None, typer.Option(help="A table of rows to find similar ones for. Default: TABLE.")
    ] = None,
    row: Annotated[
        int | None, typer.Option(help="Only for this row of TABLE, counted from 0.", min=0)
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Similar rows of each row.", min=1)] = 10,
    keep: Annotated[
        list[str] | None, typer.Option(help="Columns of the similar rows to copy into the output.")
    ] = None,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    raw_text: options.RawText = False,
) -> None:
    """Write the k most similar rows of every row.

    Columns: query, rank, row, distance. Rows count from 0; none is its own neighbour.
    """
    if query is not None and row is not None:
        raise InputError("--query and --row exclude each other")
    options.check_paths(out, overwrite, table, model=model)
    if query is not None:
        options.check_paths(out, overwrite, query)

    estimator = options.load_model(model, device, out)
    rows, kept = options.split_columns(options.read_rows(table), keep, estimator)
    if row is not None and row >= rows.num_rows:
        raise InputError(f"--row {row}: {table} has rows 0 to {rows.num_rows - 1}")
    asked = None if row is None else [row]
    if query is not None and not query.samefile(table):
        asked = options.read_rows(query)
    pairs = estimator.similar(rows, asked, k)
    for name in kept.column_names:
        if name in pairs.column_names:
            raise InputError(f"--keep {name!r}: the output has a column of this name")
        pairs = pairs.append_column(name, kept[name].take(pairs["row"]))
    options.write_result(pairs, out, raw_text)
