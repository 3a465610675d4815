"""``varjepa explore``: a page on which the rows of a table can be explored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from varjepa.cli import options
from varjepa.cli.shell import console
from varjepa.errors import InputError
from varjepa.files import make_folder
from varjepa.training.progress import progress


def explore(
    model: options.Model,
    table: options.Table,
    out: Annotated[Path, typer.Option(help="The page, an .html file.")],
    device: options.Device = "auto",
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> None:
    """Draw a map of the rows to click on, in one HTML file.

    It shows their columns, uncertainty and similar rows. Of a table with more than 10,000 rows it
    shows 10,000, drawn at random. Columns that the model does not know are shown as well.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {out} is no .html file")
    options.check_paths(out, overwrite, table, model=model)
    if out.is_dir():
        raise InputError(f"--out {out} is a folder")
    make_folder(out.parent)

    from varjepa.estimators import VarTJEPA
    from varjepa.explore import explore as make

    estimator = VarTJEPA.load(model).set_params(device=device)
    rows = options.read_rows(table)
    with progress() as show:

        def on_stage(number: int, count: int, name: str) -> None:
            work = 2 * (count - 1)  # the map, the last step, takes as long as all before it
            show(number, work, name, f"step {number + 1} of {count}")

        data = make(estimator, rows, out, title=table.name, random_state=seed, on_stage=on_stage)
    console.print(f"{len(data.labels):,} rows in {out}", soft_wrap=True)
