"""``varjepa report``: what a results folder holds, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from varjepa.cli.shell import console
from varjepa.report.study_page import check_can_report, write_study_page


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Results folder of varjepa reproduce.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page to write. Default: report.html in the folder.")
    ] = None,
) -> None:
    """Every table and figure there are results for, beside the paper's, as one HTML file."""
    check_can_report()
    path = folder / "report.html" if out is None else out
    write_study_page(folder, path)
    console.print(Text(f"report: {path}"), soft_wrap=True)
