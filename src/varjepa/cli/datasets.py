"""``varjepa datasets``: what there is, and whether it is here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from varjepa.cli.shell import console
from varjepa.datasets.catalogue import DATASETS
from varjepa.datasets.loading import FOLDER_VARIABLE, locate_dataset


def datasets(
    data: Annotated[
        Path | None, typer.Option(help=f"Folder of Parquet files; default: {FOLDER_VARIABLE}.")
    ] = None,
) -> None:
    """List the paper's seven datasets, and where each would be loaded from."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "rows", "numeric", "categorical", "classes", "available", "source"):
        is_number = heading in ("rows", "numeric", "categorical", "classes")
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
    places = {name: locate_dataset(name, data) for name in DATASETS}
    for name, info in DATASETS.items():
        counts = (info.rows, info.numeric, info.categorical, len(info.classes))
        table.add_row(name, *(f"{n:,}" for n in counts), places[name].where, info.source)
    console.print(table, highlight=False)
    if any(place.where == "not here" for place in places.values()):
        console.print(
            "\nWhat is not here is fetched from OpenML when first used; without internet, set "
            f"{FOLDER_VARIABLE} to a folder of Parquet files (docs/datasets.md).",
            highlight=False,
            soft_wrap=True,
        )
