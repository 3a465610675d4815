"""``varjepa demo``: the embedded SIM table from start to finish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from varjepa.cli.shell import console
from varjepa.files import make_folder


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller table and model: under a minute.")
    ] = False,
    rows: Annotated[
        int | None,
        typer.Option(help="Rows. Default: 10,000, or 1,500 if quick.", min=100, max=10_000),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Training epochs. Default: 16, or 40 if quick.", min=1)
    ] = None,
) -> None:
    """Run the whole tool on a built-in table.

    Fit, evaluate, impute, sample, audit and explore the table SIM, with a report.
    """
    make_folder(out)

    from dataclasses import replace

    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    from varjepa.demo.run import QUICK, WHOLE, run_demo

    size = QUICK if quick else WHOLE
    size = replace(size, rows=rows or size.rows, epochs=epochs or size.epochs)
    with threadpool_limits(1 if quick else None):  # threads only wait for each other on few rows
        page = run_demo(out, size, console.print)
    console.print(
        f"\nthe test rows audited: {out / 'audit' / 'report.html'}; "
        f"on a map: {out / 'explore.html'}\n"
        f"open {page}; all figures are in {out / 'demo.json'}",
        soft_wrap=True,
    )
