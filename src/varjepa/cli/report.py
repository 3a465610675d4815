"""``varjepa report``: what a results folder holds, as one page or in Markdown files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from varjepa.cli.shell import console
from varjepa.report.documents import write_document
from varjepa.report.study_page import check_can_report, write_study_page


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Results folder of varjepa reproduce.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page to write. Default: report.html in the folder.")
    ] = None,
    markdown: Annotated[
        list[Path] | None,
        typer.Option(
            help="Fill the generated blocks of these Markdown files, or write a new one; no page "
            "then, unless --out names it."
        ),
    ] = None,
) -> None:
    """Every table and figure there are results for, beside the paper's, as one HTML file."""
    for document in markdown or ():
        write_document(folder, document)
        console.print(Text(f"tables: {document}"), soft_wrap=True)
    if out is None and markdown:
        return
    check_can_report()
    path = folder / "report.html" if out is None else out
    write_study_page(folder, path)
    console.print(Text(f"report: {path}"), soft_wrap=True)
