"""``varjepa demo``: the embedded SIM table from start to finish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from varjepa.cli.shell import console
from varjepa.files import make_folder


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo"),
    rows: Annotated[int, typer.Option(help="Rows of the SIM table.", min=100, max=10_000)] = 10_000,
    epochs: Annotated[int, typer.Option(help="Training epochs.", min=1)] = 16,
) -> None:
    """Fit, evaluate, impute and sample on the embedded SIM table, with a report."""
    make_folder(out)

    from varjepa.demo.run import run_demo

    page = run_demo(out, rows, epochs, console.print)
    console.print(f"\nreport: {page}", soft_wrap=True)
