"""The ``varjepa`` command: parse, call, print. Errors are one sentence and exit code 2."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from varjepa.cli import shell
from varjepa.errors import InputError
from varjepa.version import __version__

COMMANDS = (
    "demo", "describe", "fit", "embed", "impute", "sample", "score", "audit", "similar", "explore",
    "evaluate", "doctor",
)  # fmt: skip
"""Each a module with a function of its name, in the order of the help."""

TAKE_LISTS = ("embed", "score", "audit", "similar", "evaluate")
"""Commands with an option that takes several words at once."""

app = typer.Typer(
    help="Self-supervised learning on tables, with uncertainty.",
    add_completion=False,
    rich_markup_mode=None,  # boxes leave no room for the words
    pretty_exceptions_enable=False,
)
for name in COMMANDS:
    command = getattr(import_module(f"varjepa.cli.{name}"), name)
    app.command(cls=shell.ListCommand if name in TAKE_LISTS else None)(command)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        shell.console.print(__version__)
        raise typer.Exit
    command = context.invoked_subcommand
    if command is None:
        shell.console.print(context.get_help(), soft_wrap=True)
        raise typer.Exit(shell.WRONG_INPUT)
    if command != "fit" and shell.torchrun_rank() is not None:
        # processes that do not know of each other would all write the same files
        raise InputError(f"torchrun is for varjepa fit; start varjepa {command} without it")


def main(arguments: list[str] | None = None) -> None:
    shell.run(app, arguments)
