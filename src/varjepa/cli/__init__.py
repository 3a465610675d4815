"""The ``varjepa`` command: parse, call, print. Errors are one sentence and exit code 2."""

from __future__ import annotations

from typing import Annotated

import typer

from varjepa.cli import (
    audit,
    demo,
    describe,
    doctor,
    embed,
    evaluate,
    explore,
    fit,
    impute,
    sample,
    score,
    shell,
    similar,
)
from varjepa.errors import InputError
from varjepa.version import __version__

app = typer.Typer(
    help="Self-supervised learning on tables, with uncertainty.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for module in (
    demo,
    describe,
    fit,
    embed,
    impute,
    sample,
    score,
    audit,
    similar,
    explore,
    evaluate,
    doctor,
):
    name = module.__name__.rpartition(".")[2]
    takes_lists = name in ("embed", "score", "audit", "similar", "evaluate")
    app.command(cls=shell.ListCommand if takes_lists else None)(getattr(module, name))


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        shell.console.print(__version__)
        raise typer.Exit
    command = context.invoked_subcommand
    if command not in (None, "fit") and shell.torchrun_rank() is not None:
        # processes that do not know of each other would all write the same files
        raise InputError(f"torchrun is for varjepa fit; start varjepa {command} without it")


def main(arguments: list[str] | None = None) -> None:
    shell.run(app, arguments)
